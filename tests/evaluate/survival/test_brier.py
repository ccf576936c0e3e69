"""The Brier score with censored patients, by hand and in its limits."""

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.evaluate.survival.brier import brier, integrated_brier


def test_by_hand():
    # Event at 1, censored at 2, event at 3, alive at 4; horizon 3. G is 2/3 from 2 on. Predicted survival 0.2, 0.5,
    # 0.4, 0.9. Event at 1: weight 1, 0.04. Censored: nothing. Event at 3: weight 3/2, 0.16. Alive: 3/2 of 0.01.
    # (0.04 + 0.24 + 0.015) / 4 = 0.07375.
    time, event = np.array([1.0, 2, 3, 4]), np.array([1.0, 0, 1, 0])
    score = brier(time, event, np.array([0.2, 0.5, 0.4, 0.9]), 3.0)
    np.testing.assert_allclose(score, 0.07375)


def test_without_censoring_it_is_the_mean_square():
    rng = np.random.default_rng(0)
    time, predicted = rng.exponential(1, 50), rng.random(50)
    np.testing.assert_allclose(brier(time, np.ones(50), predicted, 0.7), np.mean(((time > 0.7) - predicted) ** 2))


def test_a_known_chance_scores_its_variance_in_spite_of_censoring():
    # Everybody's survival at 1 is exp(-1): the expected score is p (1 - p) = 0.2325, censored or not.
    rng = np.random.default_rng(1)
    died, censored = rng.exponential(1, 40_000), rng.exponential(1.5, 40_000)
    time, event = np.minimum(died, censored), (died <= censored).astype(float)
    p = np.exp(-1)
    np.testing.assert_allclose(brier(time, event, np.full(40_000, p), 1.0), p * (1 - p), atol=0.006)


def test_integrated_is_the_mean_over_time():
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4)
    survival = np.full((4, 3), 0.5)  # always 1/4 off
    np.testing.assert_allclose(integrated_brier(time, event, survival, np.array([1.0, 2.0, 3.5])), 0.25)
    with pytest.raises(Refusal, match="ascending"):
        integrated_brier(time, event, survival[:, :1], np.array([1.0]))
    assert brier(time[:0], event[:0], survival[:0, 0], 1.0) is None
