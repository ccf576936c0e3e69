"""Families of generalised linear models: mean, variance, deviance and likelihood of an outcome, and its link.

McCullagh and Nelder, "Generalized Linear Models", 1989. All functions work on arrays and never overflow: what a
logistic or a Poisson model can say of extreme values is bounded.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import special

Array = np.ndarray[Any, Any]
FamilyName = Literal["gaussian", "binomial", "poisson", "gamma", "negative_binomial"]
LinkName = Literal["default", "identity", "log", "logit", "probit", "cloglog", "inverse"]
TINY = 1e-300
FAR = 700.0
"""Beyond this an exponential is not finite any more."""
NEAR_ONE = 1e-15


class Link(NamedTuple):
    """From the mean to the linear predictor, back, and the slope of the way back."""

    of: Callable[[Array], Array]
    mean: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    ratio: str = ""
    """What the exponential of a coefficient is: "odds", "rate", "mean"; empty where it is none."""
    bends: bool = True
    """Whether the weights of patients follow from the coefficients, by a scale that is the same for any outcome."""


def exponential(eta: Array) -> Array:
    return np.asarray(np.exp(np.clip(eta, -FAR, FAR)))


def logistic(eta: Array) -> Array:
    return np.asarray(np.clip(special.expit(eta), NEAR_ONE, 1 - NEAR_ONE))


def logistic_slope(eta: Array) -> Array:
    mean = logistic(eta)
    return mean * (1 - mean)


def normal_density(eta: Array) -> Array:
    return np.asarray(np.exp(-np.minimum(eta * eta / 2, FAR)) / np.sqrt(2 * np.pi))


def doubly_exponential(eta: Array) -> Array:
    return np.asarray(np.clip(-np.expm1(-exponential(eta)), NEAR_ONE, 1 - NEAR_ONE))


LINKS: dict[str, Link] = {
    "identity": Link(lambda mean: mean, lambda eta: eta, np.ones_like, bends=False),
    "log": Link(np.log, exponential, exponential, "mean"),
    "logit": Link(special.logit, logistic, logistic_slope, "odds"),
    "probit": Link(special.ndtri, lambda eta: np.clip(special.ndtr(eta), NEAR_ONE, 1 - NEAR_ONE), normal_density),
    "cloglog": Link(
        lambda mean: np.log(-np.log1p(-mean)),
        doubly_exponential,
        lambda eta: np.exp(np.clip(eta - exponential(eta), -FAR, FAR)),
        "hazard",
    ),
    "inverse": Link(
        lambda mean: 1 / mean,
        lambda eta: 1 / np.maximum(eta, 1e-10),
        lambda eta: -1 / np.maximum(eta, 1e-10) ** 2,
        bends=False,
    ),
}


class Family(NamedTuple):
    """`alpha` is the dispersion of a negative binomial: variance = mean + alpha mean^2."""

    name: str
    link: str
    variance: Callable[[Array, float], Array]
    deviance: Callable[[Array, Array, float], Array]
    """Of one patient: (outcome, mean, alpha)."""
    loglik: Callable[[Array, Array, float], Array] | None
    """Of one patient, where the dispersion is 1."""
    fits: Callable[[Array], bool]
    """Whether outcomes can be of this family."""
    needs: str
    dispersed: bool = False
    """Whether the dispersion is estimated (by Pearson's statistic)."""
    bounds: tuple[float, float] = (1e-10, np.inf)
    """Between which a mean stays: some links reach beyond on the way to the answer."""


def y_log_y(y: Array, mean: Array) -> Array:
    return np.asarray(special.xlogy(y, y / mean))


def binomial_deviance(y: Array, mean: Array, alpha: float) -> Array:
    return 2 * (y_log_y(y, mean) + y_log_y(1 - y, 1 - mean))


def negative_binomial_deviance(y: Array, mean: Array, alpha: float) -> Array:
    part = (y + 1 / alpha) * np.log1p(alpha * (y - mean) / (1 + alpha * mean))
    return np.asarray(2 * (y_log_y(y, mean) - part))


def negative_binomial_loglik(y: Array, mean: Array, alpha: float) -> Array:
    size = 1 / alpha
    known = special.gammaln(y + size) - special.gammaln(size) - special.gammaln(y + 1)
    return np.asarray(known + special.xlogy(y, alpha * mean) - (y + size) * np.log1p(alpha * mean))


FAMILIES: dict[str, Family] = {
    "gaussian": Family(
        "gaussian",
        "identity",
        lambda mean, alpha: np.ones_like(mean),
        lambda y, mean, alpha: (y - mean) ** 2,
        None,
        lambda y: True,
        "numbers",
        True,
        (-np.inf, np.inf),
    ),
    "binomial": Family(
        "binomial",
        "logit",
        lambda mean, alpha: mean * (1 - mean),
        binomial_deviance,
        lambda y, mean, alpha: special.xlogy(y, mean) + special.xlog1py(1 - y, -mean),
        lambda y: bool(((y >= 0) & (y <= 1)).all()),
        "0 and 1, shares between them, or two words",
        bounds=(NEAR_ONE, 1 - NEAR_ONE),
    ),
    "poisson": Family(
        "poisson",
        "log",
        lambda mean, alpha: mean,
        lambda y, mean, alpha: 2 * (y_log_y(y, mean) - (y - mean)),
        lambda y, mean, alpha: special.xlogy(y, mean) - mean - special.gammaln(y + 1),
        lambda y: bool((y >= 0).all()),
        "counts, 0 or more",
    ),
    "gamma": Family(
        "gamma",
        "log",
        lambda mean, alpha: mean * mean,
        lambda y, mean, alpha: 2 * ((y - mean) / mean - np.log(y / mean)),
        None,
        lambda y: bool((y > 0).all()),
        "numbers above 0",
        True,
    ),
    "negative_binomial": Family(
        "negative_binomial",
        "log",
        lambda mean, alpha: mean + alpha * mean * mean,
        negative_binomial_deviance,
        negative_binomial_loglik,
        lambda y: bool((y >= 0).all()),
        "counts, 0 or more",
    ),
}


def alpha_slopes(y: Array, mean: Array, weights: Array, alpha: float) -> tuple[float, float]:
    """First and second derivative of a negative binomial's log-likelihood by log(alpha), at these means."""
    size = 1 / alpha
    bend = 1 + alpha * mean
    first = size * (special.digamma(size) - special.digamma(y + size) + np.log(bend)) + (y - mean) / bend
    # By the chain rule from d/d alpha; the second from differences of the first, which is smooth.
    step = 1e-4
    up, down = alpha * np.exp(step), alpha * np.exp(-step)

    def slope(at: float) -> Array:
        size = 1 / at
        bend = 1 + at * mean
        return np.asarray(size * (special.digamma(size) - special.digamma(y + size) + np.log(bend)) + (y - mean) / bend)

    second = (slope(up) - slope(down)) / (2 * step)
    return float(np.sum(weights * first)), float(np.sum(weights * second))
