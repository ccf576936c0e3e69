"""Curves from a life table: events, censored and at risk in each interval of a common axis.

Kaplan and Meier, JASA 1958; Nelson, Technometrics 1972, and Aalen, Ann. Statist. 1978; variance by Greenwood, 1926;
intervals on the log(-log) scale (Kalbfleisch and Prentice, 1980); the interval of the median by Brookmeyer and Crowley,
Biometrics 1982. Where times are no edges, the order of events and censorings inside an interval is not known: half of
the censored count as at risk (the actuarial estimate), and `low` and `high` enclose the curve of the exact times at the
edges, all censored before and all after the events.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

Values = np.ndarray[Any, Any]


class LifeTable(NamedTuple):
    """One number an interval; `exact` where every time is an edge."""

    edges: Values
    at_risk: Values
    events: Values
    censored: Values
    exact: bool = True
    noise: float = 0.0
    """Standard deviation of the noise in each count of events, of the censored, and of those beyond the axis."""
    steps: int = 0
    """Of a table under noise that ends early: how many intervals were counted."""
    entered: Values | None = None
    """Who comes under observation in each interval, where not all are from the beginning."""

    @property
    def people(self) -> float:
        """All who are ever at risk."""
        return float(self.at_risk[0] if self.entered is None else self.entered.sum())

    @property
    def effective(self) -> Values:
        """At risk when the events happen."""
        if self.exact:
            return self.at_risk
        return self.at_risk - self.censored / 2 + (0.0 if self.entered is None else self.entered / 2)


def life_table(
    edges: Values, events: Values, left: Values, patients: float, exact: bool = True, entered: Values | None = None
) -> LifeTable:
    """From events and all who left in each interval; those who stay beyond the axis are at risk throughout.

    Who entered in an interval is at risk from the next one on.
    """
    there = patients if entered is None else np.concatenate([[0.0], np.cumsum(entered)[:-1]])
    at_risk = there - np.concatenate([[0.0], np.cumsum(left)[:-1]])
    return LifeTable(edges, at_risk, events, left - events, exact, entered=entered)


class Curve(NamedTuple):
    """Survival and cumulative hazard at the edges, with their standard errors and intervals."""

    edges: Values
    survival: Values
    survival_error: Values
    low: Values
    high: Values
    hazard: Values
    hazard_error: Values
    earliest: Values
    """The curve if all who were censored in an interval were so before its events; equal to the latest if exact."""
    latest: Values

    @property
    def rounding(self) -> float:
        """At most so far lies the exact curve from this one, at an edge."""
        return float(np.max(np.maximum(self.latest - self.survival, self.survival - self.earliest), initial=0.0))


def share(top: Values, bottom: Values) -> Values:
    """A quotient, 0 where nobody is there to divide by."""
    return np.divide(top, bottom, out=np.zeros_like(top, dtype=np.float64), where=bottom > 0)


def curve_of(table: LifeTable, level: float = 0.95) -> Curve:
    """Kaplan-Meier and Nelson-Aalen of one group."""
    events, risk = table.events.astype(np.float64), table.effective.astype(np.float64)
    hazard = np.minimum(share(events, risk), 1.0)
    survival = np.minimum(np.cumprod(1 - hazard), 1.0)  # under noise fewer than no events may be counted
    greenwood = np.cumsum(share(np.maximum(hazard, 0.0), risk * (1 - hazard)))
    error = survival * np.sqrt(greenwood + noise_variance(table))
    low, high = log_log_interval(survival, error, level)
    if table.noise:
        low = np.where(survival >= 1, np.maximum(1 - norm.ppf(0.5 + level / 2) * error, 0.0), low)
    first = np.minimum(share(events, table.at_risk - table.censored), 1.0) if not table.exact else hazard
    most = table.at_risk if table.entered is None else table.at_risk + table.entered
    last = share(events, most) if not table.exact else hazard
    return Curve(
        table.edges,
        survival,
        error,
        low,
        high,
        np.maximum(np.cumsum(hazard), 0.0),
        np.sqrt(np.cumsum(share(np.maximum(hazard, 0.0), risk)) + noise_variance(table)),
        np.cumprod(1 - first),
        np.cumprod(1 - last),
    )


def noise_variance(table: LifeTable) -> Values:
    """Of the log of survival at every edge, from independent noise in the counts.

    The log adds up log(1 - events / risk), and those at risk are all who leave later: so a count moves every term
    before its own interval through the risk, by a = 1 / (risk - events) - 1 / risk, and its own by more. Those censored
    in an interval count half in its risk.
    """
    if not table.noise:
        return np.zeros(len(table.edges))
    risk, events = table.effective.astype(np.float64), table.events.astype(np.float64)
    stay = np.maximum(risk - events, 1.0)
    through = 1 / stay - 1 / np.maximum(risk, 1.0)
    upto = np.cumsum(through)
    by_events, by_censored = upto - 1 / stay, upto - through / 2
    later = 2 * (table.steps - 1 - np.arange(len(risk))) + 1
    return np.asarray(table.noise**2 * (np.cumsum(by_events**2 + by_censored**2) + later * upto**2))


def log_log_interval(value: Values, error: Values, level: float) -> tuple[Values, Values]:
    """The interval on the log(-log) scale, which stays between 0 and 1; the value itself where it is 0 or 1."""
    inner = (value > 0) & (value < 1)
    safe = np.where(inner, value, 0.5)
    log = np.log(safe)
    width = norm.ppf(0.5 + level / 2) * error / (safe * np.abs(log))
    double = np.log(-log)
    low, high = np.exp(-np.exp(double + width)), np.exp(-np.exp(double - width))
    return np.where(inner, low, value), np.where(inner, high, value)


def first_at_most(edges: Values, values: Values, bound: float) -> float | None:
    """The first edge at which a falling curve is at most the bound; none where it stays above.

    >>> first_at_most(np.array([1.0, 2.0]), np.array([0.7, 0.5]), 0.5)
    2.0
    """
    # 1 - 1/2 computed as a product of shares can end a hair above a half.
    below = np.flatnonzero(values <= bound * (1 + 1e-12))
    return float(edges[below[0]]) if len(below) else None


def median_of(curve: Curve) -> tuple[float | None, float | None, float | None]:
    """The median and its interval; none for what the follow-up is too short for."""
    middle, low, high = (first_at_most(curve.edges, one, 0.5) for one in (curve.survival, curve.low, curve.high))
    return middle, low, high


def at_time(edges: Values, values: Values, time: float, before: float = 1.0) -> float:
    """A step curve at a time; `before` its first edge."""
    place = int(np.searchsorted(edges, time, side="right")) - 1
    return float(values[place]) if place >= 0 else before
