"""Whether groups differ in survival: observed and expected events, added up over intervals and strata.

Mantel, Cancer Chemother. Rep. 1966; Peto and Peto, JRSS A 1972; weights S(t-)^p (1 - S(t-))^q after Fleming and
Harrington, "Counting Processes and Survival Analysis", 1991. The sums of several strata are the sums of each.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from wardround.statistics.survival.life_table import share

Values = np.ndarray[Any, Any]


class RankSums(NamedTuple):
    """Of k groups: observed and expected events, and the weighted difference with its k x k covariance."""

    observed: Values
    expected: Values
    difference: Values
    covariance: Values


class RankTest(NamedTuple):
    """A chi-square statistic; none of it where no two groups can be compared."""

    statistic: float | None
    freedom: int
    p_value: float | None


def rank_sums(events: Values, at_risk: Values, p: float = 0.0, q: float = 0.0) -> RankSums:
    """From events and numbers at risk of shape (groups, times), times ascending.

    The covariance is that of the hypergeometric distribution, so that ties are exact.
    """
    all_events, everyone = events.sum(axis=0), at_risk.sum(axis=0)
    survival = np.cumprod(1 - share(all_events, everyone))
    before = np.concatenate([[1.0], survival[:-1]])
    # 0 ** 0 is 1, so p = q = 0 is the log-rank test.
    weight = before**p * (1 - before) ** q
    expected = share(at_risk * all_events, np.broadcast_to(everyone, at_risk.shape))
    part = share(at_risk, np.broadcast_to(everyone, at_risk.shape))
    spread = weight**2 * all_events * share(everyone - all_events, np.maximum(everyone - 1, 0))
    covariance = np.diag((part * spread).sum(axis=1)) - (part * spread) @ part.T
    return RankSums(events.sum(axis=1), expected.sum(axis=1), ((events - expected) * weight).sum(axis=1), covariance)


def tied_counts(times: Values, event: Values, group: Values, groups: int) -> tuple[Values, Values]:
    """Events and numbers at risk, (groups, distinct event times), of the rows themselves."""
    distinct = np.unique(times[event > 0])
    events, at_risk = np.zeros((groups, len(distinct))), np.zeros((groups, len(distinct)))
    for number in range(groups):
        own, struck = times[group == number], times[(group == number) & (event > 0)]
        at_risk[number] = len(own) - np.searchsorted(np.sort(own), distinct, side="left")
        events[number] = np.bincount(np.searchsorted(distinct, struck), minlength=len(distinct))
    return events, at_risk


def rank_test(difference: Values, covariance: Values) -> RankTest:
    """The differences in units of their covariance; groups that were never at risk with others do not count."""
    known = np.flatnonzero(np.diag(covariance) > 1e-12)
    freedom = max(len(known) - 1, 0)
    if not freedom:
        return RankTest(None, 0, None)
    # They add up to 0, so one group says nothing that the others do not.
    kept = known[:-1]
    part = difference[kept]
    statistic = float(part @ np.linalg.lstsq(covariance[np.ix_(kept, kept)], part, rcond=None)[0])
    return RankTest(statistic, freedom, float(chi2.sf(statistic, freedom)))
