"""Predictions of every patient by a model that had not seen it: the folds of a cross-validation put together.

Repeats whose test patients are all different make up a pass. In a whole pass every patient is predicted once; further
passes predict the same patients again, by other models.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wardround.core.contracts import Scores
from wardround.evaluate.rows import Numbers


class Predicted(NamedTuple):
    """The test patients of one repeat: what was predicted, and the number of each patient at its site."""

    scores: Scores
    patients: Numbers

    @property
    def site(self) -> Numbers:
        counts = np.diff(self.scores.first)
        return np.repeat(np.arange(len(counts)), counts)

    @property
    def keys(self) -> set[tuple[int, int]]:
        return set(zip(self.site.tolist(), np.asarray(self.patients).tolist(), strict=True))


class OutOfFold(NamedTuple):
    """The patients of one pass, site by site in the order of their numbers, and in which fold each was predicted."""

    scores: Scores
    patients: Numbers
    fold: Numbers
    """The number of the repeat."""


def passes_of(repeats: Sequence[Predicted]) -> list[list[int]]:
    """Which repeats make up each pass: one more as long as it tests nobody twice.

    >>> scores = Scores(np.zeros(2), np.zeros(2), np.array([0, 2]))
    >>> passes_of([Predicted(scores, np.array(patients)) for patients in ([0, 1], [2, 3], [2, 3])])
    [[0, 1], [2]]
    """
    passes: list[list[int]] = []
    seen: set[tuple[int, int]] = set()
    for number, repeat in enumerate(repeats):
        keys = repeat.keys
        if not passes or seen & keys:
            passes.append([])
            seen = set()
        passes[-1].append(number)
        seen |= keys
    return passes


def join_folds(repeats: Sequence[Predicted], numbers: Sequence[int] | None = None) -> OutOfFold:
    """The repeats of one pass as one; all must have the same sites."""
    numbers = range(len(repeats)) if numbers is None else numbers
    site = np.concatenate([one.site for one in repeats])
    patients = np.concatenate([np.asarray(one.patients, np.int64) for one in repeats])
    fold = np.repeat(np.asarray(numbers, np.int64), [len(one.patients) for one in repeats])
    order = np.lexsort((patients, site))
    counts = np.bincount(site, minlength=len(repeats[0].scores.first) - 1)
    scores = Scores(
        np.concatenate([np.asarray(one.scores.predicted) for one in repeats])[order],
        np.concatenate([np.asarray(one.scores.actual) for one in repeats])[order],
        np.concatenate([[0], np.cumsum(counts)]),
        None if repeats[0].scores.times is None else np.concatenate([one.scores.times for one in repeats])[order],
    )
    return OutOfFold(scores, patients[order], fold[order])


def out_of_fold(repeats: Sequence[Predicted]) -> list[OutOfFold]:
    """Every pass with its folds put together."""
    return [join_folds([repeats[number] for number in one], one) for one in passes_of(repeats)]
