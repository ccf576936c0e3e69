"""Calibration: do patients given a risk of 30 % fall ill in 30 % of cases?

Expected calibration error with bins of equal mass (Nixon et al., "Measuring Calibration in Deep Learning", 2019): the
gap between mean prediction and observed share in each bin, averaged over patients. Two classes: the probability of the
positive one; more: the confidence in the predicted class. Bins follow the ranks, patients with the same prediction
share one, and a site has a bin for every 10 patients, at most 10, so that a small site is not all noise. Even a
perfect model has an error above 0 on few patients.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from wardround.core.contracts import Scores, Task
from wardround.evaluate.clinical.proportions import wilson_interval
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
    if rows.task.binary:
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


def reliability_curve(scores: Scores, task: Task, *, positive: int = 1, level: float = 0.95) -> list[dict[str, Any]]:
    """Points to plot, all sites as one: per bin the mean prediction, the observed share, and the number of patients.

    Bins between quantiles of the predictions, as scikit-learn's `calibration_curve` makes them, with Wilson intervals;
    for a quantity the observed mean, with an interval after Student.
    """
    if task.survival:
        # Imported here: it measures with the metrics, which measure calibration.
        from wardround.evaluate.survival.horizons import calibration_points

        return calibration_points(scores, task)
    whole = Scores(scores.predicted, scores.actual, np.array([0, len(scores.actual)]))
    rows = rows_of(whole, task, positive=positive)
    if not len(rows.actual) or rows.nonfinite_counts.any():
        return []
    claimed, true = (rows.predicted, rows.actual) if task.regression else claims(rows)
    bins = int(np.clip(len(claimed) // ROWS_A_BIN, 1, MOST_BINS))
    edges = np.percentile(claimed, np.linspace(0, 100, bins + 1))
    place = np.searchsorted(edges[1:-1], claimed)
    sizes, predicted, observed = (np.bincount(place, weights=of, minlength=bins) for of in (None, claimed, true))
    there = sizes > 0
    low, high = mean_interval(place, true, bins, level) if task.regression else wilson_interval(observed, sizes, level)
    sizes, predicted, observed, low, high = (one[there] for one in (sizes, predicted, observed, low, high))
    points = zip(predicted / sizes, observed / sizes, sizes, low, high, strict=True)
    return [
        {"predicted": float(mean), "observed": float(share), "rows": int(size)}
        | ({"low": float(least), "high": float(most)} if least < most else {})
        for mean, share, size, least, most in points
    ]


def mean_interval(place: Numbers, values: Numbers, bins: int, level: float) -> tuple[Numbers, Numbers]:
    """Of the mean of the values in each bin, after Student; not a number where a bin has fewer than two."""
    sizes = np.bincount(place, minlength=bins)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(place, weights=values, minlength=bins) / sizes
        squares = np.bincount(place, weights=np.square(values - mean[place]), minlength=bins)
        half = stdtrit(sizes - 1, 0.5 + level / 2) * np.sqrt(squares / (sizes - 1) / sizes)
    return mean - half, mean + half
