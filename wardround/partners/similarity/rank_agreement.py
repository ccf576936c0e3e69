"""How well two ways of judging partners agree: whether they put the sites in the same order, and what that is worth.

Spearman's rank correlation (1904), ties ranked by their mean. With few sites even a perfect agreement says little: of
three there are six orders, so one in six agrees by chance. That chance is reckoned over all orders up to seven sites,
beyond by Student's t.
"""

from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from wardround.partners.choice import Evidence

Numbers = np.ndarray[Any, Any]
ENUMERATED = 7


class RankCorrelation(NamedTuple):
    """Between two judgements of the same sites."""

    spearman: float
    """From -1 to 1; NaN where there is no order to compare."""
    sites: int
    """Sites that both have judged."""
    same_side: float
    """The share of these for which both say the same: a partner, or none."""
    chance: float
    """The probability that orders drawn at random agree as well as these do, or better."""


def agreement(one: Evidence, other: Evidence) -> RankCorrelation:
    """The rank correlation of two judgements over the sites that both have judged.

    >>> exact, quick = (Evidence(np.array(s), np.zeros(4), 0.0) for s in ([3.0, 1, 2, np.nan], [9.0, -1, 5, 7]))
    >>> told = agreement(exact, quick)
    >>> told.spearman, told.sites
    (1.0, 3)
    """
    both = np.isfinite(one.score) & np.isfinite(other.score)
    a, b = one.score[both], other.score[both]
    sites = len(a)
    if not sites:
        return RankCorrelation(np.nan, 0, np.nan, np.nan)
    same_side = float(np.mean((a > one.cut) == (b > other.cut)))
    ranked, against = ranks(a), ranks(b)
    if np.ptp(ranked) == 0 or np.ptp(against) == 0:
        return RankCorrelation(np.nan, sites, same_side, np.nan)
    spearman = correlation(ranked, against)
    return RankCorrelation(spearman, sites, same_side, by_chance(ranked, against, spearman))


def ranks(values: Numbers) -> Numbers:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Numbers = last - (counts - 1) / 2
    return middle[group]


def correlation(a: Numbers, b: Numbers) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a @ b) / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def by_chance(ranked: Numbers, against: Numbers, spearman: float) -> float:
    """How often a random order agrees at least as well."""
    sites = len(ranked)
    if sites <= ENUMERATED:
        others = [correlation(np.array(order), against) for order in permutations(ranked)]
        # Orders that agree equally well must not drop out by rounding.
        return float(np.mean(np.array(others) >= spearman - 1e-9))
    if abs(spearman) == 1:
        return float(spearman < 0)
    return float(stdtr(sites - 2, -spearman * np.sqrt((sites - 2) / (1 - spearman**2))))
