"""How well a model does, told under noise: a look at validation patients, and the figures on test patients.

A look is the sum of the patients' losses, each cut to a bound, and how many are predicted rightly. The figures follow
from one table under noise: patients by predicted risk and outcome (two classes), by predicted and true class (more
classes), or sums of errors within the declared range of the outcome (a regression). From the table, which is all that
depends on patients, the usual figures are computed, with intervals for both the patients' chance and the noise. What
does not follow from it is not told.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Report, Scores, Task
from wardround.core.overlap import dice_of, union_share_of
from wardround.core.quality import Quality, has_classes, quality_of, row_figures
from wardround.data.survival.intervals import label_numbers
from wardround.evaluate.metrics import measure_sites
from wardround.evaluate.rows import rows_of
from wardround.evaluate.survival.measures import risk_score
from wardround.privacy.noised_sums import gaussian_numbers, noise_key, with_gaussian_noise
from wardround.study.file import Study
from wardround.study.release_noise import release_noise

Numbers = np.ndarray[Any, Any]
MOST_BINS = 20
RESAMPLES = 200
LEVEL = 0.95
Z = 1.959963984540054
NOT_TOLD = "not told under [privacy]"
TOO_NOISY = "too few patients for the noise that [privacy] needs"
FROM_CLASSES = ("accuracy", "balanced_accuracy", "precision", "recall", "f1")
"""Figures that follow from predicted and true classes alone."""
TIME_CELLS = 12
"""Cells of time in a table of survival, at least: in fewer the pairs that are hard to order would not be compared."""
FROM_RISKS = ("c_index",)
"""Figures of survival that follow from risks in bins and intervals of time."""
Ends = tuple[float, float]


class Look(NamedTuple):
    """Of so many patients: the sum of their losses and how many were right, as they may be told."""

    loss: float
    right: int


def loss_bound(task: Task, ends: Ends | None) -> float | None:
    """To what a patient's loss is cut: twice what guessing costs, or the squared range; none where it is not known."""
    if task.regression:
        return None if ends is None else (ends[1] - ends[0]) ** 2
    return 2 * math.log(max(2, len(task.classes)))


def noised_look(
    predicted: Numbers, actual: Numbers, bound: float, noise: float, key: bytes, *, survival: bool = False
) -> Look:
    """A patient moves loss / bound and the right ones by 1 each at most, both together by sqrt(2).

    Of a regression, and of survival, nobody is right or wrong.
    """
    losses, right = row_figures(predicted, actual)
    cut = np.minimum(np.nan_to_num(losses, nan=bound, posinf=bound), bound) / bound
    classes = has_classes(predicted, actual) and not survival
    sums = np.array([cut.sum(), float(right.sum())] if classes else [cut.sum()])
    noised = np.clip(with_gaussian_noise(sums, noise * math.sqrt(len(sums)), key), 0.0, len(actual))
    return Look(float(noised[0] * bound), round(float(noised[1])) if classes else 0)


def simulated_look(study: Study, task: Task, seed: int) -> Callable[[Scores, Sequence[str]], Quality] | None:
    """How simulated sites of a private study tell of predictions: as real ones do, with noise from the seed.

    The same predictions have the same noise, so that a run that is resumed goes on as it would have. None where the
    study is not private, or real sites would tell nothing.
    """
    noise = release_noise(study).looks
    bound = None if study.privacy is None else loss_bound(task, study.privacy.outcome)
    if noise is None or bound is None:
        return None
    z, most = noise, bound

    def look(scores: Scores, names: Sequence[str]) -> Quality:
        told = {}
        for place, name in enumerate(names):
            rows = slice(int(scores.first[place]), int(scores.first[place + 1]))
            predicted, actual = scores.predicted[rows], scores.actual[rows]
            what = hashlib.sha256(np.ascontiguousarray(predicted).tobytes()).hexdigest()
            one = noised_look(predicted, actual, most, z, noise_key(seed, "look", name, what), survival=task.survival)
            told[name] = (one.loss, len(actual), one.right)
        return quality_of(told, classes=task.classification)

    return look


# ---- the final figures ----


def noised_figures(
    scores: Scores,
    task: Task,
    site: str,
    *,
    metrics: Sequence[str],
    positive: int,
    noise: float,
    key: bytes,
    ends: Ends | None = None,
    resamples: int = RESAMPLES,
) -> Report:
    """The figures of one site (as of `result_block`) from one table under noise."""
    rows = len(scores.actual)
    if task.regression:
        figures = regression_figures(scores, metrics, noise, key, ends)
    elif task.segmentation:
        figures = overlap_figures(scores, metrics, noise, key)
    else:
        figures = class_figures(scores, task, metrics, positive, noise, key, min(resamples, RESAMPLES))
    block: Report = {"sites": {site: figures}, "rows": {site: rows}}
    if resamples and task.classes:
        block["intervals"] = {"level": LEVEL, "resamples": min(resamples, RESAMPLES), "drawn_again": "patients"}
    return block


def class_figures(
    scores: Scores, task: Task, metrics: Sequence[str], positive: int, noise: float, key: bytes, resamples: int
) -> dict[str, Any]:
    rows, two = len(scores.actual), task.binary or task.survival
    outcomes = 2 if task.binary else 2 * len(time_cells(task)) - 1 if task.survival else 0
    bins = risk_bins(rows, noise) if two else 0
    cells = outcomes * bins if two else len(task.classes) ** 2
    if not cells or noise * math.sqrt(cells) > rows / 2:
        return {name: {"value": None, "undefined": TOO_NOISY} for name in metrics}
    if task.survival:
        exact = survival_table(scores, task, bins)
    else:
        exact = risk_table(scores, positive, bins) if two else class_table(scores, len(task.classes))
    table = with_gaussian_noise(exact, noise, key)
    follows = [name for name in metrics if task.binary or name in (FROM_RISKS if task.survival else FROM_CLASSES)]

    def values(table: Numbers) -> dict[str, float | None]:
        if task.survival:
            made = from_survival(table, task)
        else:
            made = from_risks(table, positive) if two else from_classes(table)
        measured = measure_sites(made, task, follows, positive=positive)
        return {name: measured.measure(name, 0).value for name in follows}

    found = values(table)
    # What follows is computed from the noised table alone, so it costs nothing.
    reach = intervals(table, rows, noise, resamples, values)
    return {
        name: {"value": None, "undefined": NOT_TOLD}
        if name not in found
        else {"value": None, "undefined": TOO_NOISY}
        if found[name] is None
        else {"value": found[name], **reach.get(name, {"low": None, "high": None})}
        for name in metrics
    }


def risk_bins(rows: int, noise: float) -> int:
    """Cells of the predicted risk, an even number, so few that the noise of all of them stays below the patients."""
    fit = int((rows / (4 * noise)) ** 2 / 2) if noise > 0 else MOST_BINS
    return max(2, min(MOST_BINS, fit) // 2 * 2)


def risk_table(scores: Scores, positive: int, bins: int) -> Numbers:
    """Patients by outcome (other, positive) and predicted risk."""
    risk = np.nan_to_num(np.asarray(scores.predicted[:, positive], np.float64), nan=0.0)
    place = np.clip((np.clip(risk, 0.0, 1.0) * bins).astype(int), 0, bins - 1)
    actual = (scores.actual == positive).astype(int)
    return np.bincount(actual * bins + place, minlength=2 * bins).reshape(2, bins).astype(np.float64)


def class_table(scores: Scores, classes: int) -> Numbers:
    """Patients by true and predicted class."""
    guess = scores.predicted.argmax(axis=1)
    return np.bincount(scores.actual * classes + guess, minlength=classes**2).reshape(classes, classes).astype(float)


def time_cells(task: Task) -> Numbers:
    """Edges of the cells of time up to the last horizon: every interval in equal parts, `TIME_CELLS` in all or more."""
    ends = np.concatenate([[0.0], np.asarray(task.horizons, np.float64)])
    parts = math.ceil(TIME_CELLS / len(task.horizons))
    return np.concatenate([[0.0], *(np.linspace(low, high, parts + 1)[1:] for low, high in pairwise(ends))])


def survival_table(scores: Scores, task: Task, bins: int) -> Numbers:
    """Patients by predicted risk, averaged over the horizons, and by time: of events, of censorings, beyond."""
    risk = np.nan_to_num(np.asarray(risk_score(scores.predicted), np.float64), nan=0.0) / len(task.horizons)
    place = np.clip((np.clip(risk, 0.0, 1.0) * bins).astype(int), 0, bins - 1)
    time, event = rows_of(scores, task).follow_up
    edges = time_cells(task)
    cells = len(edges) - 1
    struck = np.clip(np.searchsorted(edges, time, side="left") - 1, 0, cells - 1)
    lost = np.minimum(np.searchsorted(edges, time, side="right") - 1, cells)  # the last: seen to the last horizon
    line = np.where(event > 0, struck, cells + lost)
    return np.bincount(line * bins + place, minlength=(2 * cells + 1) * bins).reshape(-1, bins).astype(np.float64)


def from_survival(table: Numbers, task: Task) -> Scores:
    """Patients as the table tells them: with the middle risk of their cell, the same by every horizon.

    An event stands in the middle of its cell of time, and a censoring at its beginning.
    """
    counts, bins, edges = counts_of(table), table.shape[1], time_cells(task)
    risk = np.repeat(np.tile((np.arange(bins) + 0.5) / bins, len(table)), counts.reshape(-1))
    times = np.concatenate([(edges[1:] + edges[:-1]) / 2, edges])
    event = np.arange(len(table)) < len(edges) - 1
    line = np.repeat(np.arange(len(table)), counts.sum(axis=1))
    labels = label_numbers(times[line], event[line].astype(np.float64), task.horizons)
    predicted = np.zeros((len(risk), len(task.classes)))
    predicted[:, 0], predicted[:, -1] = risk, 1 - risk
    return Scores(predicted, labels, np.array([0, len(labels)]), times[line])


def counts_of(table: Numbers) -> Numbers:
    return np.maximum(np.round(table), 0).astype(np.int64)


def from_risks(table: Numbers, positive: int) -> Scores:
    """Patients as the table tells them: each with the middle risk of its cell."""
    bins = table.shape[1]
    counts = counts_of(table)
    risk = np.repeat(np.tile((np.arange(bins) + 0.5) / bins, 2), counts.reshape(-1))
    actual = np.repeat([1 - positive, positive], counts.sum(axis=1))
    predicted = np.empty((len(risk), 2))
    predicted[:, positive], predicted[:, 1 - positive] = risk, 1 - risk
    return Scores(predicted, actual, np.array([0, len(actual)]))


def from_classes(table: Numbers) -> Scores:
    counts = counts_of(table)
    actual, guess = (np.repeat(one.reshape(-1), counts.reshape(-1)) for one in np.indices(table.shape))
    return Scores(np.eye(len(table))[guess], actual, np.array([0, len(actual)]))


def intervals(table: Numbers, rows: int, noise: float, resamples: int, values: Any) -> dict[str, dict[str, float]]:
    """Between which values each figure lies if patients and noise are drawn anew from what the table tells."""
    shares = np.maximum(table, 0.0).reshape(-1)
    if not resamples or not shares.sum() > 0:
        return {}
    generator = np.random.default_rng(rows)
    drawn = generator.multinomial(rows, shares / shares.sum(), size=resamples)
    again = drawn + noise * gaussian_numbers(drawn.size, noise_key(rows, "intervals")).reshape(drawn.shape)
    found = [values(one.reshape(table.shape)) for one in again]
    reach = {}
    for name in found[0]:
        told = [one[name] for one in found if one[name] is not None]
        if len(told) > resamples / 2:
            low, high = np.quantile(told, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            reach[name] = {"low": float(low), "high": float(high)}
    return reach


def regression_figures(
    scores: Scores, metrics: Sequence[str], noise: float, key: bytes, ends: Ends | None
) -> dict[str, Any]:
    """From four sums over patients, each between 0 and 1: a patient moves them by 2 at most."""
    rows = len(scores.actual)
    if ends is None:
        return {
            name: {"value": None, "undefined": f"{NOT_TOLD}: the range of the outcome is not declared"}
            for name in metrics
        }
    if 2 * noise > rows / 2:
        return {name: {"value": None, "undefined": TOO_NOISY} for name in metrics}
    width = ends[1] - ends[0]
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.abs(np.nan_to_num((scores.predicted - scores.actual) / width, nan=1.0, posinf=1.0, neginf=1.0))
    errors = np.minimum(errors.astype(np.float64), 1.0)
    place = np.clip((scores.actual.astype(np.float64) - ends[0]) / width, 0.0, 1.0)
    sums = np.array([np.square(errors).sum(), errors.sum(), place.sum(), np.square(place).sum()])
    square, plain, level, levels = np.clip(with_gaussian_noise(sums, 2 * noise, key) / rows, 0.0, 1.0)
    reach: Mapping[str, Any] = {
        "rmse": [width * math.sqrt(one) for one in around(square, rows, noise)],
        "mae": [width * one for one in around(plain, rows, noise)],
    }
    spread = levels - level**2
    figures = {
        "rmse": width * math.sqrt(square),
        "mae": width * plain,
        "r2": float(1 - square / spread) if spread > 2 * noise / rows else None,
    }
    return {
        name: {"value": None, "undefined": TOO_NOISY if name in figures else NOT_TOLD}
        if figures.get(name) is None
        else {
            "value": float(figures[name] or 0.0),
            **({"low": reach[name][0], "high": reach[name][1]} if name in reach else {"no_interval": NOT_TOLD}),
        }
        for name in metrics
    }


def overlap_figures(scores: Scores, metrics: Sequence[str], noise: float, key: bytes) -> dict[str, Any]:
    """From two sums over images, each between 0 and 1: an image moves them by sqrt(2) at most."""
    rows = len(scores.actual)
    if math.sqrt(2) * noise > rows / 2:
        return {name: {"value": None, "undefined": TOO_NOISY} for name in metrics}
    sound = np.isfinite(scores.predicted).all(axis=1)
    shares = [np.where(sound, of(scores.predicted, scores.actual), 0.0) for of in (dice_of, union_share_of)]
    sums = with_gaussian_noise(np.array([one.sum() for one in shares]), math.sqrt(2) * noise, key)
    found = dict(zip(("dice", "iou"), np.clip(sums / rows, 0.0, 1.0).tolist(), strict=True))
    return {
        name: {"value": found[name], **dict(zip(("low", "high"), around(found[name], rows, noise), strict=True))}
        if name in found
        else {"value": None, "undefined": NOT_TOLD}
        for name in metrics
    }


def around(mean: float, rows: int, noise: float) -> tuple[float, float]:
    """An interval for a mean of numbers between 0 and 1, whose variance is mean * (1 - mean) at most, under noise."""
    error = Z * math.sqrt(mean * (1 - mean) / rows + (2 * noise / rows) ** 2)
    return max(0.0, mean - error), min(1.0, mean + error)
