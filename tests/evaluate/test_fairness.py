"""Fairness measures against numbers by hand, sums over single patients, and Fairlearn."""

import math
from typing import Any

import numpy as np
import pytest

from wardround.core.contracts import Scores, Task
from wardround.core.errors import Refusal
from wardround.evaluate import fairness
from wardround.evaluate.fairness_block import add_crossings, fairness_block
from wardround.evaluate.fairness_claims import INDEX

Numbers = np.ndarray[Any, Any]
TASK = Task((1,), ("poor", "rich"), "income")

# Two groups of 100: (truly poor: decided poor, rich), (truly rich: decided poor, rich).
HAND = np.array([[[40, 10], [20, 30]], [[60, 20], [15, 5]]])


def test_numbers_derived_by_hand() -> None:
    # Found: 30/50 and 5/20. Falsely alarmed: 10/50 and 20/80. Alarmed at all: 40/100 and 25/100.
    assert fairness.true_positive_rates(HAND).tolist() == [0.6, 0.25]
    assert fairness.false_positive_rates(HAND).tolist() == [0.2, 0.25]
    assert fairness.selection_rates(HAND).tolist() == [0.4, 0.25]
    assert fairness.equal_opportunity_gap(HAND) == pytest.approx(0.35)
    assert fairness.equal_odds_gap(HAND) == pytest.approx(0.35)
    # "rich" 41/102 against 26/102, "poor" 61/102 against 76/102: the former ratio is the larger.
    assert fairness.differential_fairness(HAND) == pytest.approx(math.log(41 / 26))
    assert fairness.differential_fairness(HAND, smoothing=0.0) == pytest.approx(math.log(40 / 25))
    # Benefits: 35 of 0, 135 of 1, 30 of 2. Mean 195/200, mean square 255/200; ((255/200) / (195/200)^2 - 1) / 2.
    assert fairness.generalized_entropy_index(HAND) == pytest.approx((255 * 200 / 195**2 - 1) / 2)


def test_equal_odds_takes_the_larger_gap_also_where_it_is_that_of_false_alarms() -> None:
    counts = np.array([[[50, 50], [5, 5]], [[90, 10], [4, 6]]])  # false alarms 0.5 and 0.1, found 0.5 and 0.6
    assert fairness.equal_odds_gap(counts) == pytest.approx(0.4)
    assert fairness.equal_opportunity_gap(counts) == pytest.approx(0.1)


def test_the_other_class_can_be_the_positive_one() -> None:
    turned = HAND[:, ::-1, ::-1]
    for measure in (fairness.equal_opportunity_gap, fairness.equal_odds_gap, fairness.selection_rates):
        assert measure(turned, positive=0) == pytest.approx(measure(HAND))
    assert fairness.generalized_entropy_index(turned, positive=0) == fairness.generalized_entropy_index(HAND)


def test_differential_fairness_looks_at_the_negative_outcome_too() -> None:
    # Alarmed 90 and 80 of 100: a ratio of 9/8. Not alarmed 10 and 20: a ratio of 2.
    counts = np.array([[[10, 90], [0, 0]], [[20, 80], [0, 0]]])
    assert fairness.differential_fairness(counts, smoothing=0.0) == pytest.approx(math.log(2))


def test_a_decision_that_one_group_never_gets_is_infinite_unless_smoothed() -> None:
    counts = np.array([[[10, 0], [0, 0]], [[5, 5], [0, 0]]])
    assert fairness.differential_fairness(counts, smoothing=0.0) == math.inf
    assert fairness.differential_fairness(counts) == pytest.approx(math.log((6 / 12) / (1 / 12)))


def test_a_decision_that_nobody_gets_tells_nothing() -> None:
    counts = np.array([[[10, 0], [2, 0]], [[5, 0], [9, 0]]])
    assert fairness.differential_fairness(counts, smoothing=0.0) == 0.0
    # Smoothed, the size of a group still shows: 1/14 against 1/16, that is what the prior costs.
    assert fairness.differential_fairness(counts) == pytest.approx(math.log(16 / 14))


def test_fair_is_zero_and_undefined_is_not() -> None:
    alike = np.stack([HAND[0], 3 * HAND[0]])
    assert fairness.equal_odds_gap(alike) == 0
    assert fairness.differential_fairness(alike, smoothing=0.0) == 0
    perfect = np.array([[[7, 0], [0, 3]], [[2, 0], [0, 8]]])
    assert fairness.generalized_entropy_index(perfect) == 0
    no_ill = np.array([[[7, 3], [0, 0]], [[2, 1], [1, 6]]])
    assert np.isnan(fairness.equal_opportunity_gap(no_ill))
    assert np.isnan(fairness.equal_odds_gap(no_ill))
    assert np.isnan(fairness.differential_fairness(HAND[:1]))
    assert np.isnan(fairness.generalized_entropy_index(np.array([[[0, 0], [9, 0]]])))  # nobody benefits
    assert np.isnan(fairness.generalized_entropy_index(np.zeros((1, 2, 2))))


def test_a_group_without_patients_is_left_out() -> None:
    empty = np.concatenate([HAND, np.zeros((1, 2, 2), int)])
    assert fairness.differential_fairness(empty) == fairness.differential_fairness(HAND)
    assert fairness.equal_odds_gap(empty) == fairness.equal_odds_gap(HAND)


@pytest.mark.parametrize("alpha", [2.0, 0.5, 3.0])
def test_the_entropy_index_is_the_sum_over_patients(alpha: float) -> None:
    group, actual, decided = people(400, 3)
    benefit = decided - actual + 1.0
    written = np.sum((benefit / benefit.mean()) ** alpha - 1) / (len(benefit) * alpha * (alpha - 1))
    counts = fairness.count_decisions(group, actual, decided, groups=3)
    assert fairness.generalized_entropy_index(counts, alpha=alpha) == pytest.approx(written)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_entropy_index_has_no_alpha_0_and_1(alpha: float) -> None:
    with pytest.raises(Refusal, match="alpha = 2"):
        fairness.generalized_entropy_index(HAND, alpha=alpha)


def test_resamples_are_computed_as_each_would_be_alone() -> None:
    rng = np.random.default_rng(5)
    stack = rng.integers(0, 6, (40, 3, 2, 2))
    for measure in (
        fairness.differential_fairness,
        fairness.generalized_entropy_index,
        fairness.equal_odds_gap,
        fairness.equal_opportunity_gap,
    ):
        np.testing.assert_array_equal(measure(stack), [measure(one) for one in stack])


def people(rows: int, groups: int, seed: int = 0) -> tuple[Numbers, Numbers, Numbers]:
    """Groups in which both the truth and the decision differ."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, rows)
    actual = (rng.random(rows) < 0.2 + 0.2 * group / groups).astype(int)
    decided = (rng.random(rows) < 0.15 + 0.5 * actual + 0.1 * group / groups).astype(int)
    return group, actual, decided


def scored(actual: Numbers, decided: Numbers, seed: int = 0) -> Scores:
    """Predictions of two sites whose most probable class is the decided one."""
    chance = np.random.default_rng(seed).random(len(actual)) / 2
    positive = np.where(decided == 1, 0.5 + chance + 1e-9, chance)
    return Scores(np.stack([1 - positive, positive], axis=1), actual, np.array([0, len(actual) // 3, len(actual)]))


def block_of(group: Numbers, actual: Numbers, decided: Numbers, **said: Any) -> Any:
    names = np.array([f"g{number}" for number in group])
    return fairness_block(scored(actual, decided), TASK, {"group": names}, **{"resamples": 0, "smallest": 1, **said})


def test_the_block_is_what_fairlearn_says() -> None:
    metrics = pytest.importorskip("fairlearn.metrics", reason="fairlearn is not installed")
    sk = pytest.importorskip("sklearn.metrics")
    group, actual, decided = people(900, 4, seed=2)
    told = block_of(group, actual, decided)["columns"]["group"]
    given = {"y_true": actual, "y_pred": decided, "sensitive_features": group}
    assert told["equal_odds_gap"]["value"] == pytest.approx(metrics.equalized_odds_difference(**given))
    assert told["equal_opportunity_gap"]["value"] == pytest.approx(metrics.equal_opportunity_difference(**given))
    assert told["selection_gap"]["value"] == pytest.approx(metrics.demographic_parity_difference(**given))
    frame = metrics.MetricFrame(
        metrics={
            "accuracy": sk.accuracy_score,
            "precision": sk.precision_score,
            "recall": sk.recall_score,
            "f1": sk.f1_score,
            "selection_rate": metrics.selection_rate,
            "false_positive_rate": metrics.false_positive_rate,
        },
        **given,
    ).by_group
    for number, row in frame.iterrows():
        own = told["groups"][f"g{number}"]
        assert {name: own[name]["value"] for name in row.index} == pytest.approx(dict(row))


def test_the_block_is_the_formulas_written_out_for_single_patients() -> None:
    group, actual, decided = people(600, 3, seed=4)
    told = block_of(group, actual, decided)["columns"]["group"]
    found, alarmed, selected = [], [], []
    for number in range(3):
        mine = [(a, d) for g, a, d in zip(group, actual, decided, strict=True) if g == number]
        found.append(np.mean([d for a, d in mine if a == 1]))
        alarmed.append(np.mean([d for a, d in mine if a == 0]))
        selected.append(np.mean([d for _, d in mine]))
        own = told["groups"][f"g{number}"]
        assert own["rows"] == len(mine)
        assert own["recall"]["value"] == pytest.approx(found[-1])
        assert own["false_positive_rate"]["value"] == pytest.approx(alarmed[-1])
        assert own["selection_rate"]["value"] == pytest.approx(selected[-1])
        assert own["precision"]["value"] == pytest.approx(np.mean([a for a, d in mine if d == 1]))
        pairs = [
            (p, q) for p in rank(group, actual, decided, number, 1) for q in rank(group, actual, decided, number, 0)
        ]
        assert own["roc_auc"]["value"] == pytest.approx(np.mean([(p > q) + 0.5 * (p == q) for p, q in pairs]))
    assert told["equal_opportunity_gap"]["value"] == pytest.approx(max(found) - min(found))
    assert told["equal_odds_gap"]["value"] == pytest.approx(max(max(found) - min(found), max(alarmed) - min(alarmed)))


def rank(group: Numbers, actual: Numbers, decided: Numbers, number: int, truth: int) -> Numbers:
    return scored(actual, decided).predicted[(group == number) & (actual == truth), 1]


def test_columns_are_crossed() -> None:
    crossed = add_crossings({"race": np.array(["b", "w"]), "sex": np.array(["f", "m"])})
    assert {name: values.tolist() for name, values in crossed.items()} == {
        "race": ["b", "w"],
        "sex": ["f", "m"],
        "race and sex": ["b and f", "w and m"],
    }
    assert list(add_crossings({"race": np.array(["b"])})) == ["race"]


def test_small_groups_are_withheld_and_move_nothing() -> None:
    group, actual, decided = people(300, 2, seed=1)
    without = block_of(group, actual, decided, smallest=10, resamples=100)
    # Nine more patients, all ill and all missed: were they counted, the gap would be the whole share found.
    nine = np.ones(9, int)
    more = [np.concatenate(pair) for pair in ((group, 2 * nine), (actual, nine), (decided, 0 * nine))]
    told = block_of(*more, smallest=10, resamples=100)["columns"]["group"]
    assert told["withheld"] == ["g2"]
    assert list(told["groups"]) == ["g0", "g1"]
    before = without["columns"]["group"]
    gaps = [key for key in told if key not in ("groups", "withheld")]
    assert len(gaps) == 5
    for key in gaps:
        assert told[key]["value"] == before[key]["value"]
    ten = [np.concatenate(pair) for pair in ((more[0], [2]), (more[1], [1]), (more[2], [0]))]
    assert block_of(*ten, smallest=10)["columns"]["group"]["equal_opportunity_gap"]["value"] > 0.5


def test_a_rate_among_too_few_is_not_told_and_in_no_gap() -> None:
    group, actual, decided = people(300, 2, seed=1)
    # A group of 50 with three ill, all found.
    fifty, ill = np.full(50, 2), (np.arange(50) < 3).astype(int)
    more = [np.concatenate(pair) for pair in ((group, fifty), (actual, ill), (decided, ill))]
    told = block_of(*more, smallest=10, resamples=50)["columns"]["group"]
    own = told["groups"]["g2"]
    assert own["recall"] == {"value": None, "undefined": "fewer than 10 with 'rich' among 50 test patients"}
    assert {name for name in own if name != "rows" and own[name]["value"] is None} == {
        "recall", "f1", "roc_auc", "precision",
    }  # fmt: skip
    assert own["false_positive_rate"]["value"] == 0
    before = block_of(group, actual, decided, smallest=10)["columns"]["group"]
    assert told["equal_opportunity_gap"]["value"] == before["equal_opportunity_gap"]["value"]
    assert told["equal_opportunity_gap"]["left_out"] == ["g2"]


def test_what_is_undefined_says_why() -> None:
    group, actual, decided = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]), np.array([0, 0, 1, 0])
    told = block_of(group, actual, decided)["columns"]["group"]
    assert "no 'rich' among 2 test patients" in told["groups"]["g0"]["recall"]["undefined"]
    assert "never predicted" in told["groups"]["g0"]["precision"]["undefined"]
    assert told["equal_opportunity_gap"] == {
        "value": None,
        "undefined": "fewer than two groups have such a rate",
        "left_out": ["g0"],
    }
    assert told["differential_fairness_unsmoothed"]["undefined"].startswith("infinite")
    nobody = block_of(group, actual, decided, smallest=5, resamples=20)["columns"]["group"]
    assert (nobody["groups"], nobody["withheld"]) == ({}, ["g0", "g1"])
    assert nobody["equal_odds_gap"] == {"value": None, "undefined": "fewer than two groups are large enough"}
    alone = block_of(0 * group, actual, decided)["columns"]["group"]
    assert alone["differential_fairness"]["undefined"] == "fewer than two groups are large enough"


def test_predictions_that_are_no_numbers_are_told() -> None:
    scores = scored(np.array([0, 1, 0, 1]), np.array([0, 1, 1, 1]))
    scores.predicted[0] = np.nan
    told = fairness_block(scores, TASK, {"g": np.array(["a", "a", "b", "b"])}, smallest=1, resamples=10)
    for figure in (told[INDEX], told["columns"]["g"]["equal_odds_gap"]):
        assert figure == {"value": None, "undefined": "the predictions for 1 patients are not numbers"}


def test_intervals_are_as_wide_as_the_binomial_law_says() -> None:
    # Selection rates 0.5 and 0.3 of 2,000 each: the standard error of their difference is
    # sqrt(0.25/2000 + 0.21/2000) = 0.01517, so 95 % reach 0.0297 to either side.
    group = np.repeat([0, 1], 2000)
    decided = np.concatenate([np.arange(2000) % 10 < 5, np.arange(2000) % 10 < 3]).astype(int)
    actual = (np.arange(4000) % 3 == 0).astype(int)
    gap = block_of(group, actual, decided, resamples=2000)["columns"]["group"]["selection_gap"]
    assert gap["value"] == pytest.approx(0.2)
    assert gap["high"] - gap["low"] == pytest.approx(2 * 1.96 * 0.01517, rel=0.08)
    assert gap["low"] < 0.2 < gap["high"]


def test_more_classes_and_measurements() -> None:
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 3, 90)
    scores = Scores(rng.dirichlet([1, 1, 1], 90), actual, np.array([0, 90]))
    names = np.repeat(["a", "b"], 45)
    told = fairness_block(scores, Task((1,), ("x", "y", "z")), {"g": names}, resamples=0)
    decided = scores.predicted.argmax(axis=1)
    shares = np.array([(np.bincount(decided[names == name], minlength=3) + 1) / 48 for name in ("a", "b")])
    logs = np.abs(np.log(shares[0] / shares[1]))
    assert told["columns"]["g"]["differential_fairness"]["value"] == pytest.approx(logs.max())
    assert INDEX not in told
    assert "equal_odds_gap" not in told["columns"]["g"]
    values = Scores(rng.normal(size=90), rng.normal(size=90), np.array([0, 90]))
    own = fairness_block(values, Task((1,)), {"g": names}, resamples=0)["columns"]["g"]
    assert own["groups"]["b"]["mae"]["value"] == pytest.approx(np.abs(values.predicted - values.actual)[45:].mean())
    assert set(own) == {"groups", "withheld"}
