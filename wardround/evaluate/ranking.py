"""Areas under the ROC and the precision-recall curve, for all sites and many resamples at once, ties counted right.

Hanley & McNeil 1982 (the ROC area is the share of pairs ranked rightly, a tie counting one half); the precision-recall
area is average precision, without interpolation. Costs one sort a class and a few sums. Of patients that several models
predicted (folds) the ROC area takes the pairs within each fold: a pair across two models would also count how far their
levels differ, against the method whose models vary more.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from wardround.evaluate.rows import Ladder, Numbers, Rows


def _per_step(ladder: Ladder, weights: Numbers | None, truth: Numbers) -> tuple[Numbers, Numbers]:
    """Shape (resamples, steps): how many with and without the class stand on each step."""
    ranked = truth[ladder.order][None]
    counted = np.ones_like(ranked) if weights is None else weights[:, ladder.order]
    ill = np.add.reduceat(counted * ranked, ladder.steps, axis=1)
    return ill, np.add.reduceat(counted, ladder.steps, axis=1) - ill


def _below(ladder: Ladder, on_step: Numbers) -> Numbers:
    """How many of the same ladder stand on lower steps."""
    total = np.cumsum(on_step, axis=1) - on_step
    return np.asarray(total - total[:, ladder.first_steps][:, ladder.step_ladder])


def _on_ladder(ladder: Ladder, on_step: Numbers) -> Numbers:
    return np.asarray(np.add.reduceat(on_step, ladder.first_steps, axis=1))


def _over_sites(ladder: Ladder, on_step: Numbers) -> Numbers:
    return np.asarray(np.add.reduceat(_on_ladder(ladder, on_step), ladder.site_ladders, axis=1))


def _roc(ladder: Ladder, ill: Numbers, well: Numbers) -> Numbers:
    right = _over_sites(ladder, ill * (_below(ladder, well) + 0.5 * well))
    pairs = _on_ladder(ladder, ill) * _on_ladder(ladder, well)
    return np.asarray(right / np.add.reduceat(pairs, ladder.site_ladders, axis=1))


def _precision_recall(ladder: Ladder, ill: Numbers, well: Numbers) -> Numbers:
    all_ill, all_well = _over_sites(ladder, ill), _over_sites(ladder, well)
    found = all_ill[:, ladder.step_site] - _below(ladder, ill)
    alarms = found + all_well[:, ladder.step_site] - _below(ladder, well)
    # A resample may leave the top steps empty: no alarm there, and nobody found.
    precision = found / np.maximum(alarms, 1.0)
    return np.asarray(_over_sites(ladder, ill * precision) / all_ill)


def _by_class(
    rows: Rows,
    weights: Numbers | None,
    area: Callable[[Ladder, Numbers, Numbers], Numbers],
    ladders: Mapping[int, Ladder],
) -> tuple[Numbers, Numbers]:
    """Shape (resamples, sites, judged classes): the areas, and whether the class occurs."""
    resamples = 1 if weights is None else len(weights)
    shape = (resamples, len(rows.counts), len(rows.scored_classes))
    areas, occurs = np.full(shape, np.nan), np.zeros(shape, bool)
    if not len(rows.actual):
        return areas, occurs
    for place, index in enumerate(rows.scored_classes):
        ladder = ladders[index]
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
    return macro(*_by_class(rows, weights, _roc, rows.fold_ladders))


def pr_auc(rows: Rows, weights: Numbers | None = None) -> Numbers:
    """Average precision, shape (resamples, sites); not a number where the positive class does not occur."""
    return macro(*_by_class(rows, weights, _precision_recall, rows.ladders))


class Placements(NamedTuple):
    """One class against the rest: for every row how many of the other kind it is ranked rightly against, of how many.

    DeLong, DeLong & Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating characteristic
    curves", Biometrics 1988.
    """

    right: Numbers
    others: Numbers


def placements(rows: Rows, index: int) -> Placements:
    """Of the class with this number, within each fold of each site."""
    ladder = rows.fold_ladders[index]
    ill, well = _per_step(ladder, None, rows.truth[:, index])
    all_ill, all_well = (_on_ladder(ladder, one)[0][ladder.step_ladder] for one in (ill, well))
    of_ill = (_below(ladder, well) + 0.5 * well)[0]
    of_well = all_ill - (_below(ladder, ill) + 0.5 * ill)[0]
    step = np.searchsorted(ladder.steps, np.arange(len(ladder.order)), side="right") - 1
    has = rows.truth[ladder.order, index] > 0
    right, others = np.empty(len(has)), np.empty(len(has))
    right[ladder.order] = np.where(has, of_ill[step], of_well[step])
    others[ladder.order] = np.where(has, all_well[step], all_ill[step])
    return Placements(right, others)
