"""What a model looks at: coefficients by hand, and shuffling finds the column that counts."""

import numpy as np
import pytest

from wardround.core.contracts import Task
from wardround.evaluate.clinical.importance import (
    affordable_rows,
    feature_groups,
    linear_weights,
    permutation_importance,
    shuffled_copies,
    standardised_coefficients,
)

FEATURES = ["age", "age missing", "sex=f", "sex=m", "lactate"]
GROUPS = {"age": slice(0, 2), "sex": slice(2, 4), "lactate": slice(4, 5)}


def test_features_belong_to_the_column_they_came_from() -> None:
    assert feature_groups(["age", "sex", "lactate"], FEATURES) == GROUPS
    # A column whose own name looks like a level of another.
    assert feature_groups(["a", "a=b"], ["a=x", "a=y", "a=b"]) == {"a": slice(0, 3)}
    assert feature_groups(["a=b", "a"], ["a=b", "a"]) == {"a=b": slice(0, 1), "a": slice(1, 2)}
    assert feature_groups([], ["u", "v"]) == {"u": slice(0, 1), "v": slice(1, 2)}


def test_coefficients_by_hand() -> None:
    # age -2 with standard deviation 1; lactate 0.5 with 2; sex adds 1 or -1 with shares 1/2, so 1.
    x = np.array([[1, 0, 1, 0, 2.0], [-1, 0, 0, 1, 2.0], [1, 0, 1, 0, -2.0], [-1, 0, 0, 1, -2.0]])
    weights = np.array([[-2.0], [9.0], [-1.0], [1.0], [0.5]])
    told = standardised_coefficients(weights, x, GROUPS, FEATURES)
    assert told == [
        {"column": "age", "value": pytest.approx(-2), "directed": True},
        {"column": "sex", "value": pytest.approx(1), "highest": "m"},
        {"column": "lactate", "value": pytest.approx(1), "directed": True},
    ]


def test_weights_of_one_dense_layer_and_of_nothing_else() -> None:
    kernel, bias = np.array([[1.0, 3.0], [2.0, -1.0]]), np.zeros(2)
    two = Task((2,), ("well", "ill"))
    params = {"dense_0/kernel": kernel, "dense_0/bias": bias}
    found = linear_weights(params, two, 1)
    assert found is not None
    assert found.tolist() == [[2.0], [-3.0]]
    other = linear_weights(params, two, 0)
    assert other is not None
    assert other.tolist() == [[-2.0], [3.0]]
    number = linear_weights({"dense_0/kernel": kernel[:, :1], "dense_0/bias": bias[:1]}, Task((2,)), 1)
    assert number is not None
    assert number.tolist() == [[1.0], [2.0]]
    assert linear_weights({**params, "dense_1/kernel": kernel, "dense_1/bias": bias}, two, 1) is None
    assert linear_weights(params, Task((3,), ("a", "b")), 1) is None


def test_only_the_shuffled_column_moves() -> None:
    x = np.arange(20.0).reshape(4, 5)
    copies = shuffled_copies(x, GROUPS, np.random.default_rng(0)).reshape(-1, 4, 5)
    assert len(copies) == 1 + 3 * 3
    assert (copies[0] == x).all()
    for place, (name, own) in enumerate(GROUPS.items()):
        for copy in copies[1 + 3 * place : 4 + 3 * place]:
            rest = [i for i in range(5) if not own.start <= i < own.stop]
            assert (copy[:, rest] == x[:, rest]).all(), name
            assert sorted(copy[:, own].tolist()) == x[:, own].tolist(), "features of one column stay together"


def test_a_column_that_is_the_outcome_counts_and_noise_does_not() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(500, 2))
    actual = (x[:, 0] > 0).astype(int)

    def predict(rows: np.ndarray) -> np.ndarray:
        risk = (rows[:, 0] > 0).astype(float)
        return np.stack([1 - risk, risk], axis=1)

    groups = {"noise": slice(1, 2), "cause": slice(0, 1)}
    task = Task((2,), ("well", "ill"))
    told = permutation_importance(predict, x, actual, groups, task, "roc_auc")
    assert [one["column"] for one in told] == ["cause", "noise"]
    assert told[0]["value"] == pytest.approx(0.5, abs=0.05), "from perfect to guessing"
    assert told[1] == {"column": "noise", "value": 0.0, "low": 0.0, "high": 0.0}
    # An error rises when a column that counts is shuffled: that, too, is a loss.
    worse = permutation_importance(predict, x, actual, groups, task, "brier")
    assert worse[0]["value"] == pytest.approx(0.5, abs=0.05)
    one_class = permutation_importance(predict, x, np.ones(500, int), groups, task, "roc_auc")
    assert one_class == [], "nothing is told where the measure is not defined"


def test_copies_fit_into_memory() -> None:
    assert affordable_rows(10, 5) == 2000
    assert affordable_rows(10_000, 10_000) == 1
    assert affordable_rows(1000, 100) * 1000 * 301 <= 20_000_000
