"""Cox's partial likelihood across sites, from sums over shared intervals of time.

A site tells, for each interval, sums over those of its patients who leave in it: of w, w x and w x x' with
w = exp(x beta), and of the same over its events. All sites' sums together give every risk set at the beginning of an
interval, so this is the likelihood of all patients in one place with their times rounded up to the edges; with the
distinct times as edges it is the exact one.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.survival.partial_likelihood import Likelihood, Ties, TrendSums
from wardround.statistics.survival.time_axis import Blocks

Values = np.ndarray[Any, Any]


class IntervalSums(NamedTuple):
    """Sums of (w, w x, upper half of w x x'), one row an interval; events by their number, and their sums of x."""

    left: Values
    """Over those who leave in an interval; the last row is of those beyond the axis."""
    failed: Values
    """Over the events of an interval."""
    events: Values
    total: Values
    """The sums of x over the events of an interval."""


def interval_sums(x: Values, blocks: Blocks, event: Values, beta: Values) -> IntervalSums:
    """Of the rows of one site, in the blocks in which it tells of them."""
    columns = x.shape[1]
    first, second = np.triu_indices(columns)
    weight = np.exp(x @ beta)[:, None]
    moments = weight * np.column_stack([np.ones(len(x)), x, x[:, first] * x[:, second]])
    struck = (event > 0)[:, None]
    failed = blocks.told(np.column_stack([moments, np.ones(len(x)), x]) * struck)[:-1]
    width = width_of(columns)
    return IntervalSums(blocks.told(moments), failed[:, :width], failed[:, width], failed[:, width + 1 :])


def width_of(columns: int) -> int:
    """How many numbers w, w x and the upper half of w x x' are."""
    return 1 + columns + columns * (columns + 1) // 2


class IntervalTerms(NamedTuple):
    """For every event its interval, denominator, share taken from tied events, and how much of an event it is."""

    place: Values
    bottom: Values
    taken: Values
    part: Values


def binned_likelihood(sums: IntervalSums, beta: Values, ties: Ties = "efron") -> Likelihood:
    """Value, score and information of all sites' sums, which were taken at beta."""
    terms, at_risk = interval_terms(sums, ties)
    value = float((sums.total @ beta).sum() - terms.part @ np.log(terms.bottom))
    score, information = derivatives(sums, terms, at_risk, np.ones(len(at_risk)))
    return Likelihood(value, score, information)


def binned_trend(sums: IntervalSums, factor: Values, ties: Ties = "efron") -> TrendSums:
    """As `trend_sums`, with g(t) by the interval."""
    terms, at_risk = interval_terms(sums, ties)
    score, crossed = derivatives(sums, terms, at_risk, factor)
    return TrendSums(score, crossed, derivatives(sums, terms, at_risk, factor**2)[1])


def interval_terms(sums: IntervalSums, ties: Ties) -> tuple[IntervalTerms, Values]:
    """One term an event (where blocks are spread, d events are ceil(d) equal parts), and the sums at risk."""
    at_risk = np.cumsum(sums.left[::-1], axis=0)[::-1][:-1]
    busy = np.flatnonzero(sums.events > 1e-9)
    counts = np.ceil(sums.events[busy] - 1e-6).astype(np.int64)
    counts = np.maximum(counts, 1)
    place = np.repeat(busy, counts)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    order = np.arange(len(place)) - np.repeat(first, counts)
    taken = order / np.repeat(counts, counts) if ties == "efron" else np.zeros(len(place))
    part = np.repeat(sums.events[busy] / counts, counts)
    return IntervalTerms(place, at_risk[place, 0] - taken * sums.failed[place, 0], taken, part), at_risk


def derivatives(sums: IntervalSums, terms: IntervalTerms, at_risk: Values, factor: Values) -> tuple[Values, Values]:
    """The sums over events of factor times (x - mean), and of factor times the covariance of x at risk."""
    columns = sums.total.shape[1]
    place, taken = terms.place, terms.taken
    of_terms = factor[place] * terms.part
    # Added up over the terms of an interval first, so that no term needs a matrix of its own.
    whole, spared = (
        np.bincount(place, weights=part * of_terms / terms.bottom, minlength=len(at_risk)) for part in (1.0, taken)
    )
    squares = whole @ at_risk - spared @ sums.failed
    own = slice(1, columns + 1)
    mean = (at_risk[place, own] - taken[:, None] * sums.failed[place, own]) / terms.bottom[:, None]
    upper = np.zeros((columns, columns))
    upper[np.triu_indices(columns)] = squares[columns + 1 :]
    covariance = upper + np.triu(upper, 1).T - mean.T @ (mean * of_terms[:, None])
    return factor @ sums.total - of_terms @ mean, covariance


def merged_in_pairs(sums: IntervalSums) -> IntervalSums:
    """The same patients on half as many intervals: how far this moves the answer tells how fine the axis is."""
    # The first interval is the point 0, so that it goes with the two after it.
    starts = np.array([0, *range(3, len(sums.events), 2)])
    left = np.concatenate([np.add.reduceat(sums.left[:-1], starts), sums.left[-1:]])
    failed, events, total = (np.add.reduceat(one, starts) for one in (sums.failed, sums.events, sums.total))
    return IntervalSums(left, failed, events, total)
