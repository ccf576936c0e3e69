"""The parts that all charts share: a chart is plain data for Plotly, with words for those who cannot see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wardround.report.html.markup import chart_label
from wardround.report.html.palette import INK, LINE, QUIET

Spec = dict[str, Any]

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True)
class Chart:
    """`spoken` is what a screen reader says; `half` charts stand side by side where there is room."""

    title: str
    description: str
    traces: Sequence[Spec]
    layout: Spec
    height: int
    half: bool = False


def layout(height: int, *, x: Spec | None = None, y: Spec | None = None, **rest: Any) -> Spec:
    """The look of all charts: white, thin lines, no frame, legend above."""
    axis = {
        "gridcolor": LINE,
        "linecolor": LINE,
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
        "tickfont": {"color": INK},
        "title": {"font": {"color": QUIET, "size": 13}, "standoff": 10},
    }
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 10, "r": 16, "t": 36, "b": 44},
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": LINE, "font": {"color": INK}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "traceorder": "normal"}
        | {"bgcolor": "rgba(0,0,0,0)"},
        "hovermode": "closest",
        "dragmode": False,
        "xaxis": overlay(axis, x or {}),
        "yaxis": overlay(axis, y or {}),
        **rest,
    }


def overlay(under: Spec, over: Spec) -> Spec:
    """`over` laid on `under`, tables within tables too."""
    both = dict(under)
    for key, value in over.items():
        both[key] = overlay(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
    return both


def rows_axis(names: Sequence[str]) -> Spec:
    """An axis with one row a name, the first on top.

    Rows are numbers and the names their labels: as categories, names such as "1" or "2020-01-01" would be taken for
    numbers or dates, and two equal names would fall into one row.
    """
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [chart_label(name, 26) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
        "ticks": "",
    }


def span(values: Sequence[float], *, floor: float | None = None, ceiling: float | None = None) -> list[float]:
    """A range that holds all values with some air, not past the floor and the ceiling by more than a marker."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    air = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - air, high + air
    edge = 0.02 * (high - low)
    return [low if floor is None else max(low, floor - edge), high if ceiling is None else min(high, ceiling + edge)]
