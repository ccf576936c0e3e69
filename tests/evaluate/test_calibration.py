"""Calibration error and reliability curve by hand."""

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp
from sklearn.calibration import calibration_curve

from wardround.core.contracts import Scores, Task
from wardround.evaluate.calibration import reliability_curve
from wardround.evaluate.metrics import measure_sites

ILL = Task((1,), ("well", "ill"))


def binary(risk: np.ndarray, actual: np.ndarray, first: list[int]) -> Scores:
    return Scores(np.stack([1 - risk, risk], axis=1), actual, np.array(first))


def test_two_bins_by_hand_whatever_the_order_of_rows() -> None:
    # 20 patients make two bins of ten. Low: told 0.1, one of ten ill (gap 0). High: told 0.8, six of ten ill (gap 0.2).
    risk = np.array([0.1] * 10 + [0.8] * 10)
    actual = np.array([1] + [0] * 9 + [1] * 6 + [0] * 4)
    for order in (np.arange(20), np.random.default_rng(5).permutation(20)):
        scores = binary(risk[order], actual[order], [0, 20])
        assert measure_sites(scores, ILL).values["calibration"][0] == pytest.approx((10 * 0 + 10 * 0.2) / 20)
        assert reliability_curve(scores, ILL) == [
            # Wilson: (p + 0.192 -+ 1.96 sqrt(p (1 - p) / 10 + 0.0096)) / 1.384, with 0.192 = 1.96² / 20.
            {"predicted": pytest.approx(0.1), "observed": pytest.approx(0.1), "rows": 10}
            | {"low": pytest.approx(0.0179, abs=1e-4), "high": pytest.approx(0.4042, abs=1e-4)},
            {"predicted": pytest.approx(0.8), "observed": pytest.approx(0.6), "rows": 10}
            | {"low": pytest.approx(0.3127, abs=1e-4), "high": pytest.approx(0.8318, abs=1e-4)},
        ]


def test_bins_have_equal_mass_where_there_are_no_ties() -> None:
    rng = np.random.default_rng(1)
    risk = rng.random(1003)
    curve = reliability_curve(binary(risk, (rng.random(1003) < risk).astype(int), [0, 1003]), ILL)
    assert len(curve) == 10
    assert {point["rows"] for point in curve} == {100, 101}
    assert sum(point["rows"] for point in curve) == 1003


def test_a_right_model_is_calibrated_and_an_overconfident_one_is_not() -> None:
    rng = np.random.default_rng(2)
    risk = rng.random(40_000)
    actual = (rng.random(40_000) < risk).astype(int)
    # Pushed apart: told 0 or 1 where the truth is uniform; mean gap of |round(p) - p| is 1/4 with two big tied groups.
    right = measure_sites(binary(risk, actual, [0, 40_000]), ILL).values["calibration"][0]
    over = measure_sites(binary(np.round(risk), actual, [0, 40_000]), ILL).values["calibration"][0]
    assert right < 0.015
    assert over == pytest.approx(0.25, abs=0.01)


def test_each_site_has_its_own_bins() -> None:
    rng = np.random.default_rng(3)
    risk = rng.random(130)
    actual = rng.integers(0, 2, 130)
    together = measure_sites(binary(risk, actual, [0, 30, 30, 130]), ILL).values["calibration"]
    alone = [
        measure_sites(binary(risk[part], actual[part], [0, len(risk[part])]), ILL).values["calibration"][0]
        for part in (slice(0, 30), slice(30, 130))
    ]
    assert together[[0, 2]] == pytest.approx(alone)
    # Independent of the code: 30 patients without ties are three bins of ten by rank.
    order = np.argsort(risk[:30])
    gaps = (actual[:30] - risk[:30])[order].reshape(3, 10).sum(axis=1)
    assert alone[0] == pytest.approx(np.abs(gaps).sum() / 30)


@pytest.mark.parametrize("rows", [200, 1003, 57])
def test_the_curve_is_scikit_learns(rows: int) -> None:
    rng = np.random.default_rng(rows)
    risk = np.round(rng.beta(2, 5, rows), 2)  # with ties
    actual = (rng.random(rows) < risk).astype(int)
    curve = reliability_curve(binary(risk, actual, [0, rows]), ILL)
    observed, predicted = calibration_curve(actual, risk, n_bins=min(10, rows // 10), strategy="quantile")
    assert [point["observed"] for point in curve] == pytest.approx(observed, abs=1e-12)
    assert [point["predicted"] for point in curve] == pytest.approx(predicted, abs=1e-12)
    for point in curve:
        own = binomtest(round(point["observed"] * point["rows"]), point["rows"]).proportion_ci(method="wilson")
        assert (point["low"], point["high"]) == pytest.approx((own.low, own.high), abs=1e-12)


def test_confidence_and_quantities_have_curves_too() -> None:
    rng = np.random.default_rng(9)
    probabilities, actual = rng.dirichlet(np.ones(3), 300), rng.integers(0, 3, 300)
    curve = reliability_curve(Scores(probabilities, actual, np.array([0, 300])), Task((1,), ("a", "b", "c")))
    right = (probabilities.argmax(axis=1) == actual).astype(int)
    observed, predicted = calibration_curve(right, probabilities.max(axis=1), n_bins=10, strategy="quantile")
    assert [point["observed"] for point in curve] == pytest.approx(observed)
    assert [point["predicted"] for point in curve] == pytest.approx(predicted)
    value = rng.normal(1e5, 2, 100)
    seen = value + rng.normal(0, 1, 100)
    points = reliability_curve(Scores(value, seen, np.array([0, 100])), Task((1,)))
    order = np.argsort(value)[:10]
    mean = ttest_1samp(seen[order], 0).confidence_interval()
    assert (points[0]["observed"], points[0]["low"], points[0]["high"]) == pytest.approx(
        (seen[order].mean(), mean.low, mean.high), rel=1e-9
    )
    assert reliability_curve(Scores(np.array([1.0]), np.array([2.0]), np.array([0, 1])), Task((1,))) == [
        {"predicted": 1.0, "observed": 2.0, "rows": 1}
    ], "one patient has no interval"
