"""Fixed and random effects: between-site variance, pooled effect, heterogeneity, prediction.

DerSimonian and Laird 1986; REML by Fisher scoring (Viechtbauer 2005); Paule and Mandel 1982; the interval of tau2 by
the Q-profile (Viechtbauer 2007); Hartung and Knapp 2001; prediction interval after Higgins, Thompson and
Spiegelhalter 2009 with k - 2 degrees of freedom; I2 after Higgins and Thompson 2002.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import optimize, stats

Vector = np.ndarray[Any, Any]
Spread = Literal["dl", "reml", "pm"]


class Pooled(NamedTuple):
    """`df` is infinite for a normal interval."""

    effect: float
    error: float
    low: float
    high: float
    p: float
    df: float


class BetweenSites(NamedTuple):
    """Q with its p-value, I2 as a share, tau2 and its interval."""

    q: float
    p: float
    i2: float
    tau2: float
    tau2_low: float
    tau2_high: float


def pooled(y: Vector, v: Vector, tau2: float, *, level: float = 0.95, adjust: bool = False) -> Pooled:
    """Weights 1 / (v + tau2); `adjust`: the variance of Hartung and Knapp with t on k - 1 degrees of freedom."""
    w = 1 / (v + tau2)
    effect = float((w * y).sum() / w.sum())
    error, df = 1 / math.sqrt(w.sum()), math.inf
    if adjust and len(y) > 1:
        df = float(len(y) - 1)
        error *= math.sqrt(float((w * (y - effect) ** 2).sum() / df))
    law = stats.norm if math.isinf(df) else stats.t(df)
    reach = float(law.ppf((1 + level) / 2)) * error
    p = float(2 * law.sf(abs(effect) / error)) if error > 0 else math.nan
    return Pooled(effect, error, effect - reach, effect + reach, p, df)


def cochran(y: Vector, v: Vector, tau2: float = 0.0) -> float:
    """The weighted sum of squares around the pooled effect, as a function of tau2 (Q at 0)."""
    w = 1 / (v + tau2)
    return float((w * (y - (w * y).sum() / w.sum()) ** 2).sum())


def between(y: Vector, v: Vector, method: Spread) -> float:
    """The variance between sites, never below 0."""
    if len(y) < 2:
        return 0.0
    if method == "dl":
        w = 1 / v
        return max(0.0, (cochran(y, v) - (len(y) - 1)) / float(w.sum() - (w**2).sum() / w.sum()))
    return crossing(y, v, len(y) - 1.0) if method == "pm" else restricted(y, v)


def restricted(y: Vector, v: Vector) -> float:
    """The maximum of the restricted likelihood: bracketed on a grid, then to machine precision."""

    def score(tau2: float) -> float:
        w = 1 / (v + tau2)
        mean = (w * y).sum() / w.sum()
        return float(0.5 * ((w**2 * (y - mean) ** 2).sum() - w.sum() + (w**2).sum() / w.sum()))

    def minus_likelihood(tau2: float) -> float:
        w = 1 / (v + tau2)
        return 0.5 * float(np.log(v + tau2).sum() + math.log(w.sum())) + 0.5 * cochran(y, v, tau2)

    top = 10 * float(np.var(y, ddof=1) + v.max()) + 1e-12
    grid = np.concatenate([[0.0], np.geomspace(top * 1e-8, top, 200)])
    best = int(np.argmin([minus_likelihood(float(one)) for one in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    if score(low) <= 0:
        return low if best else 0.0
    return float(optimize.brentq(score, low, high, xtol=1e-14, rtol=1e-14)) if score(high) < 0 else high


def crossing(y: Vector, v: Vector, level: float) -> float:
    """Where Q(tau2), which falls, is at `level`; 0 where it never is so high."""
    if cochran(y, v) <= level:
        return 0.0
    high = float(np.var(y, ddof=1)) + 1e-12
    while cochran(y, v, high) > level:
        high *= 2
    return float(optimize.brentq(lambda tau2: cochran(y, v, tau2) - level, 0.0, high, xtol=1e-14, rtol=1e-14))


def heterogeneity(y: Vector, v: Vector, tau2: float, level: float = 0.95) -> BetweenSites:
    df = len(y) - 1
    if df < 1:
        return BetweenSites(0.0, math.nan, 0.0, 0.0, math.nan, math.nan)
    q = cochran(y, v)
    upper, lower = stats.chi2.ppf([(1 + level) / 2, (1 - level) / 2], df)
    i2 = max(0.0, (q - df) / q) if q > 0 else 0.0
    return BetweenSites(
        q, float(stats.chi2.sf(q, df)), i2, tau2, crossing(y, v, float(upper)), crossing(y, v, float(lower))
    )


def prediction(found: Pooled, tau2: float, count: int, level: float = 0.95) -> tuple[float, float]:
    """Where the effect at a new site is expected; NaN for fewer than three sites."""
    if count < 3:
        return math.nan, math.nan
    reach = float(stats.t(count - 2).ppf((1 + level) / 2)) * math.sqrt(tau2 + found.error**2)
    return found.effect - reach, found.effect + reach


class Asymmetry(NamedTuple):
    """Egger's regression of effect / error on 1 / error: an intercept far from 0 means a lopsided funnel."""

    intercept: float
    error: float
    p: float


def egger(y: Vector, v: Vector) -> Asymmetry | None:
    """None for fewer than three sites, or where all have the same precision."""
    x, z = 1 / np.sqrt(v), y / np.sqrt(v)
    if len(y) < 3 or np.ptp(x) <= 1e-12 * x.max():
        return None
    line = stats.linregress(x, z)
    error = float(line.intercept_stderr)
    p = float(2 * stats.t(len(y) - 2).sf(abs(line.intercept) / error)) if error > 0 else math.nan
    return Asymmetry(float(line.intercept), error, p)
