"""Survival curves as findings: sentences, tables and charts from the life tables of groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.analyses.survival.words import of_time, percent, whole
from wardround.core.analysis import Findings, FoundChart, FoundTable
from wardround.statistics.sentences import figure
from wardround.statistics.survival.life_table import Curve, LifeTable, at_time, curve_of, median_of
from wardround.statistics.survival.time_axis import round_edges

Values = np.ndarray[Any, Any]
Row = list[str | float | int | None]


def curve_findings(
    groups: Sequence[str],
    heads: Sequence[str],
    tables: Sequence[LifeTable],
    withheld: Values,
    edges: Values,
    horizons: Sequence[float],
    unit: str,
) -> Findings:
    """Curves of all groups; `heads` are the groups as a sentence calls them."""
    curves = [curve_of(table) for table in tables]
    told = list(zip(groups, heads, tables, curves, strict=True))
    words = [
        median_sentence(head, table, curve, unit, bool(hidden))
        for (_, head, table, curve), hidden in zip(told, withheld, strict=True)
    ]
    medians: list[Row] = [
        [name, whole(table.people), whole(table.events.sum()), *median_of(curve), whole(hidden)]
        for (name, _, table, curve), hidden in zip(told, withheld, strict=True)
    ]
    later: list[Row] = []
    for name, head, table, curve in told:
        for time in horizons if table.people else ():
            if time > table.edges[-1] and len(table.edges) < len(edges):
                words.append(f"After {of_time(time, unit)} too few of {head} are followed to tell.")
                continue
            at_risk, survival, low, high = at_horizon(curve, table.at_risk, time)
            interval = f"95 % interval {percent(low).removesuffix(' %')} to {percent(high)}"
            words.append(f"After {of_time(time, unit)} {percent(survival)} of {head} had no event, {interval}.")
            later.append([name, time, whole(at_risk), survival, low, high])
    columns = ["group", "patients", "events", "median", "low", "high", "sites too small"]
    found = [FoundTable("groups", "Median time to the event", columns, medians)]
    if later:
        columns = ["group", "time", "at risk", "survival", "low", "high"]
        found.append(FoundTable("horizons", "Patients without the event at the horizons", columns, later))
    found.append(at_risk_table(groups, tables, edges))
    series = [drawn(name, curve, table.events) for name, _, table, curve in told]
    hazards = [{"name": one["name"], "x": one["x"], "y": one["hazard"]} for one in series]
    axis = f"time in {unit}" if unit else "time"
    charts = [
        FoundChart("survival", "Patients without the event", "steps", series, x=axis, y="share without the event"),
        FoundChart("hazard", "Cumulative hazard (Nelson-Aalen)", "steps", hazards, x=axis, y="cumulative hazard"),
    ]
    numbers = {
        "edges": edges.tolist(),
        "rounding": max(curve.rounding for curve in curves),
        "groups": {name: numbers_of(curve, table) for name, _, table, curve in told},
    }
    return Findings(words, found, charts, numbers)


def median_sentence(head: str, table: LifeTable, curve: Curve, unit: str, withheld: bool) -> str:
    """When half had the event, or that they have not yet."""
    if table.people == 0:
        return f"Of {head} {'too few are at any site to tell' if withheld else 'nothing is known'}."
    middle, low, high = median_of(curve)
    if middle is None:
        last = f"{percent(float(curve.survival[-1]))} had no event by {of_time(float(table.edges[-1]), unit)}"
        return f"Of {head} {last}: the median is not reached."
    interval = f"95 % interval {of_time(low, '')} to {of_time(high, unit)}"
    return f"Of {head} half had the event by {of_time(middle, unit)}, {interval}."


def at_horizon(curve: Curve, at_risk: Values, at: float) -> tuple[float, ...]:
    """At risk, survival and its interval; beyond the last edge as at the last edge."""
    place = min(int(np.searchsorted(curve.edges, at, side="left")), len(at_risk) - 1)
    ends = [at_time(curve.edges, one, at) for one in (curve.survival, curve.low, curve.high)]
    return float(at_risk[place]), *ends


def at_risk_table(groups: Sequence[str], tables: Sequence[LifeTable], edges: Values) -> FoundTable:
    """How many are still followed at some of the edges."""
    ticks = round_edges(float(edges[-1]), 6)
    places = np.minimum(np.searchsorted(edges, ticks, side="left"), len(edges) - 1)
    rows: list[Row] = [
        [name, *(whole(round(float(one.at_risk[p]), 1)) if p < len(one.at_risk) else None for p in places)]
        for name, one in zip(groups, tables, strict=True)
    ]
    heads = ["group", *(figure(float(tick), 4) for tick in ticks)]
    return FoundTable("at_risk", "Patients at risk, by time", heads, rows)


def drawn(name: str, curve: Curve, events: Values) -> dict[str, Any]:
    """The curve where it changes, and at its end."""
    kept = np.flatnonzero(np.append(events[:-1] > 0, True))
    x = [0.0, *curve.edges[kept].tolist()]
    return {
        "name": name,
        "x": x,
        "y": [1.0, *curve.survival[kept].tolist()],
        "low": [1.0, *curve.low[kept].tolist()],
        "high": [1.0, *curve.high[kept].tolist()],
        "hazard": [0.0, *curve.hazard[kept].tolist()],
    }


def numbers_of(curve: Curve, table: LifeTable) -> dict[str, Any]:
    """What a program reads of one group."""
    middle, low, high = median_of(curve)
    return {
        "at_risk": table.at_risk.tolist(),
        "events": table.events.tolist(),
        "survival": curve.survival.tolist(),
        "survival_error": curve.survival_error.tolist(),
        "low": curve.low.tolist(),
        "high": curve.high.tolist(),
        "hazard": curve.hazard.tolist(),
        "hazard_error": curve.hazard_error.tolist(),
        "median": middle,
        "median_low": low,
        "median_high": high,
    }
