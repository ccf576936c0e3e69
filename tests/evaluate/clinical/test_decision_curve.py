"""Net benefit: the published definition, another program's figures, by hand, and intervals that hold what they say."""

import numpy as np
import pytest
from scipy.stats import norm

from tests.support.risks import ILL, RISK
from wardround.evaluate.clinical.decision_curve import THRESHOLDS, decision_curve

# dcurves 1.1.7, dca(data, outcome="ill", modelnames=["risk"], thresholds=...): net benefit of the model and of "all".
PUBLISHED = {
    0.05: (0.24736842105263157, 0.24561403508771928),
    0.1: (0.2148148148148148, 0.2037037037037037),
    0.2: (0.11666666666666664, 0.10416666666666666),
    0.25: (0.08888888888888888, 0.04444444444444445),
    0.3: (0.033333333333333354, -0.023809523809523836),
    0.4: (0.0, -0.19444444444444453),
    0.5: (-0.03333333333333333, -0.43333333333333335),
}


def by_definition(risk: np.ndarray, ill: np.ndarray, threshold: float) -> float:
    """Vickers and Elkin 2006: true positives / n - false positives / n * t / (1 - t)."""
    flagged = risk >= threshold
    right, wrong = np.sum(flagged & (ill == 1)), np.sum(flagged & (ill == 0))
    return float(right / len(ill) - wrong / len(ill) * threshold / (1 - threshold))


def test_dcurves_gives_the_same_figures() -> None:
    curve = decision_curve(np.array(RISK), np.array(ILL), resamples=0)
    for threshold, (model, everybody) in PUBLISHED.items():
        at = round(100 * threshold) - 1
        assert curve["thresholds"][at] == threshold
        assert curve["net_benefit"][at] == pytest.approx(model, abs=1e-9)
        assert curve["treat_all"][at] == pytest.approx(everybody, abs=1e-9)
        assert curve["gain"][at] == pytest.approx(model - max(everybody, 0), abs=1e-9)
    assert "low" not in curve


def test_the_definition_at_every_threshold_with_risks_that_lie_on_them() -> None:
    rng = np.random.default_rng(1)
    risk = np.round(rng.beta(1, 4, 3000), 2)
    ill = (rng.random(3000) < risk).astype(int)
    curve = decision_curve(risk, ill, resamples=0)
    for at, threshold in enumerate(THRESHOLDS):
        assert curve["net_benefit"][at] == pytest.approx(by_definition(risk, ill, threshold), abs=1e-12)
        assert curve["treat_all"][at] == pytest.approx(by_definition(np.ones(3000), ill, threshold), abs=1e-12)


def test_a_model_that_flags_everybody_is_treat_all_and_one_that_knows_has_the_prevalence() -> None:
    ill = np.array([1] * 3 + [0] * 7)
    everybody = decision_curve(np.ones(10), ill, resamples=50)
    assert everybody["net_benefit"] == pytest.approx(everybody["treat_all"])
    perfect = decision_curve(ill.astype(float), ill, resamples=50)
    assert perfect["net_benefit"] == pytest.approx([0.3] * 99)


def test_intervals_are_those_of_a_mean_over_patients() -> None:
    # Net benefit is the mean of one number a patient, so that of many patients the bootstrap is the normal interval.
    rng = np.random.default_rng(2)
    risk = rng.beta(2, 5, 20_000)
    ill = (rng.random(20_000) < risk).astype(int)
    curve = decision_curve(risk, ill, resamples=2000, seed=3)
    for threshold in (0.1, 0.3, 0.5):
        at = round(100 * threshold) - 1
        each = (risk >= threshold) * (ill - (1 - ill) * threshold / (1 - threshold))
        half = norm.ppf(0.975) * each.std() / np.sqrt(len(each))
        assert curve["high"][at] - curve["low"][at] == pytest.approx(2 * half, rel=0.1)
        assert curve["low"][at] < each.mean() < curve["high"][at]
        own = each - (ill - (1 - ill) * threshold / (1 - threshold)) * (curve["treat_all"][at] > 0)
        gain = 2 * norm.ppf(0.975) * own.std() / np.sqrt(len(each))
        assert curve["gain_high"][at] - curve["gain_low"][at] == pytest.approx(gain, rel=0.1)


def test_the_same_seed_gives_the_same_curve_and_nobody_gives_none() -> None:
    risk, ill = np.array(RISK), np.array(ILL)
    assert decision_curve(risk, ill, resamples=50, seed=1) == decision_curve(risk, ill, resamples=50, seed=1)
    assert decision_curve(risk, ill, resamples=50, seed=1) != decision_curve(risk, ill, resamples=50, seed=2)
