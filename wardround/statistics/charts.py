"""The charts of findings, by their data: one place that knows what a kind of chart is given."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wardround.core.analysis import FoundChart


def numbers(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values).ravel()]


def forest(
    name: str, caption: str, rows: Sequence[Mapping[str, Any]], x: str, *, none: float | None = 0.0
) -> FoundChart:
    """Rows have `name`, `value`, `low`, `high`, and may have `weight` (a share) and `pooled`."""
    return FoundChart(name, caption, "forest", [{"none": none, **row} for row in rows], x)


def funnel(name: str, caption: str, rows: Sequence[Mapping[str, Any]], middle: float, x: str) -> FoundChart:
    """Rows have `name`, `value` and `error`; `middle` is the pooled effect."""
    return FoundChart(name, caption, "funnel", [{"middle": middle, **row} for row in rows], x, "standard error")


def bars(name: str, caption: str, series: Mapping[str, tuple[Sequence[Any], Any]], x: str, y: str) -> FoundChart:
    """By the name of a group: what stands below the bars, and how high they are."""
    told = [{"name": key, "x": list(below), "y": numbers(high)} for key, (below, high) in series.items()]
    return FoundChart(name, caption, "bars", told, x, y)


def heat(name: str, caption: str, rows: Sequence[str], columns: Sequence[str], values: Any) -> FoundChart:
    """One entry of the series a row: its name, the names of the columns, and the values."""
    told = [{"name": row, "x": list(columns), "y": numbers(line)} for row, line in zip(rows, values, strict=True)]
    return FoundChart(name, caption, "heat", told)
