"""Slopes of Cox's partial likelihood against another library's likelihood, and sums by hand."""

import numpy as np
import pytest
from statsmodels.duration.hazard_regression import PHReg

from wardround.statistics.trees.hazards import (
    cox,
    hazard_of,
    interval_labels,
    is_hazard,
    order_sums,
    risk_sums,
    signed_times,
)

DRAW = np.random.default_rng(3)
PLACE, EVENT, SCORE = DRAW.integers(0, 12, 60), DRAW.integers(0, 2, 60), DRAW.normal(size=60)
LABEL = interval_labels(signed_times(PLACE.astype(float), EVENT), PLACE)


def likelihood(score):
    """Breslow's partial likelihood of these scores, by statsmodels: that of one column with a coefficient of 1."""
    return PHReg(PLACE, score[:, None], EVENT, ties="breslow").loglike([1.0])


def test_slopes_are_the_derivatives_of_breslows_partial_likelihood():
    slopes = cox(hazard_of(risk_sums(SCORE, LABEL, 12))).slopes(SCORE[None], LABEL)
    step = 1e-4
    for row in range(0, 60, 7):
        moved = np.eye(60)[row] * step
        up, here, down = (likelihood(SCORE + side * moved) for side in (1, 0, -1))
        assert slopes.gradients[0, row] == pytest.approx(-(up - down) / (2 * step), abs=1e-5)
        assert slopes.hessians[0, row] == pytest.approx(-(up - 2 * here + down) / step**2, abs=1e-4)
    assert (slopes.hessians >= 0).all()


def test_risk_and_hazard_by_hand():
    # Three leave in intervals 1 (event), 2 (censored), 2 (event), with hazards 1, 2 and 4: at risk are 7, then 6.
    y = np.array([1.0, -2.0, 2.0])
    sums = risk_sums(np.log([1.0, 2.0, 4.0]), y, 3)
    np.testing.assert_allclose(sums, [[7, 6, 0], [1, 1, 0]])
    total, square, own = hazard_of(sums)
    np.testing.assert_allclose(total, [1 / 7, 1 / 7 + 1 / 6, 1 / 7 + 1 / 6])
    np.testing.assert_allclose(square, [1 / 49, 1 / 49 + 1 / 36, 1 / 49 + 1 / 36])
    np.testing.assert_allclose(own[:2], np.log([1 / 7, 1 / 6]))
    # The loss of the last: 4 (1/7 + 1/6) - log(4 / 6); of the second, censored: 2 (1/7 + 1/6).
    loss = cox(hazard_of(sums)).loss(np.log([[1.0, 2.0, 4.0]]), y)
    np.testing.assert_allclose(loss[1:], [2 * (1 / 7 + 1 / 6), 4 * (1 / 7 + 1 / 6) - np.log(4 / 6)])
    # Sums of two sites are the sums of their patients together.
    np.testing.assert_allclose(
        risk_sums(SCORE[:20], LABEL[:20], 12) + risk_sums(SCORE[20:], LABEL[20:], 12), risk_sums(SCORE, LABEL, 12)
    )


def test_times_keep_whether_they_are_censored_even_at_0():
    signed = signed_times(np.array([0.0, 0.0, 5.0, 5.0]), np.array([1.0, 0.0, np.nan, 0.0]))
    assert np.isnan(signed[2])
    np.testing.assert_array_equal(interval_labels(signed[[0, 1, 3]], np.array([0, 0, 4])), [1, -1, -5])
    np.testing.assert_array_equal(cox().summarise(signed[[0, 1, 3]]), [3, 1])


def test_pairs_that_share_an_interval_are_counted():
    # Events at 1 and 2, censored at 3: three pairs; the first two lie in one interval, and 1 is ordered wrong there.
    told = order_sums(np.array([1.0, 2.0, -3.0]), np.array([1, 1, 2]), np.array([0.5, 0.9, 0.1]))
    np.testing.assert_array_equal(told, [3, 2, 3, 2, 0, 1])


def test_what_is_no_hazard_is_known():
    hazard = hazard_of(risk_sums(SCORE, LABEL, 12))
    assert is_hazard(hazard, 12)
    for wrong in (hazard[:, :-1], hazard * np.nan, -hazard, hazard[:, ::-1], np.empty(0)):
        assert not is_hazard(wrong, 12)
