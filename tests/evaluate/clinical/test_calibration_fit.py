"""Calibration in the large and slope: closed forms, scikit-learn's regression, statsmodels' figures, and no values."""

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import linregress, norm, ttest_1samp
from sklearn.linear_model import LogisticRegression

from tests.support.risks import ILL, RISK
from wardround.evaluate.clinical.calibration_fit import fit_risks, fit_values


def test_one_risk_for_all_has_a_closed_form() -> None:
    # Told 0.2 for 50, of whom 20 are ill: the intercept is logit(0.4) - logit(0.2), with variance 1 / (n q (1 - q)).
    found = fit_risks(np.full(50, 0.2), np.array([1] * 20 + [0] * 30))
    large = logit(0.4) - logit(0.2)
    half = norm.ppf(0.975) / np.sqrt(50 * 0.4 * 0.6)
    assert found.in_the_large == (
        pytest.approx(large, abs=1e-9), pytest.approx(large - half, abs=1e-9), pytest.approx(large + half, abs=1e-9), ""
    )  # fmt: skip
    assert found.slope.reason == "all patients have the same predicted risk"


def test_statsmodels_gives_the_same_figures() -> None:
    # statsmodels 0.15: GLM(ill, [1, logit(risk)], Binomial()) and GLM(ill, [1], Binomial(), offset=logit(risk)).
    found = fit_risks(np.array(RISK), np.array(ILL))
    assert found.in_the_large[:3] == pytest.approx((-0.12371079, -0.70961649, 0.4621949), abs=1e-6)
    assert found.slope[:3] == pytest.approx((0.77113908, -0.11866241, 1.66094057), abs=1e-4)


def test_scikit_learn_finds_the_same_slope_and_a_right_model_has_one() -> None:
    rng = np.random.default_rng(4)
    score = rng.normal(-1, 1.5, 20_000)
    ill = (rng.random(20_000) < expit(score)).astype(int)
    extreme = fit_risks(expit(2 * score), ill)
    own = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(2 * score[:, None], ill).coef_[0, 0]
    assert extreme.slope.value == pytest.approx(own, abs=1e-5)
    assert extreme.slope.value == pytest.approx(0.5, abs=0.02), "twice too extreme"
    right = fit_risks(expit(score), ill)
    assert right.slope.low is not None
    assert right.slope.high is not None
    assert right.slope.low < 1 < right.slope.high
    low = fit_risks(expit(score - 1), ill).in_the_large.value
    assert low == pytest.approx(1, abs=0.05), "told too low by one in log-odds"


def test_no_fit_is_said() -> None:
    assert fit_risks(np.array([0.2, 0.4]), np.array([1, 1])).slope.reason == "only one outcome among 2 patients"
    apart = fit_risks(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1]))
    assert apart.slope.reason == "the predicted risks separate the outcomes completely"
    assert apart.in_the_large.value == pytest.approx(0, abs=1e-9), "right on average by symmetry"
    assert fit_risks(np.zeros(0), np.zeros(0)).in_the_large.reason == "no patients"
    sure = fit_risks(np.array([0.0, 1.0, 0.5, 0.5]), np.array([0, 1, 0, 1]))
    assert sure.in_the_large.value == pytest.approx(0, abs=1e-6), "risks of 0 and 1 do not break it"


def test_a_quantity_is_fitted_by_least_squares() -> None:
    rng = np.random.default_rng(5)
    predicted = 1e6 + rng.normal(0, 3, 80)
    actual = predicted + 0.7 + rng.normal(0, 1, 80)
    found = fit_values(predicted, actual)
    mean = ttest_1samp(actual - predicted, 0).confidence_interval()
    assert found.in_the_large[:3] == pytest.approx(((actual - predicted).mean(), mean.low, mean.high), rel=1e-9)
    line = linregress(predicted, actual)
    assert found.slope.value == pytest.approx(line.slope, rel=1e-6)
    assert found.slope.high is not None
    assert found.slope.low is not None
    assert (found.slope.high - found.slope.low) / 2 == pytest.approx(1.990847 * line.stderr, rel=1e-5)  # t, 78 degrees
    assert fit_values(np.ones(5), np.arange(5)).slope.reason == "all patients have the same predicted value"
    assert fit_values(np.ones(2), np.ones(2)).slope.reason == "only 2 patients"
