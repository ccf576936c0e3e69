"""Measures of survival beside the formulas that are tested by hand, in their limits, and under weights."""

import numpy as np
import pytest

from wardround.core.contracts import Scores, Task
from wardround.data.survival.intervals import interval_names, label_numbers
from wardround.evaluate.block import pooled_block, result_block
from wardround.evaluate.metrics import compute_metric, measure_sites, metrics_for
from wardround.evaluate.rows import rows_of
from wardround.evaluate.survival import measures
from wardround.evaluate.survival.brier import integrated_brier
from wardround.evaluate.survival.horizons import calibration_points, horizon_figures
from wardround.evaluate.survival.order import harrell

HORIZONS = (1.0, 2.0, 4.0)
TASK = Task((2,), interval_names(HORIZONS), "died", HORIZONS)


def made(rows, seed=0, sites=1):
    """Patients of whom about a third is censored, predicted with some skill."""
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.normal(0, 1, rows))
    died, lost = rng.exponential(1 / rate) * 2, rng.exponential(4, rows)
    time, event = np.minimum(died, lost), (died <= lost).astype(float)
    survival = np.exp(-np.outer(rate * np.exp(rng.normal(0, 0.5, rows)), HORIZONS) / 2)
    predicted = -np.diff(np.concatenate([np.ones((rows, 1)), survival, np.zeros((rows, 1))], axis=1), axis=1)
    first = np.linspace(0, rows, sites + 1).astype(int)
    return Scores(predicted, label_numbers(time, event, HORIZONS), first, time), time, event


def test_they_are_the_tested_formulas_up_to_the_last_horizon():
    scores, time, event = made(200, sites=3)
    values = measure_sites(scores, TASK).values
    event = event * (time <= 4)  # beyond the last horizon nobody is known to have the event
    risk = np.cumsum(scores.predicted[:, :-1], axis=1)
    order = harrell(time, event, risk.sum(axis=1), scores.first)
    np.testing.assert_allclose(values["c_index"], order.by_site, rtol=1e-12)
    for site in range(3):
        own = slice(scores.first[site], scores.first[site + 1])
        brier = integrated_brier(time[own], event[own], 1 - risk[own], np.array(HORIZONS))
        np.testing.assert_allclose(values["integrated_brier"][site], brier, rtol=1e-12)


def test_without_censoring_they_count():
    # Everybody is seen to the end: the risk seen at a horizon is a share, and the Brier score a mean square.
    rng = np.random.default_rng(4)
    time = rng.uniform(0, 5, 60)
    predicted = rng.dirichlet(np.ones(4), 60)
    scores = Scores(predicted, label_numbers(time, np.ones(60), HORIZONS), np.array([0, 60]), time)
    risk, struck = np.cumsum(predicted[:, :-1], axis=1), time[:, None] <= np.array(HORIZONS)
    values = {name: float(one[0]) for name, one in measure_sites(scores, TASK).values.items()}
    squares = np.square(struck - risk).mean(axis=0)
    np.testing.assert_allclose(values["integrated_brier"], np.trapezoid(squares, HORIZONS) / 3, rtol=1e-12)
    np.testing.assert_allclose(values["horizon_gap"], np.abs(struck.mean(0) - risk.mean(0)).mean(), rtol=1e-12)
    told = horizon_figures(scores, TASK)
    np.testing.assert_allclose([one["observed"] for one in told], struck.mean(axis=0))
    np.testing.assert_allclose([one["brier"] for one in told], squares)
    shares = struck.mean(axis=0)
    np.testing.assert_allclose([one["brier_same_for_all"] for one in told], shares * (1 - shares))


def test_a_whole_number_of_weights_repeats_patients():
    # A resample with patient i drawn w_i times is the sample with i repeated: ties with oneself are not compared, so
    # the order is left as it is; the risk seen is that of the repeated patients.
    scores, time, _event = made(60, seed=1)
    weights = np.random.default_rng(2).multinomial(60, np.full(60, 1 / 60), 4).astype(float)
    rows = rows_of(scores, TASK)
    found = {name: compute_metric(rows, one, weights)[:, 0] for name, one in metrics_for(TASK).items()}
    for draw, weight in enumerate(weights.astype(int)):
        again = np.repeat(np.arange(60), weight)
        repeated = Scores(scores.predicted[again], scores.actual[again], np.array([0, 60]), time[again])
        values = {name: float(one[0]) for name, one in measure_sites(repeated, TASK).values.items()}
        for name in ("c_index", "horizon_gap", "log_loss"):
            np.testing.assert_allclose(found[name][draw], values[name], rtol=1e-10)


def test_many_patients_are_projected(monkeypatch):
    # To first order: they differ by far less than they spread, and equal weights give the estimate.
    scores, *_ = made(400, seed=3)
    rows = rows_of(scores, TASK)
    weights = np.random.default_rng(5).multinomial(400, np.full(400, 1 / 400), 40).astype(float)
    exact = measures.c_index(rows, weights)[:, 0]
    monkeypatch.setattr(measures, "EXACT", 10)
    projected = measures.c_index(rows, weights)[:, 0]
    assert np.sqrt(np.square(projected - exact).mean()) < exact.std() / 8
    np.testing.assert_allclose(projected.std(), exact.std(), rtol=0.05)
    np.testing.assert_allclose(measures.c_index(rows, np.ones((1, 400))), measures.c_index(rows), rtol=1e-12)


def test_models_of_different_folds_are_not_ranked_against_each_other():
    scores, time, event = made(80, seed=6)
    fold = np.arange(80) % 2
    found = measure_sites(scores, TASK, ["c_index"], fold=fold).values["c_index"][0]
    right, all_of_them = 0.0, 0.0
    score = np.cumsum(scores.predicted[:, :-1], axis=1).sum(axis=1)
    for i in range(80):
        for j in range(80):
            if fold[i] == fold[j] and event[i] and time[i] <= 4 and time[i] < time[j]:
                all_of_them += 1
                right += (score[i] > score[j]) + (score[i] == score[j]) / 2
    np.testing.assert_allclose(found, right / all_of_them, rtol=1e-12)


def test_without_exact_times_the_intervals_order_patients():
    # Patients with events in intervals 0 and 1, and one censored in interval 1: only (0, 1) and (0, censored) compare.
    predicted = np.array([[0.5, 0.2, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.2, 0.2, 0.3, 0.3]])
    scores = Scores(predicted, np.array([0, 1, 5]), np.array([0, 3]))
    assert measure_sites(scores, TASK, ["c_index"]).values["c_index"][0] == 1.0
    scores = Scores(predicted[[1, 0, 2]], np.array([0, 1, 5]), np.array([0, 3]))
    assert measure_sites(scores, TASK, ["c_index"]).values["c_index"][0] == 0.0


def test_a_perfect_prediction_of_the_curve_has_no_gap():
    scores, _time, _event = made(300, seed=7)
    seen = measures.observed_risks(rows_of(scores, TASK))[0, 0]
    same = np.tile(np.diff([0.0, *seen, 1.0]), (300, 1))
    values = measure_sites(scores._replace(predicted=same), TASK).values
    assert abs(values["horizon_gap"][0]) < 1e-12
    assert values["c_index"][0] == 0.5


def test_blocks_have_intervals_and_reasons():
    scores, *_ = made(120, seed=8, sites=2)
    block = result_block(scores, TASK, ["bo", "kenema"], resamples=50)
    one = block["sites"]["bo"]["c_index"]
    assert one["low"] < one["value"] < one["high"]
    assert set(pooled_block(scores, TASK, resamples=0)) == {"c_index", "integrated_brier", "horizon_gap", "log_loss"}
    nobody = Scores(scores.predicted[:5], np.full(5, 4), np.array([0, 5]), np.full(5, 0.5))
    told = result_block(nobody, TASK, ["bo"], resamples=0)["sites"]["bo"]["c_index"]
    assert told["undefined"] == "no event by the last horizon among 5 test patients"
    assert len(calibration_points(scores, TASK)) == 10


def test_brier_counts_who_is_seen_at_the_horizon_itself():
    # Follow-up of all ends at 4, the last horizon: whoever is there is free of the event, and weighs as the others.
    time, event = np.array([1.0, 2.0, 4.0, 4.0]), np.array([1.0, 1.0, 0.0, 0.0])
    predicted = np.tile([0.25, 0.25, 0.0, 0.5], (4, 1))
    scores = Scores(predicted, label_numbers(time, event, HORIZONS), np.array([0, 4]), time)
    parts = measures.brier_parts(rows_of(scores, TASK)).mean(axis=0)
    np.testing.assert_allclose(parts, [0.1875, 0.25, 0.25])  # p (1 - p) with p = 1/4, 1/2, 1/2


@pytest.mark.parametrize("metric", ["c_index", "integrated_brier", "horizon_gap"])
def test_broken_predictions_are_told(metric):
    scores, *_ = made(20, seed=9)
    predicted = scores.predicted.copy()
    predicted[0, 0] = np.nan
    measured = measure_sites(scores._replace(predicted=predicted), TASK, [metric])
    assert "are not numbers" in measured.measure(metric, 0).reason
