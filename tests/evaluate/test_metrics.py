"""Metrics by hand, against scikit-learn on real patients, and where they are undefined."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets
from sklearn import metrics as reference
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.support.amount import examples
from wardround.core.contracts import Scores, Task
from wardround.core.errors import Refusal
from wardround.evaluate.metrics import MeasuredValue, measure_sites, metrics_for

ILL = Task((1,), ("well", "ill"), "outcome")
THREE = Task((1,), ("a", "b", "c"))
VALUE = Task((1,))


def binary(risk: list[float], actual: list[int], first: list[int] | None = None) -> Scores:
    p = np.array(risk)
    return Scores(np.stack([1 - p, p], axis=1), np.array(actual, int), np.array(first or [0, len(risk)]))


def at(scores: Scores, task: Task, metric: str, site: int = 0) -> MeasuredValue:
    return measure_sites(scores, task).measure(metric, site)


def test_six_patients_by_hand() -> None:
    scores = binary([0.9, 0.8, 0.7, 0.6, 0.3, 0.2], [1, 0, 1, 1, 0, 0])
    # Called ill: the first four, three of them rightly; nobody ill is missed.
    assert at(scores, ILL, "accuracy").value == pytest.approx(5 / 6)
    assert at(scores, ILL, "precision").value == pytest.approx(3 / 4)
    assert at(scores, ILL, "recall").value == pytest.approx(1)
    assert at(scores, ILL, "f1").value == pytest.approx(2 * 3 / (3 + 4))
    assert at(scores, ILL, "balanced_accuracy").value == pytest.approx((3 / 3 + 2 / 3) / 2)
    # Ill at 0.9 beats 3 of the well, 0.7 and 0.6 beat 2 each: 7 of 9 pairs.
    assert at(scores, ILL, "roc_auc").value == pytest.approx(7 / 9)
    # Precision when the first, second, third ill patient is found: 1/1, 2/3, 3/4.
    assert at(scores, ILL, "pr_auc").value == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert at(scores, ILL, "brier").value == pytest.approx((0.01 + 0.64 + 0.09 + 0.16 + 0.09 + 0.04) / 6)
    given_to_truth = [0.9, 0.2, 0.7, 0.6, 0.7, 0.8]
    assert at(scores, ILL, "log_loss").value == pytest.approx(-sum(map(math.log, given_to_truth)) / 6)
    # Six patients are one bin: 3 ill seen, 3.5 told.
    assert at(scores, ILL, "calibration").value == pytest.approx(0.5 / 6)


def test_ties_count_one_half() -> None:
    scores = binary([0.5, 0.5, 0.5, 0.1], [1, 0, 1, 0])
    # Each of the two ill ties with one of the well and beats the other: (1/2 + 1) / 2.
    assert at(scores, ILL, "roc_auc").value == pytest.approx(3 / 4)
    # One threshold finds both, among three alarms.
    assert at(scores, ILL, "pr_auc").value == pytest.approx(2 / 3)


def test_a_constant_score_ranks_nothing() -> None:
    scores = binary([0.3] * 10, [1, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    assert at(scores, ILL, "roc_auc").value == 0.5
    assert at(scores, ILL, "pr_auc").value == pytest.approx(0.2)  # the share of the ill


def test_the_positive_class_can_be_the_first() -> None:
    scores = binary([0.9, 0.8, 0.7, 0.6, 0.3, 0.2], [1, 0, 1, 1, 0, 0])
    measured = measure_sites(scores, ILL, positive=0)
    # Called well: the last two, both rightly; one of three well patients is missed.
    assert measured.measure("precision", 0).value == pytest.approx(1)
    assert measured.measure("recall", 0).value == pytest.approx(2 / 3)
    assert measured.measure("roc_auc", 0).value == pytest.approx(7 / 9)
    with pytest.raises(Refusal, match="index 2"):
        measure_sites(scores, ILL, positive=2)


def test_one_class_at_a_site_is_said_not_guessed() -> None:
    scores = binary([0.2] * 12 + [0.9], [0] * 12 + [1], [0, 12, 13])
    assert at(scores, ILL, "roc_auc") == MeasuredValue(None, "only one class among 12 test patients")
    assert at(scores, ILL, "balanced_accuracy") == MeasuredValue(None, "only one class among 12 test patients")
    assert at(scores, ILL, "pr_auc") == MeasuredValue(None, "no 'ill' among 12 test patients")
    assert at(scores, ILL, "f1") == MeasuredValue(None, "no 'ill' among 12 test patients")
    assert at(scores, ILL, "recall") == MeasuredValue(None, "no 'ill' among 12 test patients")
    assert at(scores, ILL, "precision") == MeasuredValue(None, "'ill' never predicted for 12 test patients")
    assert at(scores, ILL, "accuracy") == MeasuredValue(1.0)
    assert at(scores, ILL, "roc_auc", 1) == MeasuredValue(None, "only one class among 1 test patient")
    assert at(scores, ILL, "precision", 1) == MeasuredValue(1.0)


def test_nobody_called_ill_leaves_precision_undefined_and_f1_zero() -> None:
    scores = binary([0.1, 0.2, 0.3], [0, 1, 1])
    assert at(scores, ILL, "precision").value is None
    assert at(scores, ILL, "recall").value == 0
    assert at(scores, ILL, "f1").value == 0


def test_empty_sites_have_no_value_and_do_not_borrow_a_neighbours_rows() -> None:
    risk, actual = [0.9, 0.1, 0.8, 0.3, 0.6, 0.2], [1, 0, 0, 1, 1, 0]
    gaps = measure_sites(binary(risk, actual, [0, 0, 2, 2, 6, 6]), ILL)
    dense = measure_sites(binary(risk, actual, [0, 2, 6]), ILL)
    for name in gaps.metrics:
        for site in (0, 2, 4):
            assert gaps.measure(name, site) == MeasuredValue(None, "no test patients"), name
        assert gaps.values[name][[1, 3]] == pytest.approx(dense.values[name], nan_ok=True), name


@pytest.mark.parametrize("task", [ILL, THREE, VALUE])
def test_no_rows_at_all(task: Task) -> None:
    predicted = np.zeros((0, len(task.classes))) if task.classes else np.zeros(0)
    measured = measure_sites(Scores(predicted, np.zeros(0), np.zeros(3, int)), task)
    for name in measured.metrics:
        assert [measured.measure(name, site).value for site in (0, 1)] == [None, None]


def test_a_diverged_model_harms_only_its_own_site() -> None:
    risk, actual = [0.9, 0.4, 0.8, 0.3, math.nan, 0.2], [1, 0, 0, 1, 1, 0]
    measured = measure_sites(binary(risk, actual, [0, 4, 6]), ILL)
    alone = measure_sites(binary(risk[:4], actual[:4]), ILL)
    for name in measured.metrics:
        assert measured.values[name][0] == alone.values[name][0], name
        assert measured.measure(name, 1) == MeasuredValue(
            None, "the predictions for 1 of 2 test patients are not numbers"
        )


def test_three_classes_by_hand() -> None:
    #            right  right  wrong  right  right: class c does not occur, but is predicted once
    best = [0, 0, 2, 1, 1]
    scores = Scores(np.eye(3)[best] * 0.7 + 0.1, np.array([0, 0, 0, 1, 1]), np.array([0, 5]))
    # a: precision 2/2, recall 2/3, F1 2*2/(3+2); b: all 1. c has no patients, so it is not part of the mean.
    assert at(scores, THREE, "precision").value == pytest.approx(1)
    assert at(scores, THREE, "recall").value == pytest.approx((2 / 3 + 1) / 2)
    assert at(scores, THREE, "f1").value == pytest.approx((4 / 5 + 1) / 2)
    # Each row errs by (0.2, 0.1, 0.1), squares 0.06; the wrong one by (0.9, 0.1, 0.8), squares 1.46.
    assert at(scores, THREE, "brier").value == pytest.approx((4 * 0.06 + 1.46) / 5)
    # Confidence 0.8 everywhere, right in 4 of 5.
    assert at(scores, THREE, "calibration").value == pytest.approx(0)
    never = Scores(np.eye(3)[[0, 0, 0]], np.array([0, 1, 2]), np.array([0, 3]))
    assert at(never, THREE, "precision") == MeasuredValue(None, "'b', 'c' never predicted for 3 test patients")


def cancer_scores() -> tuple[Scores, list[slice]]:
    """Real patients, a weak model of two features, risks rounded to 0.05 so that there are many ties."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[:150, 8:10], y[:150])
    risk = np.round(model.predict_proba(x[150:, 8:10])[:, 1] * 20) / 20
    first = [0, 30, 41, 160, 419]
    return binary(risk.tolist(), y[150:].tolist(), first), [slice(*pair) for pair in pairwise(first)]


def test_real_patients_agree_with_scikit_learn_at_every_site() -> None:
    scores, parts = cancer_scores()
    measured = measure_sites(scores, ILL)
    for site, part in enumerate(parts):
        y, risk = scores.actual[part], scores.predicted[part, 1]
        called = scores.predicted[part].argmax(axis=1)
        expected = {
            "accuracy": reference.accuracy_score(y, called),
            "balanced_accuracy": reference.balanced_accuracy_score(y, called),
            "roc_auc": reference.roc_auc_score(y, risk),
            "pr_auc": reference.average_precision_score(y, risk),
            "f1": reference.f1_score(y, called),
            "precision": reference.precision_score(y, called),
            "recall": reference.recall_score(y, called),
            "brier": reference.brier_score_loss(y, risk),
            "log_loss": reference.log_loss(y, np.clip(risk, 1e-7, 1 - 1e-7)),
        }
        for name, value in expected.items():
            assert measured.values[name][site] == pytest.approx(value, rel=1e-6), (name, site)


def test_many_classes_agree_with_scikit_learn() -> None:
    x, y = datasets.load_digits(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(x[:200], y[:200])
    # Softened, so that no probability lies below the smallest one that log loss takes.
    soft, actual = np.cbrt(model.predict_proba(x[200:800])), y[200:800]
    predicted = soft / soft.sum(axis=1, keepdims=True)
    assert predicted.min() > 1e-7
    task = Task((64,), tuple("0123456789"))
    measured = measure_sites(Scores(predicted, actual, np.array([0, 250, 600])), task)
    for site, part in enumerate([slice(0, 250), slice(250, 600)]):
        p, t, called = predicted[part], actual[part], predicted[part].argmax(axis=1)
        expected: dict[str, Any] = {
            "accuracy": reference.accuracy_score(t, called),
            "balanced_accuracy": reference.balanced_accuracy_score(t, called),
            "roc_auc": reference.roc_auc_score(t, p, multi_class="ovr", average="macro"),
            "pr_auc": reference.average_precision_score(np.eye(10)[t], p, average="macro"),
            "f1": reference.f1_score(t, called, average="macro"),
            "precision": reference.precision_score(t, called, average="macro"),
            "recall": reference.recall_score(t, called, average="macro"),
            "log_loss": reference.log_loss(t, p),
        }
        for name, value in expected.items():
            assert measured.values[name][site] == pytest.approx(value, rel=1e-5), (name, site)


def test_regression_agrees_with_scikit_learn() -> None:
    x, y = datasets.load_diabetes(return_X_y=True)
    predicted = LinearRegression().fit(x[:200], y[:200]).predict(x[200:])
    # An offset as of a laboratory value in other units must not cost digits.
    for offset in (0.0, 1e8):
        measured = measure_sites(Scores(predicted + offset, y[200:] + offset, np.array([0, 40, 242])), VALUE)
        for site, part in enumerate([slice(0, 40), slice(40, 242)]):
            t, p = y[200:][part], predicted[part]
            assert measured.values["rmse"][site] == pytest.approx(reference.root_mean_squared_error(t, p))
            assert measured.values["mae"][site] == pytest.approx(reference.mean_absolute_error(t, p))
            assert measured.values["r2"][site] == pytest.approx(reference.r2_score(t, p), rel=1e-7)


def test_r2_needs_spread() -> None:
    scores = Scores(np.array([1.0, 2.0, 0.1]), np.array([0.1, 0.1, 0.1]), np.array([0, 2, 3]))
    assert at(scores, VALUE, "r2") == MeasuredValue(None, "2 test patients without spread in the target")
    assert at(scores, VALUE, "r2", 1) == MeasuredValue(None, "1 test patient without spread in the target")
    assert at(scores, VALUE, "rmse").value == pytest.approx(math.sqrt((0.9**2 + 1.9**2) / 2))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=25))
def test_areas_of_every_site_are_those_of_all_pairs_and_thresholds(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[2])
    first = [0, *np.cumsum([sum(row[2] == site for row in rows) for site in range(4)]).tolist()]
    measured = measure_sites(binary([row[0] / 4 for row in rows], [row[1] for row in rows], first), ILL)
    for site in range(4):
        ill = [row[0] for row in rows if row[2] == site and row[1]]
        well = [row[0] for row in rows if row[2] == site and not row[1]]
        area, average = measured.values["roc_auc"][site], measured.values["pr_auc"][site]
        if ill and well:
            assert area == pytest.approx(np.mean([(p > q) + 0.5 * (p == q) for p in ill for q in well]))
        else:
            assert np.isnan(area)
        if ill:
            found = [(sum(p >= s for p in ill), sum(q >= s for q in well)) for s in ill]
            assert average == pytest.approx(np.mean([tp / (tp + fp) for tp, fp in found]))
        else:
            assert np.isnan(average)


def test_an_unknown_metric_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Refusal, match="did you mean 'roc_auc'"):
        metrics_for(ILL, ["roc_acu"])
    with pytest.raises(Refusal, match="no metric 'accuracy' for a regression"):
        metrics_for(VALUE, ["accuracy"])


def test_a_class_the_task_does_not_know_is_refused() -> None:
    with pytest.raises(Refusal, match=r"1 rows have a class.*row 1 of the test rows"):
        measure_sites(binary([0.1, 0.2], [0, 2]), ILL)
