"""t, Welch and analysis of variance from counts, means and squared deviations of groups."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

Vector = np.ndarray[Any, Any]


class Comparison(NamedTuple):
    """A statistic (t or F) with its degrees of freedom and p-value."""

    statistic: float
    df: float
    p: float
    df_within: float | None = None


class MeanDifference(NamedTuple):
    """The second group minus the first, with Welch's interval, and Hedges' g."""

    difference: float
    low: float
    high: float
    g: float
    student: Comparison
    welch: Comparison


def two_means(count: Vector, mean: Vector, squares: Vector, level: float = 0.95) -> MeanDifference:
    n, m = count
    variance = squares / (count - 1)
    difference = float(mean[1] - mean[0])
    pooled = float(squares.sum() / (n + m - 2))
    error = math.sqrt(pooled * (1 / n + 1 / m))
    parts = variance / count
    apart = math.sqrt(parts.sum())
    df = float(parts.sum() ** 2 / (parts**2 / (count - 1)).sum())
    reach = float(stats.t(df).ppf((1 + level) / 2)) * apart
    student, welch = difference / error, difference / apart
    return MeanDifference(
        difference,
        difference - reach,
        difference + reach,
        difference / math.sqrt(pooled) * (1 - 3 / (4 * (n + m - 2) - 1)),
        Comparison(student, float(n + m - 2), float(2 * stats.t(n + m - 2).sf(abs(student)))),
        Comparison(welch, df, float(2 * stats.t(df).sf(abs(welch)))),
    )


def variance_analysis(count: Vector, mean: Vector, squares: Vector) -> Comparison:
    """One-way analysis of variance: F of the groups' means against the spread within groups."""
    groups, total = len(count), count.sum()
    grand = (count * mean).sum() / total
    between = float((count * (mean - grand) ** 2).sum()) / (groups - 1)
    within = float(squares.sum() / (total - groups))
    f = between / within
    return Comparison(f, groups - 1.0, float(stats.f(groups - 1, total - groups).sf(f)), float(total - groups))


def welch_analysis(count: Vector, mean: Vector, squares: Vector) -> Comparison:
    """Welch's analysis of variance (1951), where groups have spreads of their own."""
    groups = len(count)
    w = count / (squares / (count - 1))
    share = w / w.sum()
    grand = (share * mean).sum()
    uneven = float(((1 - share) ** 2 / (count - 1)).sum())
    top = float((w * (mean - grand) ** 2).sum()) / (groups - 1)
    f = top / (1 + 2 * (groups - 2) / (groups**2 - 1) * uneven)
    df = (groups**2 - 1) / (3 * uneven)
    return Comparison(f, groups - 1.0, float(stats.f(groups - 1, df).sf(f)), df)


def correlation_interval(r: float, count: float, level: float = 0.95) -> tuple[float, float, float]:
    """Fisher's interval and the p-value of Pearson's r."""
    if count < 4 or abs(r) >= 1:
        return math.nan, math.nan, math.nan
    reach = float(stats.norm.ppf((1 + level) / 2)) / math.sqrt(count - 3)
    t = r * math.sqrt((count - 2) / (1 - r**2))
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach), float(2 * stats.t(count - 2).sf(abs(t)))
