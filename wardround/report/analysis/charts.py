"""The charts of an analysis, drawn from their data by kind; what a kind needs is told at `FoundChart`."""

from collections.abc import Callable, Mapping, Sequence
from math import log10
from typing import Any

from wardround.report import numbers
from wardround.report.html.charts import Chart, Spec, layout, rows_axis, span
from wardround.report.html.markup import chart_label, plain
from wardround.report.html.palette import INK, LINE, QUIET, colour, mark, with_opacity
from wardround.runs.analyses.analysis_result import ResultChart
from wardround.runs.fields import items, number

Series = Mapping[str, Any]
HEIGHT = 380
TWO_SIDED = 1.959964
"""Standard errors on either side of a normal interval of 95 %."""


def chart_of(found: ResultChart) -> Chart | None:
    """The chart, or none where its kind is not known or it has no data."""
    draw = KINDS.get(found.kind)
    return draw(found) if draw is not None and found.series else None


def known(one: Series, key: str) -> float | None:
    return number(one.get(key))


def values(one: Series, key: str) -> list[float | None]:
    return [number(value) for value in items(one.get(key))]


def name_of(one: Series) -> str:
    return str(one.get("name") or "")


def titled(found: ResultChart, traces: Sequence[Spec], look: Spec, height: int = HEIGHT) -> Chart:
    words = f"{found.kind} chart with {len(found.series)} series. The tables have the same numbers."
    return Chart(found.caption, f"{plain(found.caption)}: {words}", traces, look, height)


def axes(found: ResultChart, **more: Spec) -> dict[str, Spec]:
    return {"x": {**named_axis(found.x), **more.get("x", {})}, "y": {**named_axis(found.y), **more.get("y", {})}}


def named_axis(name: str) -> Spec:
    return {"title": {"text": chart_label(name, 60)}} if name else {}


# ---- forest and funnel ----


def forest(found: ResultChart) -> Chart:
    """A row for every estimate with its interval, a diamond for a summary, a line where there is no effect."""
    rows = list(found.series)
    drawn = [(at, one) for at, one in enumerate(rows) if known(one, "value") is not None]
    on_log = any(one.get("log") for one in rows) and all((known(one, "value") or 0) > 0 for _, one in drawn)
    nulls = [line for one in rows if (line := known(one, "null")) is not None]
    weights = [known(one, "weight") or 0.0 for _, one in drawn]
    heaviest = max(weights, default=0.0)
    seen = [x for _, one in drawn for key in ("value", "low", "high") if (x := known(one, key)) is not None] + nulls[:1]
    height = 90 + 26 * len(rows)
    right = {
        **rows_axis([""] * len(rows)),
        "ticktext": [interval_label(one) for one in rows],
        "overlaying": "y",
        "side": "right",
        "automargin": True,
        "fixedrange": True,
        "zeroline": False,
        "tickfont": {"color": INK, "size": 12},
    }
    left = {**rows_axis([name_of(one) for one in rows]), "ticktext": [row_label(one) for one in rows]}
    across: Spec = {**named_axis(found.x), **axis_range(seen, on_log)}
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [known(one, "value") for _, one in drawn],
            "y": [at for at, _ in drawn],
            "marker": {
                "color": colour(0),
                "size": [
                    14 if one.get("summary") else 6 + 8 * (weight / heaviest) ** 0.5 if heaviest else 9
                    for (_, one), weight in zip(drawn, weights, strict=True)
                ],
                "symbol": ["diamond" if one.get("summary") else "square" for _, one in drawn],
            },
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [reach(one, "high") for _, one in drawn],
                "arrayminus": [reach(one, "low") for _, one in drawn],
                "color": colour(0),
                "thickness": 1.8,
                "width": 0,
            },
            "hoverinfo": "text",
            "hovertext": [f"{row_label(one)}<br>{interval_label(one)}" for _, one in drawn],
            "showlegend": False,
        },
        # An axis is drawn only where something lies on it.
        {"type": "scatter", "x": [], "y": [], "yaxis": "y2", "showlegend": False, "hoverinfo": "skip"},
    ]
    shapes = [line_at(nulls[-1])] if nulls and (nulls[-1] > 0 or not on_log) else []
    return titled(found, traces, layout(height, x=across, y=left, shapes=shapes) | {"yaxis2": right}, height)


def axis_range(seen: Sequence[float], on_log: bool) -> Spec:
    if not on_log:
        return {"range": span(seen)}
    # Plotly takes the ends of a logarithmic axis as powers of ten.
    return {"type": "log", "range": span([log10(one) for one in seen if one > 0]), "nticks": 6}


def line_at(x: float) -> Spec:
    ends = {"x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **ends, "line": {"color": QUIET, "width": 1, "dash": "dot"}}


def reach(one: Series, end: str) -> float:
    value, limit = known(one, "value"), known(one, end)
    return 0.0 if value is None or limit is None else abs(limit - value)


def row_label(one: Series) -> str:
    label = chart_label(name_of(one), 34)
    return f"<b>{label}</b>" if one.get("heading") or one.get("summary") else label


def interval_label(one: Series) -> str:
    value, low, high = (known(one, key) for key in ("value", "low", "high"))
    if value is None:
        return "" if one.get("heading") else "not known"
    ends = f" ({numbers.score(low)} to {numbers.score(high)})" if low is not None and high is not None else ""
    return numbers.score(value) + ends


def funnel(found: ResultChart) -> Chart:
    """Estimates against their standard errors; 95 % of unbiased ones lie inside the funnel."""
    points = [one for one in found.series if known(one, "error") is not None and known(one, "value") is not None]
    middle = next((known(one, "value") for one in found.series if one.get("summary")), None)
    errors = [known(one, "error") or 0.0 for one in points]
    deepest = 1.1 * max(errors, default=1.0)
    traces: list[Spec] = []
    if middle is not None:
        far = TWO_SIDED * deepest
        sides = {"x": [middle - far, middle, middle + far], "y": [deepest, 0.0, deepest]}
        traces.append(line_trace(sides, QUIET, dash="dot") | {"showlegend": False, "hoverinfo": "skip"})
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": [known(one, "value") for one in points],
            "y": errors,
            "marker": {"color": colour(0), "size": 9},
            "hoverinfo": "text",
            "hovertext": [chart_label(name_of(one)) for one in points],
            "showlegend": False,
        }
    )
    shapes = [line_at(middle)] if middle is not None else []
    look = layout(HEIGHT, **axes(found, y={"range": [deepest, 0.0]}), shapes=shapes)
    return titled(found, traces, look)


# ---- lines and points ----


def line_trace(data: Spec, ink: str, dash: str = "solid", shape: str = "linear") -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        **data,
        "line": {"color": ink, "width": 2, "dash": dash, "shape": shape},
    }


def courses(found: ResultChart, shape: str) -> Chart:
    """One line a series, with its band below where it has one."""
    traces: list[Spec] = []
    for index, one in enumerate(found.series):
        ink, x, y = colour(index), values(one, "x"), values(one, "y")
        low, high = values(one, "low"), values(one, "high")
        label = chart_label(name_of(one))
        if len(low) == len(high) == len(x) and x:
            edge = {
                "line": {"width": 0, "shape": shape},
                "hoverinfo": "skip",
                "showlegend": False,
                "legendgroup": index,
            }
            below = {"type": "scatter", "mode": "lines", "x": x, "y": low, **edge}
            above = {"type": "scatter", "mode": "lines", "x": x, "y": high, **edge}
            traces += [below, {**above, "fill": "tonexty", "fillcolor": with_opacity(ink, 0.15)}]
        dash = ("solid", "dash", "dot", "dashdot")[(index // 7) % 4]
        named: Spec = {"name": label, "legendgroup": index, "showlegend": len(found.series) > 1 and bool(label)}
        traces.append(line_trace({"x": x, "y": y}, ink, dash, shape) | named)
    return titled(found, traces, layout(HEIGHT, **axes(found)))


def points(found: ResultChart) -> Chart:
    traces: list[Spec] = []
    for index, one in enumerate(found.series):
        label, words = chart_label(name_of(one)), [chart_label(text, 60) for text in items(one.get("text"))]
        trace: Spec = {
            "type": "scatter",
            "mode": "markers",
            "x": values(one, "x"),
            "y": values(one, "y"),
            "name": label,
            "marker": {"color": colour(index), "symbol": mark(index), "size": 8},
            "showlegend": len(found.series) > 1 and bool(label),
        }
        low, high = values(one, "low"), values(one, "high")
        if len(low) == len(high) == len(trace["y"]) and low:
            trace["error_y"] = {
                "type": "data",
                "symmetric": False,
                "array": [gap(top, y) for top, y in zip(high, trace["y"], strict=True)],
                "arrayminus": [gap(y, bottom) for bottom, y in zip(low, trace["y"], strict=True)],
                "color": colour(index),
                "thickness": 1.2,
                "width": 0,
            }
        traces.append(trace | ({"hoverinfo": "text", "hovertext": words} if words else {}))
    return titled(found, traces, layout(HEIGHT, **axes(found)))


def gap(upper: float | None, lower: float | None) -> float:
    return 0.0 if upper is None or lower is None else max(0.0, upper - lower)


# ---- bars and heat ----


def bars(found: ResultChart) -> Chart:
    """Groups of bars side by side; words under them are labels of places, so that "1" stays a word."""
    places = list(dict.fromkeys(str(word) for one in found.series for word in items(one.get("x"))))
    traces: list[Spec] = [
        {
            "type": "bar",
            "x": [places.index(str(word)) for word in items(one.get("x"))],
            "y": values(one, "y"),
            "name": chart_label(name_of(one)),
            "marker": {"color": colour(index)},
            "showlegend": len(found.series) > 1,
        }
        for index, one in enumerate(found.series)
    ]
    below: Spec = {"tickvals": list(range(len(places))), "ticktext": [chart_label(place, 20) for place in places]}
    return titled(found, traces, layout(HEIGHT, **axes(found, x=below), barmode="group"))


def heat(found: ResultChart) -> Chart:
    """A table of shades; one scale from white, or two colours around 0 where values have both signs."""
    one = found.series[0]
    across, down = ([str(word) for word in items(one.get(key))] for key in ("x", "y"))
    rows = [[number(value) for value in items(row)] for row in items(one.get("z"))]
    seen = [value for row in rows for value in row if value is not None]
    largest = max((abs(value) for value in seen), default=1.0) or 1.0
    two_signs = min(seen, default=0.0) < 0
    scale = [[0, colour(1)], [0.5, "#ffffff"], [1, colour(0)]] if two_signs else [[0, "#ffffff"], [1, colour(0)]]
    height = 120 + 26 * len(down)
    trace: Spec = {
        "type": "heatmap",
        "x": list(range(len(across))),
        "y": list(range(len(down))),
        "z": rows,
        "zmin": -largest if two_signs else min(0.0, *seen) if seen else 0.0,
        "zmax": largest,
        "colorscale": scale,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"thickness": 12, "outlinecolor": LINE},
        "hoverongaps": False,
    }
    below: Spec = {"tickvals": list(range(len(across))), "ticktext": [chart_label(word, 20) for word in across]}
    return titled(found, [trace], layout(height, **axes(found, x=below, y=rows_axis(down))), height)


KINDS: Mapping[str, Callable[[ResultChart], Chart]] = {
    "forest": forest,
    "funnel": funnel,
    "steps": lambda found: courses(found, "hv"),
    "lines": lambda found: courses(found, "linear"),
    "points": points,
    "bars": bars,
    "heat": heat,
}
