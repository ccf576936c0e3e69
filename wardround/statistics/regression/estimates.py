"""From a fit in standardised units to what is told: coefficients, errors, tests, likelihoods."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from wardround.statistics.regression.design import Design, places_of, unpacked
from wardround.statistics.regression.families import Family
from wardround.statistics.regression.newton import Fit, inverse, unscaled

Array = np.ndarray[Any, Any]


class FoundFit(NamedTuple):
    """A fit in the units of the data."""

    beta: Array
    covariance: Array | None
    """None of a penalised fit, which has none that means what it says."""
    dispersion: float
    deviance: float
    loglik: float
    rows: float
    parameters: int
    pearson: float
    is_normal: bool
    """Whether tests are against a normal and not a t distribution."""

    @property
    def df(self) -> float:
        return self.rows - self.parameters

    @property
    def errors(self) -> Array:
        found = np.full(len(self.beta), np.nan)
        return found if self.covariance is None else np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def quantile(self, level: float) -> float:
        share = (1 + level) / 2
        return float(stats.norm.ppf(share) if self.is_normal else stats.t.ppf(share, self.df))

    def p_value(self, z: float) -> float:
        return float(2 * (stats.norm.sf(abs(z)) if self.is_normal else stats.t.sf(abs(z), self.df)))


def found_fit(
    fit: Fit, design: Design, family: Family, center: Array, scale: Array, *, sites: int = 0, robust: bool = False
) -> FoundFit:
    """`robust` errors are clustered by site, of which there are so many."""
    assert fit.sums is not None, "a fit that was never asked about"
    assert fit.info is not None, "a fit that was never asked about"
    sums, free, rows = fit.sums, fit.free, float(fit.sums["rows"])
    parameters = int(free.sum()) if fit.penalty.is_none else int((fit.beta != 0).sum())
    df = max(rows - parameters, 1.0)
    pearson, deviance = float(sums["pearson"]), float(sums["deviance"])
    dispersion = pearson / df if family.dispersed else 1.0
    back = unscaled(design, center, scale)
    covariance: Array | None = None
    if fit.penalty.is_none and not fit.failed:
        part = inverse(fit.info[np.ix_(free, free)])
        if robust:
            width = len(fit.beta)
            middle = unpacked(np.asarray(sums["cluster"]), width)[np.ix_(free, free)]
            part = part @ middle @ part * (sites / max(sites - 1, 1)) * ((rows - 1) / df)
        else:
            part = part * dispersion
        whole = np.zeros_like(fit.info)
        whole[np.ix_(free, free)] = part
        covariance = back @ whole @ back.T
    return FoundFit(
        beta=back @ fit.beta,
        covariance=covariance,
        dispersion=dispersion,
        deviance=deviance,
        loglik=loglik_of(family, sums, deviance, rows, dispersion),
        rows=rows,
        parameters=parameters,
        pearson=pearson,
        is_normal=not family.dispersed or robust,
    )


def loglik_of(family: Family, sums: dict[str, Any], deviance: float, rows: float, dispersion: float) -> float:
    if family.name == "gaussian":
        return -rows / 2 * (math.log(2 * math.pi * deviance / rows) + 1) if deviance > 0 else math.inf
    if family.name == "gamma":
        # With shape 1 / dispersion: sums of log y, and of y / mean - log (y / mean) - 1, which is half the deviance.
        shape = 1 / dispersion
        each = shape * math.log(shape) - shape - special.gammaln(shape)
        return float(rows * each - shape * deviance / 2 - float(sums["log_outcome"]))
    return float(sums["loglik"])


class TermTest(NamedTuple):
    """Whether a term explains anything."""

    term: int
    statistic: float
    df: int
    p_value: float


def wald_tests(found: FoundFit, design: Design) -> list[TermTest]:
    """All columns of a term at once."""
    tests: list[TermTest] = []
    if found.covariance is None:
        return tests
    for term in range(len(design.formula.terms)):
        at = places_of(design, term)
        own, beta = found.covariance[np.ix_(at, at)], found.beta[at]
        statistic = float(beta @ np.linalg.pinv(own, hermitian=True) @ beta)
        tests.append(TermTest(term, statistic, len(at), chance(statistic, len(at), found)))
    return tests


def chance(statistic: float, df: int, found: FoundFit) -> float:
    if found.is_normal:
        return float(stats.chi2.sf(statistic, df))
    return float(stats.f.sf(statistic / df, df, found.df))


def likelihood_ratio(full: FoundFit, without: FoundFit, term: int, df: int) -> TermTest:
    """Twice the difference of log-likelihoods; of deviances by the full fit's dispersion, where that is estimated."""
    apart = 2 * (full.loglik - without.loglik)
    if full.dispersion != 1.0:
        apart = (without.deviance - full.deviance) / full.dispersion
    statistic = max(0.0, apart)
    return TermTest(term, statistic, df, chance(statistic, df, full))
