"""Resamples against rows really repeated, widths against formulas of their own, and what cannot be told."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn import metrics as reference

from wardround.core.contracts import Scores, Task
from wardround.evaluate.intervals import Interval, bootstrap_intervals, interval, resample_counts, resample_metrics
from wardround.evaluate.metrics import SiteMeasures, compute_metric, measure_sites
from wardround.evaluate.summary import summaries

ILL = Task((1,), ("well", "ill"))


def made_up(counts: list[int], classes: int, seed: int) -> Scores:
    rng = np.random.default_rng(seed)
    total = sum(counts)
    actual = rng.integers(0, classes, total)
    logits = np.round(rng.normal(size=(total, classes)) + np.eye(classes)[actual], 1)
    odds = np.exp(logits)
    return Scores(odds / odds.sum(axis=1, keepdims=True), actual, np.concatenate([[0], np.cumsum(counts)]))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_count_is_a_row_repeated(classes: int) -> None:
    task = Task((1,), tuple("abc"[:classes]))
    scores = made_up([25, 0, 40], classes, 6)
    measured = measure_sites(scores, task)
    weights = resample_counts(np.random.default_rng(7), measured.rows.counts, 5)
    for draw, counts in enumerate(weights.astype(int)):
        again = np.repeat(np.arange(65), counts)
        repeated = measure_sites(Scores(scores.predicted[again], scores.actual[again], scores.first), task)
        for name, metric in measured.metrics.items():
            if name == "calibration":  # keeps the bins of the patients it was drawn from, hence not the same
                continue
            assert compute_metric(measured.rows, metric, weights)[draw] == pytest.approx(
                repeated.values[name], nan_ok=True
            ), name


def test_regression_too() -> None:
    rng = np.random.default_rng(8)
    predicted, actual, first = rng.normal(size=50), rng.normal(size=50) + 100, np.array([0, 20, 50])
    measured = measure_sites(Scores(predicted, actual, first), Task((1,)))
    weights = resample_counts(rng, measured.rows.counts, 3)
    for draw, counts in enumerate(weights.astype(int)):
        again = np.repeat(np.arange(50), counts)
        for name, metric in measured.metrics.items():
            expected = measure_sites(Scores(predicted[again], actual[again], first), Task((1,))).values[name]
            assert compute_metric(measured.rows, metric, weights)[draw] == pytest.approx(expected), name


def test_a_resample_of_one_patient_alone_has_no_spread_to_explain() -> None:
    actual = np.array([0.1, 0.7, 1.3, 2.9, 3.3, 0.37, 11.1])
    measured = measure_sites(Scores(actual + 0.5, actual, np.array([0, 7])), Task((1,)), ["r2"])
    # Each patient drawn seven times over: the target is constant, whatever rounding says.
    assert np.isnan(compute_metric(measured.rows, measured.metrics["r2"], 7 * np.eye(7))).all()


@pytest.mark.parametrize("task", [ILL, Task((1,))])
def test_a_diverged_site_has_no_interval_and_harms_no_other(task: Task) -> None:
    scores = made_up([30, 20], 2, 17)
    predicted = scores.predicted if task.classes else scores.predicted[:, 1].copy()
    sound = bootstrap_intervals(measure_sites(Scores(predicted, scores.actual, scores.first), task), resamples=200)
    predicted[40] = np.nan
    found = bootstrap_intervals(measure_sites(Scores(predicted, scores.actual, scores.first), task), resamples=200)
    for name, sites in found.sites.items():
        assert sites[0] == sound.sites[name][0], name
        assert sites[1] == Interval(None, None), name
        assert list(found.weighted[name][:2]) == pytest.approx(list(sites[0][:2])), name


def test_calibration_keeps_its_bins() -> None:
    # Two bins: told 0.1 (first ten) and 0.8. Draw the one ill patient of the low bin ten times, and of the high bin
    # one well patient ten times: gaps |1 - 0.1| and |0 - 0.8|, ten patients each.
    risk = np.array([0.1] * 10 + [0.8] * 10)
    actual = np.array([1] + [0] * 9 + [1] * 9 + [0])
    measured = measure_sites(Scores(np.stack([1 - risk, risk], axis=1), actual, np.array([0, 20])), ILL)
    weights = np.zeros((1, 20))
    weights[0, [0, 19]] = 10
    assert compute_metric(measured.rows, measured.metrics["calibration"], weights)[0, 0] == pytest.approx(
        (0.9 + 0.8) / 2
    )


def test_counts_stay_within_sites_and_do_not_depend_on_portions() -> None:
    counts = np.array([3, 0, 1, 50])
    whole = resample_counts(np.random.default_rng(9), counts, 400)
    rng = np.random.default_rng(9)
    assert np.array_equal(whole, np.concatenate([resample_counts(rng, counts, 150), resample_counts(rng, counts, 250)]))
    assert (whole[:, :3].sum(axis=1) == 3).all()
    assert (whole[:, 3] == 1).all()
    assert (whole[:, 4:].sum(axis=1) == 50).all()
    # Each of 50 rows is drawn Binomial(50, 1/50) times: mean 1, variance 0.98; 20,000 counts.
    assert whole[:, 4:].var() == pytest.approx(0.98, rel=0.05)


def test_accuracy_interval_has_the_width_of_a_binomial() -> None:
    # 320 of 400 right: standard error sqrt(0.8 * 0.2 / 400) = 0.02, half-width 1.96 * 0.02 = 0.0392.
    risk = np.array([0.9] * 320 + [0.1] * 80)
    scores = Scores(np.stack([1 - risk, risk], axis=1), np.ones(400, int), np.array([0, 400]))
    found = bootstrap_intervals(measure_sites(scores, ILL, ["accuracy"]), resamples=4000, seed=1).sites["accuracy"][0]
    assert found.low == pytest.approx(0.8 - 0.0392, abs=0.004)
    assert found.high == pytest.approx(0.8 + 0.0392, abs=0.004)
    narrow = bootstrap_intervals(measure_sites(scores, ILL, ["accuracy"]), resamples=4000, level=0.5, seed=1).sites[
        "accuracy"
    ][0]
    assert narrow.high == pytest.approx(0.8 + 0.6745 * 0.02, abs=0.003)


def test_auc_on_real_patients_spreads_as_delong_says() -> None:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    risk = (x[:300, 9] - x[:300, 9].min()) / np.ptp(x[:300, 9])
    y = y[:300]
    scores = Scores(np.stack([1 - risk, risk], axis=1), y, np.array([0, 300]))
    measured = measure_sites(scores, ILL, ["roc_auc"])
    draws = resample_metrics(measured, np.random.default_rng(10), 3000)["roc_auc"][:, 0]
    wins = (risk[y == 1][:, None] > risk[y == 0]) + 0.5 * (risk[y == 1][:, None] == risk[y == 0])
    delong = wins.mean(axis=1).var(ddof=1) / len(wins) + wins.mean(axis=0).var(ddof=1) / wins.shape[1]
    assert draws.std() == pytest.approx(delong**0.5, rel=0.06)
    assert draws.mean() == pytest.approx(reference.roc_auc_score(y, risk), abs=0.003)


def test_the_interval_surrounds_an_estimate_that_resampling_pushes_up() -> None:
    # Calibration error can only grow by chance, so that a plain percentile interval misses its own estimate.
    rng = np.random.default_rng(11)
    risk = rng.random(200)
    scores = Scores(np.stack([1 - risk, risk], axis=1), (rng.random(200) < risk).astype(int), np.array([0, 200]))
    measured = measure_sites(scores, ILL, ["calibration"])
    draws = resample_metrics(measured, np.random.default_rng(12), 1000)["calibration"][:, 0]
    estimate = measured.values["calibration"][0]
    assert np.median(draws) > estimate
    found = interval(draws, estimate)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= estimate <= found.high


def test_without_bias_it_is_the_percentile_interval() -> None:
    draws = np.arange(1001.0)
    assert list(interval(draws, 500.0)[:2]) == pytest.approx([25, 975])


def test_what_cannot_be_told_says_why() -> None:
    perfect = interval(np.ones(100), 1.0)
    assert perfect == Interval(None, None, "all resamples give the same value")
    rare = interval(np.where(np.arange(100) < 70, 0.5 + np.arange(100) / 1000, np.nan), 0.53)
    assert rare == Interval(None, None, "only 70 of 100 resamples have a value")
    assert interval(np.full(100, np.nan), np.nan) == Interval(None, None)


def measured_hospitals() -> SiteMeasures:
    return measure_sites(made_up([60, 0, 45, 30], 2, 13), ILL)


def test_same_seed_same_intervals_and_another_seed_others() -> None:
    measured = measured_hospitals()
    first, again, other = (bootstrap_intervals(measured, resamples=200, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert first.sites["accuracy"][1] == Interval(None, None)
    assert first.by == "patients"


def test_the_mean_of_equal_sites_is_surer_than_one_site() -> None:
    scores = made_up([100] * 4, 2, 14)
    found = bootstrap_intervals(measure_sites(scores, ILL, ["brier"]), resamples=2000, seed=5)

    def width(one: Interval) -> float:
        assert one.low is not None
        assert one.high is not None
        return one.high - one.low

    # Four independent sites of one size: variance of the mean is a quarter of the mean variance.
    single = np.sqrt(np.mean([width(one) ** 2 for one in found.sites["brier"]]))
    assert width(found.weighted["brier"]) == pytest.approx(single / 2, rel=0.08)
    assert found.weighted["brier"] == found.unweighted["brier"]


def test_very_many_sites_are_drawn_as_sites() -> None:
    scores = made_up([4] * 900, 2, 15)
    measured = measure_sites(scores, ILL, ["accuracy", "roc_auc"])
    found = bootstrap_intervals(measured, resamples=1000, seed=6)
    assert found.by == "sites"
    values = measured.values["accuracy"]
    weighted = found.weighted["accuracy"]
    assert weighted.low == pytest.approx(values.mean() - 1.96 * values.std() / 30, abs=0.004)
    assert weighted.high == pytest.approx(values.mean() + 1.96 * values.std() / 30, abs=0.004)
    assert found.weighted["roc_auc"].low is not None  # defined at most sites, and the mean is over those
    assert found.sites["accuracy"][0].reason == "more than 200 sites"


def test_the_mean_calibration_error_of_small_sites_lies_in_its_own_interval() -> None:
    # 60 sites of 40 patients and a calibrated model: every resample is noisier than the patients themselves, so all
    # resampled means lie above the estimate.
    rng = np.random.default_rng(4)
    risk = rng.uniform(0.1, 0.9, 2400)
    actual = (rng.random(2400) < risk).astype(int)
    scores = Scores(np.stack([1 - risk, risk], axis=1), actual, np.arange(0, 2401, 40))
    measured = measure_sites(scores, Task((1,), ("well", "ill")), ["calibration"])
    found = bootstrap_intervals(measured, resamples=400, seed=1).weighted["calibration"]
    value = summaries(measured)["calibration"].weighted.value
    drawn = resample_metrics(measured, np.random.default_rng(1), 200)["calibration"].mean(axis=1)
    assert value is not None
    assert found.low is not None
    assert found.high is not None
    assert drawn.min() > value
    assert 0 <= found.low < value < found.high
