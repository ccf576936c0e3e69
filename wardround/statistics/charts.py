"""The charts of findings, by their data (see `FoundChart`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wardround.core.analysis import FoundChart


def numbers(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values).ravel()]


def forest(
    name: str, caption: str, rows: Sequence[Mapping[str, Any]], x: str, *, null: float | None = 0.0, log: bool = False
) -> FoundChart:
    """Rows have `name`, `value`, `low`, `high`, and may have `weight` and `summary`; `null` is where no effect is."""
    shared: dict[str, Any] = {"log": True} if log else {}
    return FoundChart(name, caption, "forest", [{**row, **shared, "null": null} for row in rows], x)


def funnel(name: str, caption: str, rows: Sequence[Mapping[str, Any]], middle: float, x: str) -> FoundChart:
    """Rows have `name`, `value` and `error`; `middle` is the pooled effect."""
    series = [*rows, {"name": "pooled", "value": middle, "summary": True}]
    return FoundChart(name, caption, "funnel", series, x, "standard error")


def bars(name: str, caption: str, series: Mapping[str, tuple[Sequence[str], Any]], x: str, y: str) -> FoundChart:
    """By the name of a group: the words below the bars, and how high they are."""
    told = [{"name": key, "x": list(below), "y": numbers(high)} for key, (below, high) in series.items()]
    return FoundChart(name, caption, "bars", told, x, y)


def histogram(name: str, caption: str, edges: Any, groups: Mapping[str, Any], x: str) -> FoundChart:
    """Counts between edges, a line of steps a group; back to 0 at the end."""
    told = [{"name": key, "x": numbers(edges), "y": [*numbers(counts), 0.0]} for key, counts in groups.items()]
    return FoundChart(name, caption, "steps", told, x, "patients")


def heat(name: str, caption: str, rows: Sequence[str], columns: Sequence[str], values: Any) -> FoundChart:
    table = [numbers(line) for line in np.asarray(values)]
    return FoundChart(name, caption, "heat", [{"x": list(columns), "y": list(rows), "z": table}])
