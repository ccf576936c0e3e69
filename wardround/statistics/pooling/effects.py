"""One site's estimate of an effect and its variance, from its own rows.

Ratios are on the logarithmic scale, correlations on Fisher's z. Where a cell of a 2 by 2 table is 0, 0.5 is added to
all four (Haldane and Anscombe), and said. Borenstein et al., "Introduction to Meta-Analysis", Wiley 2009, chapters 3-6.
"""

import math
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, Any]
CORRECTION = 0.5


class OwnEffect(NamedTuple):
    """NaN where a site cannot estimate it."""

    effect: float
    variance: float
    is_corrected: bool = False


UNKNOWN = OwnEffect(math.nan, math.nan)


def mean_effect(y: Vector) -> OwnEffect:
    return OwnEffect(float(y.mean()), float(y.var(ddof=1) / len(y))) if len(y) > 1 else UNKNOWN


def difference(y: Vector, exposed: Vector) -> OwnEffect:
    """Mean of the exposed minus that of the others; the variances of both groups are their own (Welch)."""
    one, other = y[exposed == 1], y[exposed == 0]
    if min(len(one), len(other)) < 2:
        return UNKNOWN
    return OwnEffect(
        float(one.mean() - other.mean()), float(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other))
    )


def standardized_difference(y: Vector, exposed: Vector) -> OwnEffect:
    """Hedges' g: the difference in pooled standard deviations, corrected for small groups."""
    one, other = y[exposed == 1], y[exposed == 0]
    n, m = len(one), len(other)
    if min(n, m) < 2:
        return UNKNOWN
    pooled = ((n - 1) * one.var(ddof=1) + (m - 1) * other.var(ddof=1)) / (n + m - 2)
    if pooled == 0:
        return UNKNOWN
    small = 1 - 3 / (4 * (n + m - 2) - 1)
    d = (one.mean() - other.mean()) / math.sqrt(pooled)
    return OwnEffect(float(small * d), float(small**2 * ((n + m) / (n * m) + d**2 / (2 * (n + m)))))


def fourfold(event: Vector, exposed: Vector) -> Vector:
    """[[exposed with event, exposed without], [others with event, others without]]."""
    return np.array([[np.sum((exposed == e) & (event == y)) for y in (1, 0)] for e in (1, 0)], np.float64)


def ratio(table: Vector, measure: str) -> OwnEffect:
    """The logarithm of the odds ratio or risk ratio, or the risk difference, of a 2 by 2 table."""
    if (table.sum(axis=1) == 0).any() or (measure != "risk_difference" and (table.sum(axis=0) == 0).any()):
        return UNKNOWN  # a group, or an outcome, that nobody has
    zero = bool((table == 0).any())
    (a, b), (c, d) = table + CORRECTION * zero
    n, m = a + b, c + d
    if measure == "odds_ratio":
        return OwnEffect(math.log(a * d / (b * c)), 1 / a + 1 / b + 1 / c + 1 / d, zero)
    if measure == "risk_ratio":
        return OwnEffect(math.log(a / n * m / c), 1 / a - 1 / n + 1 / c - 1 / m, zero)
    return OwnEffect(a / n - c / m, a * b / n**3 + c * d / m**3, zero)


def correlation(x: Vector, y: Vector) -> OwnEffect:
    """Fisher's z of Pearson's r."""
    if len(x) < 4 or x.std() == 0 or y.std() == 0:
        return UNKNOWN
    r = float(np.corrcoef(x, y)[0, 1])
    return OwnEffect(math.atanh(r), 1 / (len(x) - 3)) if abs(r) < 1 else UNKNOWN
