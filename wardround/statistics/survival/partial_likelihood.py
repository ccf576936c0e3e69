"""Cox's partial likelihood of the rows of one place: value, score and information, which add up over strata and sites.

Cox, JRSS B 1972; ties after Breslow, Biometrics 1974, or Efron, JASA 1977. Where d events share a time, Efron's l-th
of them sees the risk set with l / d of the tied events' weight taken away; Breslow's all see the whole. Every event is
thus one term with a denominator and a mean of its own, and all sums below are sums over terms. No risk set is formed:
the sum of S2 / S0 is X' diag(w a) X, where a patient's `a` adds up 1 / S0 over the terms at which they are at risk.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

Values = np.ndarray[Any, Any]
Ties = Literal["efron", "breslow"]


class EventTerms(NamedTuple):
    """One entry an event, in ascending order of time: its time, denominator, mean, and share taken from tied events."""

    time: Values
    bottom: Values
    mean: Values
    taken: Values


class Likelihood(NamedTuple):
    """At one vector of coefficients; `value` is the logarithm, `information` its negative second derivative."""

    value: float
    score: Values
    information: Values


class Risk(NamedTuple):
    """Rows in ascending order of time, with what follows from the coefficients."""

    x: Values
    time: Values
    event: Values
    entry: Values
    """From when on a row is at risk: after this time (left truncation); -inf: from the beginning."""
    weight: Values
    """exp(x beta)."""
    log_weight: Values
    terms: EventTerms


def risk_of(
    x: Values, time: Values, event: Values, beta: Values, ties: Ties = "efron", entry: Values | None = None
) -> Risk:
    """The terms of the rows of one stratum; `event` is 0 or 1."""
    order = np.argsort(time, kind="stable")
    entry = np.full(len(time), -np.inf) if entry is None else entry
    x, time, event, entry = x[order], time[order], event[order], entry[order]
    log_weight = x @ beta
    # Subtracting the largest changes no quotient and keeps exp() finite; the logarithm of S0 gets it back.
    shift = float(log_weight.max(initial=0.0))
    weight = np.exp(log_weight - shift)
    struck = np.flatnonzero(event > 0)
    moments = np.column_stack([weight, x * weight[:, None]])
    later = np.cumsum(moments[::-1], axis=0)[::-1]
    at_risk = later[np.searchsorted(time, time[struck], side="left")]
    if np.isfinite(entry).any():
        # Of those who leave later, who has not entered yet is not at risk.
        late = np.argsort(entry, kind="stable")
        outside = np.concatenate([np.cumsum(moments[late][::-1], axis=0)[::-1], np.zeros((1, moments.shape[1]))])
        at_risk = at_risk - outside[np.searchsorted(entry[late], time[struck], side="left")]
    distinct, group, size = np.unique(time[struck], return_inverse=True, return_counts=True)
    tied = np.zeros((len(distinct), moments.shape[1]))
    np.add.at(tied, group, moments[struck])
    taken = np.zeros(len(struck))
    if ties == "efron":
        first = np.concatenate([[0], np.cumsum(size)[:-1]])
        taken = (np.arange(len(struck)) - first[group]) / size[group]
        at_risk = at_risk - taken[:, None] * tied[group]
    bottom = at_risk[:, 0]
    mean = at_risk[:, 1:] / bottom[:, None]
    return Risk(x, time, event, entry, weight, log_weight - shift, EventTerms(time[struck], bottom, mean, taken))


def likelihood_of(risk: Risk) -> Likelihood:
    """Value, score and information."""
    struck = risk.event > 0
    value = float(risk.log_weight[struck].sum() - np.log(risk.terms.bottom).sum())
    score = risk.x[struck].sum(axis=0) - risk.terms.mean.sum(axis=0)
    return Likelihood(value, score, spread_of(risk, np.ones(len(risk.terms.time))))


def exposure_of(risk: Risk, factor: Values) -> Values:
    """Per row: the sum of factor / S0 over the terms at which it is at risk, less what tied events are spared."""
    part = factor / risk.terms.bottom
    running = np.concatenate([[0.0], np.cumsum(part)])
    exposure = between(risk, running)
    return exposure - tied_share(risk, part * risk.terms.taken)


def between(risk: Risk, running: Values) -> Values:
    """Per row: how much a running sum over terms grows while the row is at risk."""
    last, first = (np.searchsorted(risk.terms.time, at, side="right") for at in (risk.time, risk.entry))
    return np.asarray(running[last] - running[first])


def tied_share(risk: Risk, part: Values) -> Values:
    """Per row: for an event, the sum of `part` over the terms of its own time; 0 for the censored."""
    if not len(part):
        return np.zeros_like(risk.time)
    running = np.concatenate([[0.0], np.cumsum(part)])
    low, high = (np.searchsorted(risk.terms.time, risk.time, side=side) for side in ("left", "right"))
    return np.where(risk.event > 0, running[high] - running[low], 0.0)


def spread_of(risk: Risk, factor: Values) -> Values:
    """The sum over terms of factor times the covariance of x in the term's risk set; 1s give the information."""
    weighted = risk.x * (risk.weight * exposure_of(risk, factor))[:, None]
    mean = risk.terms.mean
    return np.asarray(risk.x.T @ weighted - mean.T @ (mean * factor[:, None]))


def score_residuals(risk: Risk) -> Values:
    """(rows, columns): what each patient adds to the score; their squares give robust errors (Lin and Wei, 1989)."""
    ones = np.ones(len(risk.terms.time))
    exposure = exposure_of(risk, ones)
    residuals = -risk.x * (risk.weight * exposure)[:, None]
    part = risk.terms.mean / risk.terms.bottom[:, None]
    for column in range(risk.x.shape[1]):
        running = np.concatenate([[0.0], np.cumsum(part[:, column])])
        at = between(risk, running)
        at = at - tied_share(risk, part[:, column] * risk.terms.taken)
        residuals[:, column] += risk.weight * at
    struck = np.flatnonzero(risk.event > 0)
    _, group, size = np.unique(risk.terms.time, return_inverse=True, return_counts=True)
    own = np.zeros((len(size), risk.x.shape[1]))
    np.add.at(own, group, risk.terms.mean)
    residuals[struck] += risk.x[struck] - (own / size[:, None])[group]
    return residuals


class TrendSums(NamedTuple):
    """For the check of proportional hazards: the score and information of coefficients that change with time."""

    score: Values
    crossed: Values
    information: Values


def trend_sums(risk: Risk, middle: float, width: float) -> TrendSums:
    """Sums for x times g(t), g(t) = (t - middle) / width, at no change.

    Grambsch and Therneau, Biometrika 1994, as the score test of the added columns: no exact time leaves.
    """
    of_terms = (risk.terms.time - middle) / width
    struck = risk.event > 0
    of_rows = (risk.time[struck] - middle) / width
    score = (risk.x[struck] * of_rows[:, None]).sum(axis=0) - (risk.terms.mean * of_terms[:, None]).sum(axis=0)
    return TrendSums(score, spread_of(risk, of_terms), spread_of(risk, of_terms**2))
