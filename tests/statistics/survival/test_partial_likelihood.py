"""The partial likelihood by hand, by numerical differences, and against statsmodels and lifelines."""

import numpy as np
import pytest

from tests.support.survival.sites import made_patients
from wardround.statistics.survival.binned_likelihood import binned_likelihood, binned_trend, interval_sums
from wardround.statistics.survival.partial_likelihood import likelihood_of, risk_of, score_residuals, trend_sums
from wardround.statistics.survival.time_axis import blocks_of, intervals_of

TIES = pytest.mark.parametrize("ties", ["efron", "breslow"])


def rows(days=1.0):
    table = made_patients()
    x = table[["age", "ill"]].to_numpy(float)
    return x - x.mean(axis=0), np.ceil(table["time"].to_numpy() / days), table["event"].to_numpy(float)


def test_by_hand():
    # x = 1 dies at 1, x = 0 dies at 2 (alone): log(e^b / (e^b + 1)); at b = 0 that is -log 2, slope 1/2, curvature 1/4.
    found = likelihood_of(risk_of(np.array([[1.0], [0.0]]), np.array([1.0, 2]), np.ones(2), np.zeros(1)))
    np.testing.assert_allclose((found.value, found.score[0], found.information[0, 0]), (-np.log(2), 0.5, 0.25))


def test_ties_by_hand():
    # x = 1 and x = 0 die at 1, another x = 0 is censored at 2, at b = 0. Breslow: log(1/3 * 1/3); Efron: the second
    # sees 3 - 2/2 = 2, so log(1/3 * 1/2). Means: 1/3 both, and 1/3 and (1 - 1/2) / 2 = 1/4.
    x, time, event = np.array([[1.0], [0.0], [0.0]]), np.array([1.0, 1, 2]), np.array([1.0, 1, 0])
    for ties, value, score in (("breslow", np.log(1 / 9), 1 - 2 / 3), ("efron", np.log(1 / 6), 1 - 1 / 3 - 1 / 4)):
        found = likelihood_of(risk_of(x, time, event, np.zeros(1), ties))
        np.testing.assert_allclose((found.value, found.score[0]), (value, score))


@TIES
def test_derivatives_are_those_of_the_value(ties):
    x, time, event = rows(20.0)
    beta, small = np.array([0.02, 0.5]), 1e-5

    def at(point):
        return likelihood_of(risk_of(x, time, event, point, ties))

    for one in np.eye(2):
        up, down = at(beta + small * one), at(beta - small * one)
        np.testing.assert_allclose((up.value - down.value) / (2 * small), at(beta).score @ one, rtol=1e-6)
        np.testing.assert_allclose((down.score - up.score) / (2 * small), at(beta).information @ one, rtol=1e-6)
    np.testing.assert_allclose(score_residuals(risk_of(x, time, event, beta, ties)).sum(axis=0), at(beta).score)


@TIES
def test_sums_over_the_distinct_times_are_the_exact_likelihood(ties):
    x, time, event = rows(20.0)
    beta, edges = np.array([0.02, 0.5]), np.unique(time)
    exact = likelihood_of(risk_of(x, time, event, beta, ties))
    half = len(x) // 2
    parts = [
        interval_sums(x[own], blocks_of(intervals_of(time[own], edges), event[own], 1, len(edges)), event[own], beta)
        for own in (slice(0, half), slice(half, None))
    ]
    sums = type(parts[0])(*(a + b for a, b in zip(*parts, strict=True)))
    binned = binned_likelihood(sums, beta, ties)
    np.testing.assert_allclose(binned.value, exact.value)
    np.testing.assert_allclose(binned.score, exact.score, atol=1e-9)
    np.testing.assert_allclose(binned.information, exact.information)
    trend = trend_sums(risk_of(x, time, event, beta, ties), 5.0, 2.0)
    for one, other in zip(binned_trend(sums, (edges - 5.0) / 2.0, ties), trend, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_the_trend_is_the_score_of_a_column_that_grows_with_time():
    # With x g(t) as further columns, by definition: the likelihood over the risk sets, one by one, differentiated.
    x, time, event = rows(1.0)
    time = time + np.random.default_rng(0).random(len(time)) / 2  # no ties
    beta, small = np.array([0.02, 0.5]), 1e-4

    def value(gamma):
        total = 0.0
        for place in np.flatnonzero(event > 0):
            effect = beta + gamma * (time[place] - 100) / 50
            total += x[place] @ effect - np.log(np.exp(x[time >= time[place]] @ effect).sum())
        return total

    sums = trend_sums(risk_of(x, time, event, beta), 100.0, 50.0)
    for place, one in enumerate(np.eye(2)):
        up, middle, down = value(small * one), value(0 * one), value(-small * one)
        np.testing.assert_allclose((up - down) / (2 * small), sums.score[place], rtol=1e-5)
        np.testing.assert_allclose(-(up - 2 * middle + down) / small**2, sums.information[place, place], rtol=1e-3)


@pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way
def test_robust_errors_are_those_of_lifelines():
    lifelines = pytest.importorskip("lifelines")
    table = made_patients(rounded=False)[["time", "event", "age", "ill"]]
    fitted = lifelines.CoxPHFitter().fit(table, "time", "event", robust=True, fit_options={"precision": 1e-10})
    x = table[["age", "ill"]].to_numpy(float)
    risk = risk_of(
        x - x.mean(axis=0), table["time"].to_numpy(), table["event"].to_numpy(float), fitted.params_.to_numpy()
    )
    inverse, residuals = np.linalg.inv(likelihood_of(risk).information), score_residuals(risk)
    errors = np.sqrt(np.diag(inverse @ residuals.T @ residuals @ inverse))
    np.testing.assert_allclose(errors, fitted.standard_errors_.to_numpy(), rtol=1e-5)


def test_large_effects_do_not_overflow():
    x, time, event = rows()
    found = likelihood_of(risk_of(x * 10, time, event, np.array([1.0, 0.0])))
    assert np.isfinite(found.value)
    assert np.isfinite(found.information).all()
