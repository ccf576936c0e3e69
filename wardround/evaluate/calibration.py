"""Calibration: do patients given a risk of 30 % fall ill in 30 % of cases?

Expected calibration error with bins of equal mass (Nixon et al., "Measuring Calibration in Deep Learning", 2019): the
gap between mean prediction and observed share in each bin, averaged over patients. Two classes: the probability of the
positive one; more: the confidence in the predicted class. Bins follow the ranks, patients with the same prediction
share one, and a site has a bin for every 10 patients, at most 10, so that a small site is not all noise. Even a
perfect model has an error above 0 on few patients.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.evaluate.rows import Numbers, Rows, rows_of

MOST_BINS = 10
ROWS_A_BIN = 10


class Bins(NamedTuple):
    """Rows in the order of (site, bin); `starts` into that order, `site_starts` into the bins."""

    order: Numbers
    starts: Numbers
    site_starts: Numbers


def claims(rows: Rows) -> tuple[Numbers, Numbers]:
    """What was claimed for each patient (a probability), and whether it came true (0 or 1)."""
    if len(rows.task.classes) == 2:
        return rows.probabilities[:, rows.positive], rows.truth[:, rows.positive]
    return rows.probabilities.max(axis=1, initial=0.0), (rows.truth * rows.predicted_classes).sum(axis=1)


def bins_of(rows: Rows, claimed: Numbers) -> Bins:
    ladder = rows.ladder(claimed)
    sizes = np.diff(np.append(ladder.steps, len(claimed)))
    owner = rows.nonempty_sites[ladder.step_site]
    middle = ladder.steps - rows.first[owner] + sizes / 2
    bins = np.clip(rows.counts[owner] // ROWS_A_BIN, 1, MOST_BINS)
    bin_of_step = (middle / rows.counts[owner] * bins).astype(np.int64)
    new = np.ones(len(owner), bool)
    new[1:] = (bin_of_step[1:] != bin_of_step[:-1]) | (owner[1:] != owner[:-1])
    bin_steps = np.flatnonzero(new)
    site_starts = np.searchsorted(ladder.step_site[bin_steps], np.arange(len(rows.nonempty_sites)))
    return Bins(ladder.order, ladder.steps[bin_steps], site_starts)


def calibration(rows: Rows, weights: Numbers | None = None) -> Numbers:
    """Shape (resamples, sites); resamples keep the bins of the patients they were drawn from."""
    resamples = 1 if weights is None else len(weights)
    if not len(rows.actual):
        return np.full((resamples, len(rows.counts)), np.nan)
    claimed, true = claims(rows)
    bins = bins_of(rows, claimed)
    gap = (true - claimed)[bins.order][None]
    if weights is not None:
        gap = gap * weights[:, bins.order]
    per_bin = np.abs(np.add.reduceat(gap, bins.starts, axis=1))
    per_site = rows.spread(np.add.reduceat(per_bin, bins.site_starts, axis=1))
    with np.errstate(invalid="ignore"):
        return np.asarray(per_site / rows.counts)


def reliability_curve(scores: Scores, task: Task, *, positive: int = 1) -> list[dict[str, Any]]:
    """Points to plot, all sites as one: per bin the mean prediction, the observed share, and the number of patients."""
    whole = Scores(scores.predicted, scores.actual, np.array([0, len(scores.actual)]))
    rows = rows_of(whole, task, positive=positive)
    if task.regression or not len(rows.actual) or rows.nonfinite_counts.any():
        return []
    claimed, true = claims(rows)
    bins = bins_of(rows, claimed)
    sizes = np.diff(np.append(bins.starts, len(claimed)))
    means = np.add.reduceat(np.stack([claimed, true])[:, bins.order], bins.starts, axis=1) / sizes
    return [
        {"predicted": float(predicted), "observed": float(observed), "rows": int(size)}
        for predicted, observed, size in zip(*means, sizes, strict=True)
    ]
