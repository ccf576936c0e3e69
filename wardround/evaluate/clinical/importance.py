"""What a model looks at: how far each raw column moves its prediction.

A linear model (logistic and linear regression): the standardised coefficient, that is the standard deviation of what
the column adds to the prediction, over training patients; the features that one column became (one-hot levels, a flag
for gaps) count together, and a number keeps its sign. Any other model: permutation (Breiman, "Random Forests", 2001):
the column is shuffled among validation patients, and the loss of quality is told. Columns that carry the same
information share it in the first and hide each other in the second; neither says what causes the outcome.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wardround.core.contracts import Params, Scores, Task
from wardround.evaluate.metrics import measure_sites
from wardround.evaluate.rows import Numbers

SHUFFLES = 3
MOST_CELLS = 20_000_000
"""Numbers in all shuffled copies together: 80 MB."""
MOST_ROWS = 2_000
Groups = Mapping[str, slice]
"""The features that each raw column became."""


def feature_groups(columns: Sequence[str], features: Sequence[str]) -> dict[str, slice]:
    """Which features belong to which column, by their names and their order: NAME, NAME=LEVEL, NAME missing.

    >>> feature_groups(["age", "sex"], ["age", "age missing", "sex=f", "sex=m"])
    {'age': slice(0, 2, None), 'sex': slice(2, 4, None)}
    """
    groups: dict[str, slice] = {}
    at = 0
    while at < len(features):
        fitting = [c for c in columns if c not in groups and belongs(features[at], c)]
        name = max(fitting, key=len, default=features[at])
        end = at + 1
        while end < len(features) and belongs(features[end], name):
            end += 1
        groups[name] = slice(at, end)
        at = end
    return groups


def belongs(feature: str, column: str) -> bool:
    return feature in (column, f"{column} missing") or feature.startswith(f"{column}=")


def linear_weights(params: Params, task: Task, positive: int) -> Numbers | None:
    """Shape (features, outputs) of a model that is one dense layer; None for any other.

    Of two classes the one column that counts: the positive class against the other.
    """
    kernels = {name: np.asarray(array, np.float64) for name, array in params.items() if np.ndim(array) == 2}
    if len(params) != 2 or len(kernels) != 1:
        return None
    kernel = next(iter(kernels.values()))
    if len(task.shape) != 1 or kernel.shape != (task.shape[0], task.outputs):
        return None
    if task.outputs == 2:
        return kernel[:, [positive]] - kernel[:, [1 - positive]]
    return kernel - kernel.mean(axis=1, keepdims=True) if task.outputs > 1 else kernel


def standardised_coefficients(
    weights: Numbers, x: Numbers, groups: Groups, features: Sequence[str]
) -> list[dict[str, Any]]:
    """One figure a column, the largest first; of one output a number has a sign, categories their highest level."""
    x = np.asarray(x, np.float64)
    found = []
    for name, own in groups.items():
        size = float(np.sqrt((x[:, own] @ weights[own]).var(axis=0).mean())) if len(x) else 0.0
        entry: dict[str, Any] = {"column": name, "value": size}
        if weights.shape[1] == 1 and features[own.start] == name:
            entry |= {"value": float(np.copysign(size, weights[own.start, 0])), "directed": True}
        elif weights.shape[1] == 1:
            entry["highest"] = features[own.start + int(np.argmax(weights[own, 0]))].removeprefix(f"{name}=")
        found.append(entry)
    return sorted(found, key=lambda one: -abs(one["value"]))


def shuffled_copies(x: Numbers, groups: Groups, rng: np.random.Generator) -> Numbers:
    """The rows as they are, then for every column and shuffle a copy in which that column's features are shuffled."""
    copies = [x]
    for features in groups.values():
        for _ in range(SHUFFLES):
            one = x.copy()
            one[:, features] = x[rng.permutation(len(x))][:, features]
            copies.append(one)
    return np.concatenate(copies)


def affordable_rows(features: int, columns: int) -> int:
    """Validation patients of which copies fit into the memory set aside."""
    return max(1, min(MOST_ROWS, MOST_CELLS // max(1, features * (1 + SHUFFLES * columns))))


def permutation_importance(
    predict: Callable[[Numbers], Numbers],
    x: Numbers,
    actual: Numbers,
    groups: Groups,
    task: Task,
    metric: str,
    *,
    positive: int = 1,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """By how much the metric gets worse when a column is shuffled, with the range over the shuffles."""
    rng = np.random.default_rng((seed, 0x1A9))
    predicted = np.asarray(predict(shuffled_copies(x, groups, rng)))
    copies = 1 + SHUFFLES * len(groups)
    edges = np.arange(copies + 1) * len(actual)
    measured = measure_sites(
        Scores(predicted, np.tile(actual, copies), edges), task, [metric], positive=positive, part="validation"
    )
    values = measured.values[metric]
    better = 1.0 if measured.metrics[metric].higher_is_better else -1.0
    losses = (better * (values[0] - values[1:])).reshape(len(groups), SHUFFLES)
    found = [
        {"column": name, "value": float(own.mean()), "low": float(own.min()), "high": float(own.max())}
        for name, own in zip(groups, losses, strict=True)
    ]
    return sorted(found, key=lambda one: -float(one["value"])) if np.isfinite(losses).all() else []
