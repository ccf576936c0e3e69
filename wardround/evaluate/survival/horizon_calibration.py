"""Whether predicted risks come true at a horizon: groups of like risk against their Kaplan-Meier curves."""

from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.survival.life_table import at_time, curve_of, life_table
from wardround.statistics.survival.time_axis import intervals_of

Values = np.ndarray[Any, Any]


class RiskGroup(NamedTuple):
    """Patients of like risk: what was predicted for them, and how many of them had the event, with an interval."""

    patients: int
    predicted: float
    observed: float
    low: float
    high: float


class HorizonCalibration(NamedTuple):
    """`ratio` is observed over predicted events of all patients; above 1 the model promises too little risk."""

    groups: tuple[RiskGroup, ...]
    ratio: float | None


def observed_risk(time: Values, event: Values, horizon: float) -> tuple[float, float, float]:
    """The share with the event by the horizon and its interval, censored patients accounted for."""
    edges = np.unique(time)
    place = intervals_of(time, edges)
    events, left = (np.bincount(place, weights=w, minlength=len(edges)) for w in (event, np.ones(len(time))))
    curve = curve_of(life_table(edges, events, left, len(time)))
    share, high, low = (1 - at_time(edges, one, horizon) for one in (curve.survival, curve.low, curve.high))
    return share, low, high


def horizon_calibration(
    time: Values, event: Values, risk: Values, horizon: float, *, groups: int = 10, fewest: int = 10
) -> HorizonCalibration:
    """At most so many groups of equal size; `risk` is the predicted chance of the event by the horizon."""
    if not len(time):
        return HorizonCalibration((), None)
    count = max(1, min(groups, len(time) // fewest))
    found = []
    for own in np.array_split(np.argsort(risk, kind="stable"), count):
        share, low, high = observed_risk(time[own], event[own], horizon)
        found.append(RiskGroup(len(own), float(risk[own].mean()), share, low, high))
    predicted = float(risk.mean())
    overall = observed_risk(time, event, horizon)[0]
    return HorizonCalibration(tuple(found), overall / predicted if predicted > 0 else None)
