"""Areas under the ROC and the precision-recall curve, for all sites and many resamples at once, ties counted right.

Hanley & McNeil 1982 (the ROC area is the share of pairs ranked rightly, a tie counting one half); the precision-recall
area is average precision, without interpolation. Costs one sort a class and a few sums.
"""

from collections.abc import Callable

import numpy as np

from wardround.evaluate.rows import Ladder, Numbers, Rows


def _per_step(ladder: Ladder, weights: Numbers | None, truth: Numbers) -> tuple[Numbers, Numbers]:
    """Shape (resamples, steps): how many with and without the class stand on each step."""
    ranked = truth[ladder.order][None]
    counted = np.ones_like(ranked) if weights is None else weights[:, ladder.order]
    ill = np.add.reduceat(counted * ranked, ladder.steps, axis=1)
    return ill, np.add.reduceat(counted, ladder.steps, axis=1) - ill


def _below(ladder: Ladder, on_step: Numbers) -> Numbers:
    """How many of the same site stand on lower steps."""
    total = np.cumsum(on_step, axis=1) - on_step
    return np.asarray(total - total[:, ladder.site_steps][:, ladder.step_site])


def _over_sites(ladder: Ladder, on_step: Numbers) -> Numbers:
    return np.asarray(np.add.reduceat(on_step, ladder.site_steps, axis=1))


def _roc(ladder: Ladder, ill: Numbers, well: Numbers) -> Numbers:
    right = _over_sites(ladder, ill * (_below(ladder, well) + 0.5 * well))
    return np.asarray(right / (_over_sites(ladder, ill) * _over_sites(ladder, well)))


def _precision_recall(ladder: Ladder, ill: Numbers, well: Numbers) -> Numbers:
    all_ill, all_well = _over_sites(ladder, ill), _over_sites(ladder, well)
    found = all_ill[:, ladder.step_site] - _below(ladder, ill)
    alarms = found + all_well[:, ladder.step_site] - _below(ladder, well)
    # A resample may leave the top steps empty: no alarm there, and nobody found.
    precision = found / np.maximum(alarms, 1.0)
    return np.asarray(_over_sites(ladder, ill * precision) / all_ill)


def _by_class(
    rows: Rows, weights: Numbers | None, area: Callable[[Ladder, Numbers, Numbers], Numbers]
) -> tuple[Numbers, Numbers]:
    """Shape (resamples, sites, judged classes): the areas, and whether the class occurs."""
    resamples = 1 if weights is None else len(weights)
    shape = (resamples, len(rows.counts), len(rows.scored_classes))
    areas, occurs = np.full(shape, np.nan), np.zeros(shape, bool)
    if not len(rows.actual):
        return areas, occurs
    for place, index in enumerate(rows.scored_classes):
        ladder = rows.ladders[index]
        ill, well = _per_step(ladder, weights, rows.truth[:, index])
        with np.errstate(divide="ignore", invalid="ignore"):
            areas[:, rows.nonempty_sites, place] = area(ladder, ill, well)
        occurs[:, rows.nonempty_sites, place] = _over_sites(ladder, ill) > 0
    return areas, occurs


def macro(values: Numbers, occurs: Numbers) -> Numbers:
    """The mean over the classes that occur at the site; not a number where none does."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(occurs, values, 0.0).sum(axis=2) / occurs.sum(axis=2))


def roc_auc(rows: Rows, weights: Numbers | None = None) -> Numbers:
    """Shape (resamples, sites); not a number where only one class occurs."""
    return macro(*_by_class(rows, weights, _roc))


def pr_auc(rows: Rows, weights: Numbers | None = None) -> Numbers:
    """Average precision, shape (resamples, sites); not a number where the positive class does not occur."""
    return macro(*_by_class(rows, weights, _precision_recall))
