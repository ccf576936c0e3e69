"""How much each patient moves a metric: what a standard error needs, in closed form for all metrics but two.

The sum of squared contributions is the variance of the metric (infinitesimal jackknife; for the ROC area DeLong's
variance). Patients of a stratum (a site, for the ROC area also a class) are drawn independently of each other; the
usual n / (n - 1) is applied within each. Metrics of two methods on the same patients differ by the difference of their
contributions, so a paired comparison needs no resampling, and its p-values can be as small as the evidence is strong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wardround.core.overlap import LOSS, dice_of, union_share_of
from wardround.core.quality import row_losses
from wardround.evaluate.ranking import placements
from wardround.evaluate.rows import Numbers, Rows


class Contributions(NamedTuple):
    """Of every row to the metric of its site; `stratum` numbers the strata."""

    values: Numbers
    stratum: Numbers


def contributions(rows: Rows, metric: str) -> Contributions | None:
    """None for a metric that has no closed form here; not a number where the metric of the site has no value."""
    if metric not in CLOSED:
        return None
    if metric == "roc_auc":
        return _areas(rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Contributions(CLOSED[metric](rows), rows.site)


def _of_mean(rows: Rows, values: Numbers) -> Numbers:
    """Of the mean of `values` over the site."""
    return (values - _site_sum(rows, values)[rows.site] / rows.counts[rows.site]) / rows.counts[rows.site]


def _site_sum(rows: Rows, values: Numbers) -> Numbers:
    return np.bincount(rows.site, weights=values, minlength=len(rows.counts))


def _of_ratio(rows: Rows, above: Numbers, below: Numbers) -> Numbers:
    """Of the sum of `above` over the sum of `below`."""
    total = _site_sum(rows, below)
    share = _site_sum(rows, above) / total
    return np.asarray((above - share[rows.site] * below) / total[rows.site])


def _macro(rows: Rows, classes: Sequence[int], of_class: Callable[[int], Numbers]) -> Numbers:
    """The mean over the classes that occur at the site."""
    occurs = np.stack([_site_sum(rows, rows.truth[:, index]) > 0 for index in classes])
    there = occurs[:, rows.site]
    parts = np.stack([of_class(index) for index in classes])
    return np.asarray(np.where(there, parts, 0.0).sum(axis=0) / there.sum(axis=0))


def _recall(rows: Rows, index: int) -> Numbers:
    truth = rows.truth[:, index]
    return _of_ratio(rows, truth * rows.predicted_classes[:, index], truth)


def _precision(rows: Rows, index: int) -> Numbers:
    alarms = rows.predicted_classes[:, index]
    return _of_ratio(rows, rows.truth[:, index] * alarms, alarms)


def _f1(rows: Rows, index: int) -> Numbers:
    truth, alarms = rows.truth[:, index], rows.predicted_classes[:, index]
    return _of_ratio(rows, 2 * truth * alarms, truth + alarms)


def _brier(rows: Rows) -> Numbers:
    classes = list(rows.scored_classes if len(rows.task.classes) == 2 else range(len(rows.task.classes)))
    return _of_mean(rows, np.square(rows.probabilities[:, classes] - rows.truth[:, classes]).sum(axis=1))


def _losses(rows: Rows) -> Numbers:
    losses = row_losses(rows.predicted, rows.actual)
    return np.where(np.isfinite(losses), losses, 0.0)


def _rmse(rows: Rows) -> Numbers:
    losses = _losses(rows)
    root = np.sqrt(_site_sum(rows, losses) / rows.counts)
    return np.asarray(_of_mean(rows, losses) / (2 * root[rows.site]))


def _r2(rows: Rows) -> Numbers:
    middle = _site_sum(rows, rows.actual) / rows.counts
    return -_of_ratio(rows, _losses(rows), np.square(rows.actual - middle[rows.site]))


def _areas(rows: Rows) -> Contributions:
    """Of the ROC area: one class against the rest, or the mean of these over the classes that occur."""
    classes = len(rows.task.classes)
    parts, there = np.zeros(len(rows.actual)), np.zeros(len(rows.actual))
    for index in rows.scored_classes:
        right, others = placements(rows, index)
        has = rows.truth[:, index]
        pairs, won = _site_sum(rows, has * others), _site_sum(rows, has * right)
        with np.errstate(divide="ignore", invalid="ignore"):
            area = won / pairs
            own = (right - area[rows.site] * others) / pairs[rows.site]
        occurs = (_site_sum(rows, has) > 0)[rows.site]
        parts += np.where(occurs, own, 0.0)
        there += occurs
    stratum = rows.site * classes + (rows.actual if classes == 2 else 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Contributions(parts / there, stratum)


MOST_PAIRS = 100_000
"""Pairs of an ill and a well patient in a fold of a site, beyond which the pairs themselves hardly matter."""


def pairs_counted_twice(one: Rows, other: Rows) -> Numbers:
    """What single pairs add to the variance of a difference in ROC area, at every site.

    The area is a mean over pairs; two pairs vary together when they share a patient. Squared contributions count a
    pair with itself both for its ill and for its well patient, which matters where a fold holds few of either.
    """
    index = one.positive
    found, total = np.zeros(len(one.counts)), np.zeros(len(one.counts))
    fold = np.zeros(len(one.actual), np.int64) if one.fold is None else one.fold
    cell = np.unique(np.stack([one.site, fold], axis=1), axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(cell, kind="stable")
    cells = np.split(order, np.flatnonzero(np.diff(cell[order])) + 1) if len(order) else []
    gaps: list[tuple[int, Numbers]] = []
    for rows in cells:
        ill, well = (rows[one.truth[rows, index] == has] for has in (1, 0))
        site = int(one.site[rows[0]])
        total[site] += len(ill) * len(well)
        if 0 < len(ill) * len(well) <= MOST_PAIRS:
            ours, theirs = (
                0.5 * np.sign(each.probabilities[ill, index][:, None] - each.probabilities[well, index])
                for each in (one, other)
            )
            gaps.append((site, ours - theirs))
    middle, pairs = np.zeros(len(total)), np.zeros(len(total))
    for site, gap in gaps:
        middle[site] += gap.sum()
        pairs[site] += gap.size
    for site, gap in gaps:
        found[site] += np.square(gap - middle[site] / pairs[site]).sum()
    return np.asarray(found / np.square(np.maximum(total, 1.0)))


CLOSED: Mapping[str, Callable[[Rows], Numbers]] = {
    "roc_auc": lambda rows: _areas(rows).values,
    "accuracy": lambda rows: _of_mean(rows, (rows.truth * rows.predicted_classes).sum(axis=1)),
    "balanced_accuracy": lambda rows: _macro(rows, range(len(rows.task.classes)), lambda one: _recall(rows, one)),
    "precision": lambda rows: _macro(rows, rows.scored_classes, lambda one: _precision(rows, one)),
    "recall": lambda rows: _macro(rows, rows.scored_classes, lambda one: _recall(rows, one)),
    "f1": lambda rows: _macro(rows, rows.scored_classes, lambda one: _f1(rows, one)),
    "brier": _brier,
    "log_loss": lambda rows: _of_mean(rows, _losses(rows)),
    "rmse": _rmse,
    "mae": lambda rows: _of_mean(rows, np.abs(rows.probabilities - rows.actual)),
    "r2": _r2,
    "dice": lambda rows: _of_mean(rows, dice_of(rows.probabilities, rows.actual)),
    "iou": lambda rows: _of_mean(rows, union_share_of(rows.probabilities, rows.actual)),
    "pixel_log_loss": lambda rows: _of_mean(rows, rows.probabilities[:, LOSS]),
}
