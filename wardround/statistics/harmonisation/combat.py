"""ComBat: what belongs to a site (shift and spread) is taken off its measurements, what belongs to patients stays.

Johnson, Li and Rabinovic, "Adjusting batch effects in microarray expression data using empirical Bayes methods",
Biostatistics 2007; Fortin et al., NeuroImage 2018. The model is y = site + covariates b + spread of site * error.
By Frisch and Waugh, b follows from products around each site's own means, so sums over sites give all that is common:
b, the grand mean and the pooled spread. The site's own shift and spread, the priors over its columns and their
empirical-Bayes estimates need its own rows only: they are computed there and never leave.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Matrix = np.ndarray[Any, Any]
TOLERANCE = 1e-4
"""Relative change at which the published implementations stop; the same here, so that results are the same."""


class CommonScale(NamedTuple):
    """What all sites share; arrays have one entry a measured column, `effects` one row a covariate."""

    effects: Matrix
    mean: Matrix
    spread: Matrix


class SiteShift(NamedTuple):
    """What is a site's own: its shift and its variance, in units of the pooled spread."""

    shift: Matrix
    variance: Matrix


def common_scale(count: float, zz: Matrix, zy: Matrix, yy: Matrix, total_y: Matrix, total_z: Matrix) -> CommonScale:
    """From sums over sites: products around each site's own means (`yy` of each column with itself), and totals."""
    effects = np.linalg.solve(zz, zy) if len(zz) else zy
    left = yy - (zy * effects).sum(axis=0)
    mean = (total_y - total_z @ effects) / count
    return CommonScale(effects, mean, np.sqrt(np.maximum(left, 0.0) / count))


def scale_from(numbers: Mapping[str, Any]) -> CommonScale:
    """As the findings of the analysis hold it."""
    mean, spread = (np.asarray(numbers[key], np.float64) for key in ("mean", "spread"))
    return CommonScale(np.asarray(numbers["effects"], np.float64).reshape(-1, len(mean)), mean, spread)


def standardized(common: CommonScale, y: Matrix, z: Matrix) -> Matrix:
    return (y - common.mean - z @ common.effects) / common.spread


def site_shift(standard: Matrix, *, bayes: bool = True) -> SiteShift:
    """Of the site's standardized rows. One patient has no spread: then only the shift is estimated."""
    rows, columns = standard.shape
    shift = standard.mean(axis=0)
    alone = rows == 1
    variance = np.ones(columns) if alone else standard.var(axis=0, ddof=1)
    variance = np.where(variance == 0, 1.0, variance)
    if not bayes or columns < 2:  # a prior over one column is none
        return SiteShift(shift, variance)
    centre, spread = shift.mean(), shift.var(ddof=1)
    if alone:
        return SiteShift((spread * shift + centre) / (spread + 1), variance)
    return moderated(standard, SiteShift(shift, variance), float(centre), float(spread))


def moderated(standard: Matrix, own: SiteShift, centre: float, spread: float) -> SiteShift:
    """Parametric empirical Bayes: a normal prior for shifts, an inverse gamma one for variances, by their moments."""
    rows = len(standard)
    mean, wide = own.variance.mean(), own.variance.var(ddof=1)
    if wide == 0:  # all variances alike: the prior is a point, and shrinks them to where they are
        return SiteShift(
            (spread * rows * own.shift + own.variance * centre) / (spread * rows + own.variance), own.variance
        )
    shape, scale = (2 * wide + mean**2) / wide, (mean * wide + mean**3) / wide
    shift, variance = own
    for _ in range(10_000):
        new = (spread * rows * own.shift + variance * centre) / (spread * rows + variance)
        squares = ((standard - new) ** 2).sum(axis=0)
        wider = (squares / 2 + scale) / (rows / 2 + shape - 1)
        change = max(relative_change(new, shift), relative_change(wider, variance))
        shift, variance = new, wider
        if change <= TOLERANCE:
            break
    return SiteShift(shift, variance)


def relative_change(new: Matrix, old: Matrix) -> float:
    """As sva and neuroCombat have it: over the old value with its sign, so that negative shifts never go on alone."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nan_to_num(np.abs(new - old) / old, nan=0.0, posinf=np.inf, neginf=0.0).max())


def harmonised(common: CommonScale, own: SiteShift, y: Matrix, z: Matrix) -> Matrix:
    """A site's measurements without what is the site's."""
    free = (standardized(common, y, z) - own.shift) / np.sqrt(own.variance)
    return free * common.spread + common.mean + z @ common.effects
