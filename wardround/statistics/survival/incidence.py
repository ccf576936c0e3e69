"""Cumulative incidence where several causes compete: Aalen-Johansen, with its variance by the delta method.

Aalen and Johansen, Scand. J. Statist. 1978. Unlike 1 minus Kaplan-Meier with other causes censored, the incidences of
all causes and the survival add up to 1. Variance: Aalen's, as in Marubini and Valsecchi, 1995, formula 10.12.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.survival.life_table import share

Values = np.ndarray[Any, Any]


class Incidence(NamedTuple):
    """At the edges: (causes, edges) incidences and their standard errors, and the survival from all causes."""

    incidence: Values
    error: Values
    survival: Values


def incidence_of(events: Values, at_risk: Values) -> Incidence:
    """From events of shape (causes, edges) and numbers at risk of shape (edges,)."""
    causes = events.shape[0]
    everyone = np.broadcast_to(at_risk, events.shape)
    hazard = share(events.astype(np.float64), everyone.astype(np.float64))
    total = hazard.sum(axis=0)
    survival = np.cumprod(1 - total)
    before = np.concatenate([[1.0], survival[:-1]])
    incidence = np.cumsum(before * hazard, axis=1)
    return Incidence(
        incidence,
        np.stack([delta_error(incidence[k], hazard[k], total, before, at_risk) for k in range(causes)]),
        survival,
    )


def delta_error(incidence: Values, hazard: Values, total: Values, before: Values, at_risk: Values) -> Values:
    """The standard error at each edge.

    With F(t) the incidence, the variance at t is the sum over s up to t of (F(t) - F(s))^2 d / (n (n - d))
    + S(s-)^2 d_k (n - d_k) / n^3 - 2 (F(t) - F(s)) S(s-) d_k / n^2; three cumulative sums each, as F(t) is constant.
    """
    risk = at_risk.astype(np.float64)
    a = share(total, risk * (1 - total))
    b = before**2 * share(hazard * (1 - hazard), risk)
    c = before * share(hazard, risk)
    square = incidence**2 * np.cumsum(a) - 2 * incidence * np.cumsum(a * incidence) + np.cumsum(a * incidence**2)
    cross = incidence * np.cumsum(c) - np.cumsum(c * incidence)
    return np.sqrt(np.maximum(square + np.cumsum(b) - 2 * cross, 0.0))
