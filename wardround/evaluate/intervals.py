"""Confidence intervals by the bootstrap: patients are drawn again within each site, and all metrics with them.

Efron & Tibshirani, "An Introduction to the Bootstrap", 1993: percentile intervals, corrected for median bias, so that
measures which resampling pushes to one side still surround their estimate. Where it pushes so far that the corrected
interval leaves its own estimate out (the mean calibration error of many small sites, which each resample makes
noisier), the spread of the resamples is laid around the estimate. A resample is a count for each patient, so most
metrics are one matrix product. Rows are taken as independent patients. With hundreds of sites it is the sites that are
drawn again, which also covers the chance within them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from wardround.core.bounds import Count, Share
from wardround.evaluate.metrics import SiteMeasures, compute_metric
from wardround.evaluate.rows import Numbers
from wardround.evaluate.summary import unweighted_mean, weighted_mean

MOST_SITES = 200
"""Sites up to which each gets intervals of its own."""
AT_ONCE = 250_000
"""Counts held at a time: 2 MB, so that they stay in the processor's cache."""
WORK = 200_000_000
"""Rows drawn in all, beyond which a study that names no number gets fewer resamples, but never fewer than `FEWEST`."""
FEWEST = 200
ENOUGH = 0.9
"""Share of resamples that must have a value; AUC has none where a resample holds one class only."""


class Interval(NamedTuple):
    """From `low` to `high`, or the reason why there is none."""

    low: float | None
    high: float | None
    reason: str = ""


class Intervals(NamedTuple):
    """`sites[metric][site]`, and the means over sites; `by` says what was drawn again: patients or sites."""

    sites: Mapping[str, Sequence[Interval]]
    weighted: Mapping[str, Interval]
    unweighted: Mapping[str, Interval]
    by: str
    resamples: int


def resample_counts(rng: np.random.Generator, counts: Numbers, resamples: int) -> Numbers:
    """Shape (resamples, rows): how often each row is drawn when each site draws as many rows as it has."""
    total = int(counts.sum())
    first = np.repeat(np.cumsum(counts) - counts, counts)
    drawn = first + (rng.random((resamples, total)) * np.repeat(counts, counts)).astype(np.int64)
    drawn += np.arange(resamples)[:, None] * total
    return np.bincount(drawn.ravel(), minlength=resamples * total).reshape(resamples, total).astype(np.float64)


def affordable_resamples(resamples: int, width: int) -> int:
    """Fewer resamples for very many rows; whoever takes them says so (see `fewer_note`)."""
    return min(resamples, max(FEWEST, WORK // max(1, width)))


def fewer_note(taken: int, resamples: int, width: int) -> str:
    """What a reader must be told where fewer resamples were taken than usual."""
    return (
        f"Intervals are made from {taken:,} resamples instead of {resamples:,}, since there are {width:,} test "
        f"patients; [evaluation] resamples = {resamples} takes them all."
    )


def chunks(resamples: int, width: int) -> list[int]:
    """Sizes of the portions in which the resamples are drawn; they do not change what is drawn."""
    size = max(1, AT_ONCE // max(1, width))
    return [min(size, resamples - start) for start in range(0, resamples, size)]


def resample_metrics(measured: SiteMeasures, rng: np.random.Generator, resamples: int) -> dict[str, Numbers]:
    """For every metric, shape (resamples, sites): its value in each resample of the patients."""
    rows = measured.rows
    parts: dict[str, list[Numbers]] = {name: [] for name in measured.metrics}
    for size in chunks(resamples, len(rows.actual)):
        weights = resample_counts(rng, rows.counts, size)
        for name, metric in measured.metrics.items():
            parts[name].append(compute_metric(rows, metric, weights))
    return {name: np.concatenate(part) for name, part in parts.items()}


def interval(draws: Numbers, estimate: float, level: float = 0.95) -> Interval:
    """The middle `level` of the draws, shifted by how far the estimate lies from their median."""
    if np.isnan(estimate):
        return Interval(None, None)
    have = np.sort(draws[~np.isnan(draws)])
    if len(have) < ENOUGH * len(draws) or not len(have):
        return Interval(None, None, f"only {len(have)} of {len(draws)} resamples have a value")
    # A width of 0 would claim certainty: 12 patients classified rightly do not make a perfect model.
    if have[-1] - have[0] <= 1e-12 * max(1.0, abs(have[0])):
        return Interval(None, None, "all resamples give the same value")
    tolerance = 1e-12 * max(1.0, abs(estimate))
    below = np.searchsorted(have, estimate - tolerance)
    upto = np.searchsorted(have, estimate + tolerance, side="right")
    reach = float(ndtri(0.5 + level / 2))
    bias = float(np.clip(ndtri((below + upto) / 2 / len(have)), -reach, reach))
    low, high = np.quantile(have, ndtr([2 * bias - reach, 2 * bias + reach]))
    if not low <= estimate <= high:
        outside, middle, within = np.quantile(have, [0.5 - level / 2, 0.5, 0.5 + level / 2])
        low, high = estimate + outside - middle, estimate + within - middle
        low = max(low, 0.0) if have[0] >= 0 and estimate >= 0 else low
    return Interval(float(low), float(high))


def bootstrap_intervals(
    measured: SiteMeasures, *, resamples: Count = 1000, level: Share = 0.95, seed: int = 0
) -> Intervals:
    """Intervals for every metric: at each site, and for both means over sites."""
    rng = np.random.default_rng([seed % 2**64, 0x1A7E])
    counts, values = measured.rows.counts, measured.values
    if len(counts) <= MOST_SITES:
        draws = resample_metrics(measured, rng, resamples)
        return Intervals(
            sites={
                name: [interval(draws[name][:, site], values[name][site], level) for site in range(len(counts))]
                for name in values
            },
            weighted={
                name: interval(weighted_mean(draws[name], counts), float(weighted_mean(values[name], counts)), level)
                for name in values
            },
            unweighted={
                name: interval(unweighted_mean(draws[name]), float(unweighted_mean(values[name])), level)
                for name in values
            },
            by="patients",
            resamples=resamples,
        )
    means = _means_over_drawn_sites(values, counts, rng, resamples)
    none = Interval(None, None, f"more than {MOST_SITES} sites")
    return Intervals(
        sites={name: [none] * len(counts) for name in values},
        weighted={n: interval(means[n][0], float(weighted_mean(v, counts)), level) for n, v in values.items()},
        unweighted={n: interval(means[n][1], float(unweighted_mean(v)), level) for n, v in values.items()},
        by="sites",
        resamples=resamples,
    )


def _means_over_drawn_sites(
    values: Mapping[str, Numbers], counts: Numbers, rng: np.random.Generator, resamples: int
) -> dict[str, Numbers]:
    """For every metric, shape (2, resamples): weighted and unweighted means over sites drawn again."""
    sums: dict[str, list[Numbers]] = {name: [] for name in values}
    for size in chunks(resamples, len(counts)):
        drawn = resample_counts(rng, np.array([len(counts)]), size)
        for name, value in values.items():
            there = ~np.isnan(value)
            known = np.where(there, value, 0.0)
            sums[name].append(drawn @ np.stack([known * counts, there * counts, known, there], axis=1))
    with np.errstate(invalid="ignore"):
        return {
            name: np.stack([total[:, 0] / total[:, 1], total[:, 2] / total[:, 3]])
            for name, total in ((name, np.concatenate(part)) for name, part in sums.items())
        }
