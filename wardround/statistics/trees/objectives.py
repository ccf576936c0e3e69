"""What trees are fitted to: the slope and the curvature of the loss at each patient, from the score so far.

Scores have the shape (groups, rows): one group for two classes, a number or a hazard, one a class where there are more.
Friedman, "Greedy function approximation: a gradient boosting machine", 2001; second order as in Chen and Guestrin,
"XGBoost", KDD 2016.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]


class Slopes(NamedTuple):
    """First and second derivatives of every row's loss by its scores, (groups, rows) each, in single precision."""

    gradients: Numbers
    hessians: Numbers


class Objective(NamedTuple):
    """What a score means, and how far it is from right."""

    name: str
    groups: int
    summarise: Callable[[Numbers], Numbers]
    """What the first score follows from, as a sum over rows."""
    first_score: Callable[[Numbers], Numbers]
    """From that sum to the score that everybody begins with, one a group."""
    slopes: Callable[[Numbers, Numbers], Slopes]
    loss: Callable[[Numbers, Numbers], Numbers]
    """Of every row."""
    outcome: Callable[[Numbers], Numbers]
    """From scores (groups, rows) to probabilities (rows, classes) or values (rows,)."""
    steepest: float | None
    """The largest second derivative a row can have; so a sum of them tells how many rows there are at least.

    None: nothing bounds it, so rows are counted beside their slopes.
    """
    reach: float | None = None
    """Squared length of a row's gradients together with its hessians over `steepest`; none where nothing bounds it."""
    constant: bool = False
    """The second derivative is 1 whatever the score."""

    @property
    def counted(self) -> bool:
        return self.steepest is None


def logistic() -> Objective:
    """Two classes; labels are 0 and 1."""

    def slopes(score: Numbers, y: Numbers) -> Slopes:
        p = sigmoid(score)
        return Slopes(p - y[None], p * (1 - p))

    def loss(score: Numbers, y: Numbers) -> Numbers:
        return np.asarray(np.logaddexp(0.0, np.where(y > 0, -score[0], score[0]).astype(np.float64)))

    def first_score(counts: Numbers) -> Numbers:
        # Half a patient more in either class: a score stays finite under noise, too.
        none, some = np.maximum(counts, 0.0) + 0.5
        return np.array([np.log(some / none)])

    return Objective(
        "logistic", 1, lambda y: np.bincount(y.astype(int), minlength=2).astype(np.float64), first_score, slopes, loss,
        lambda score: np.stack([1 - sigmoid(score[0]), sigmoid(score[0])], axis=1), 0.25, 2.0,
    )  # fmt: skip


def softmax(classes: int) -> Objective:
    """Several classes; labels are their places, and each has trees of its own."""

    def chances(score: Numbers) -> Numbers:
        away = np.exp(score - score.max(axis=0))
        return np.asarray(away / away.sum(axis=0))

    def slopes(score: Numbers, y: Numbers) -> Slopes:
        p = chances(score)
        return Slopes(p - (y[None] == np.arange(classes)[:, None]), p * (1 - p))

    def loss(score: Numbers, y: Numbers) -> Numbers:
        high = score.max(axis=0)
        whole = high + np.log(np.exp(score - high).sum(axis=0))
        return np.asarray(whole - score[y.astype(int), np.arange(len(y))], np.float64)

    return Objective(
        "softmax", classes, lambda y: np.bincount(y.astype(int), minlength=classes).astype(np.float64),
        lambda counts: np.log((np.maximum(counts, 0.0) + 0.5) / (np.maximum(counts, 0.0) + 0.5).sum()), slopes, loss,
        # Squares of p - label and of 4 p (1 - p) add up to 3.71 at most (a wrong class at 0, three others alike).
        lambda score: chances(score).T, 0.25, 4.0,
    )  # fmt: skip


def squared() -> Objective:
    """A number, by half the squared error."""

    def slopes(score: Numbers, y: Numbers) -> Slopes:
        return Slopes(score - y[None], np.ones_like(score))

    return Objective(
        "squared", 1, lambda y: np.array([len(y), y.sum()], np.float64),
        lambda told: np.array([told[1] / max(told[0], 1.0)]), slopes,
        lambda score, y: (score[0].astype(np.float64) - y) ** 2 / 2, lambda score: score[0], 1.0, constant=True,
    )  # fmt: skip


def sigmoid(score: Numbers) -> Numbers:
    # Beyond 30 single precision knows nothing but 0 and 1, and exp would say that it overflows.
    return np.asarray(1 / (1 + np.exp(-np.clip(score, -30, 30))))
