"""The predictions of all sites, checked once and laid out so that every metric is a few sums over sites.

A metric is asked for all sites at once and for many weightings of the rows at once: `weights` has shape
(resamples, rows) and tells how often each patient counts, adding up to the site's number of patients; None means that
each counts once. One formula thus serves the estimate, the bootstrap, four hospitals and ten thousand.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.core.errors import Refusal

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Ladder:
    """Rows of each site in rising order of a score, where rows with the same score share a step.

    Several ladders may stand at a site, one for each model that predicted there: scores of different models are never
    ranked against each other.
    """

    order: Numbers
    steps: Numbers
    """Index (into `order`) of the first row of each step."""
    first_steps: Numbers
    """Index (into `steps`) of the first step of each ladder."""
    step_ladder: Numbers
    """Which ladder a step belongs to."""
    ladder_site: Numbers
    """Which of the sites that have rows a ladder stands at."""
    site_ladders: Numbers
    """The first ladder of each site that has rows."""

    @property
    def step_site(self) -> Numbers:
        """Which of the sites that have rows a step belongs to."""
        return np.asarray(self.ladder_site[self.step_ladder])


@dataclass(frozen=True)
class Rows:
    """Scores made ready: numbers in double precision, and what a reason for an undefined metric needs to know."""

    predicted: Numbers
    actual: Numbers
    first: Numbers
    task: Task
    positive: int = 1
    part: str = "test"
    fold: Numbers | None = None
    """Which model predicted each row, where patients were predicted by several, none of which had seen them."""
    times: Numbers | None = None
    """Of survival: how long each patient was followed up, where it is known exactly."""

    @cached_property
    def remembered(self) -> dict[Any, Any]:
        """What a metric works out once for all resamples."""
        return {}

    @cached_property
    def follow_up(self) -> tuple[Numbers, Numbers]:
        """Of survival: time and event up to the last horizon.

        Where exact times are not at hand, an event stands in the middle of its interval and a censoring at its
        beginning.
        """
        horizons, labels = self.task.horizons, self.actual
        ends, classes = np.asarray(horizons, np.float64), len(horizons) + 1
        event = (labels < classes - 1).astype(np.float64)
        if self.times is None:
            place, begin = np.where(labels >= classes, labels - classes, labels), np.concatenate([[0.0], ends])
            middle = np.append((begin[1:] + begin[:-1]) / 2, 0.0)[place]
            return np.where(event > 0, middle, begin[place]), event
        # Beyond the last horizon nobody has the event, and whoever was there was seen to be free of it.
        return np.where(labels == classes - 1, np.maximum(self.times, ends[-1]), self.times), event

    @cached_property
    def counts(self) -> Numbers:
        return np.diff(self.first)

    @cached_property
    def nonempty_sites(self) -> Numbers:
        """Indices of the sites that have rows."""
        return np.flatnonzero(self.counts > 0)

    @cached_property
    def site(self) -> Numbers:
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def nonfinite_counts(self) -> Numbers:
        """Predictions of each site that are not finite numbers."""
        strange = ~np.isfinite(self.predicted)
        bad = np.flatnonzero(strange if strange.ndim == 1 else strange.any(axis=1))
        return np.bincount(self.site[bad], minlength=len(self.counts))

    @cached_property
    def probabilities(self) -> Numbers:
        """Predictions with what is not a number set to 0: its site is undefined anyway, and others must not suffer."""
        return np.where(np.isfinite(self.predicted), self.predicted, 0.0)

    @cached_property
    def scored_classes(self) -> tuple[int, ...]:
        """The classes that recall and its kin look at: the positive one of two, or each against the rest."""
        classes = len(self.task.classes)
        return (self.positive,) if self.task.binary else tuple(range(classes))

    @cached_property
    def truth(self) -> Numbers:
        """Shape (rows, classes): 1 at the class that a patient has."""
        return np.asarray(self.actual[:, None] == np.arange(len(self.task.classes)), np.float64)

    @cached_property
    def predicted_classes(self) -> Numbers:
        """Shape (rows, classes): 1 at the most probable class, the first of them in a tie."""
        best = self.probabilities.argmax(axis=1) if len(self.actual) else self.actual
        return np.asarray(best[:, None] == np.arange(len(self.task.classes)), np.float64)

    @cached_property
    def ladders(self) -> dict[int, Ladder]:
        return {index: self.ladder(self.probabilities[:, index]) for index in self.scored_classes}

    @cached_property
    def fold_ladders(self) -> dict[int, Ladder]:
        """The same with a ladder for each model that predicted at a site."""
        if self.fold is None:
            return self.ladders
        return {index: self.ladder(self.probabilities[:, index], self.fold) for index in self.scored_classes}

    def ladder(self, score: Numbers, fold: Numbers | None = None) -> Ladder:
        fold = np.zeros(len(score), np.int64) if fold is None else fold
        order = np.lexsort((score, fold, self.site))
        ranked, owner, model = score[order], self.site[order], fold[order]
        new = np.ones((2, len(order)), bool)
        new[1, 1:] = (owner[1:] != owner[:-1]) | (model[1:] != model[:-1])
        new[0, 1:] = (ranked[1:] != ranked[:-1]) | new[1, 1:]
        steps, ladders = (np.flatnonzero(one) for one in new)
        sites = np.searchsorted(self.nonempty_sites, owner[ladders])
        return Ladder(
            order,
            steps,
            np.searchsorted(steps, ladders),
            np.searchsorted(ladders, steps, side="right") - 1,
            sites,
            np.searchsorted(sites, np.arange(len(self.nonempty_sites))),
        )

    def spread(self, of_filled: Numbers) -> Numbers:
        """Sums of the sites that have rows, shape (resamples, filled), as sums of all sites: 0 for empty ones."""
        result = np.zeros((len(of_filled), len(self.counts), *of_filled.shape[2:]))
        result[:, self.nonempty_sites] = of_filled
        return result

    def sums(self, weights: Numbers | None, columns: Numbers) -> Numbers:
        """Shape (resamples, sites, columns): the weighted sum of each column over the rows of each site."""
        starts = self.first[self.nonempty_sites]
        if weights is None:
            # reduceat would give an empty site the row of its neighbour, hence only sites that have rows.
            return self.spread(np.add.reduceat(columns, starts, axis=0)[None] if len(starts) else columns[None])
        result = np.zeros((len(weights), len(self.counts), columns.shape[1]))
        for index, start in zip(self.nonempty_sites, starts, strict=True):
            stop = self.first[index + 1]
            result[:, index] = weights[:, start:stop] @ columns[start:stop]
        return result

    def patients(self, site: int) -> str:
        """In words: "12 test patients"."""
        count = int(self.counts[site])
        return f"{count or 'no'} {self.part} patient{'' if count == 1 else 's'}"


def rows_of(scores: Scores, task: Task, *, positive: int = 1, part: str = "test", fold: Numbers | None = None) -> Rows:
    """Check the scores against the task; `positive` is the class that is looked for where there are two.

    `fold` tells which model predicted each row, where several did.
    """
    predicted, actual = np.asarray(scores.predicted, np.float64), np.asarray(scores.actual)
    first = np.asarray(scores.first, np.int64)
    columns = {"regression": (), "segmentation": (3,)}.get(task.kind, (len(task.classes),))
    shape, truth = (len(actual), *columns), (len(actual), *([2] if task.segmentation else []))
    if predicted.shape != shape or actual.shape != truth:
        raise ValueError(f"predictions of shape {predicted.shape} for a task that asks for {shape}")
    if len(first) < 1 or first[0] != 0 or first[-1] != len(actual) or (np.diff(first) < 0).any():
        raise ValueError("the sites' first rows must rise from 0 to the number of rows")
    if task.classes:
        if not 0 <= positive < len(task.classes) and task.binary:
            raise Refusal(
                f"the positive class has index {positive}, but there are two classes",
                where=f"target {task.target}",
                remedy=f"say 0 for {task.classes[0]!r} or 1 for {task.classes[1]!r}",
            )
        strange = (actual < 0) | (actual >= len(task.classes) + len(task.horizons)) | (actual != np.floor(actual))
        if strange.any():
            raise Refusal(
                f"{int(strange.sum())} rows have a class that the task does not know",
                where=f"target {task.target}, first at row {int(np.argmax(strange))} of the {part} rows",
                remedy=f"use the classes {', '.join(task.classes)}",
            )
        actual = actual.astype(np.int64)
    else:
        actual = actual.astype(np.float64)
    times = None if scores.times is None else np.asarray(scores.times, np.float64)
    return Rows(predicted, actual, first, task, positive, part, fold, times)
