"""The charts of results: scores by hospital, their spread over many hospitals, differences."""

from collections.abc import Sequence

from wardround.report import numbers
from wardround.report.html.charts import Chart, Spec, layout, rows_axis, span
from wardround.report.html.markup import chart_label, plain
from wardround.report.html.palette import INK, QUIET, colour, mark
from wardround.report.metric_names import MEANINGS, direction, label_of
from wardround.report.run.summary import interval_name
from wardround.report.unit import units_of
from wardround.runs.result import ALL, MethodDifference
from wardround.runs.run import Run
from wardround.runs.scores import MetricValue

MANY = 30
"""Above so many hospitals a row each helps nobody: their distribution is shown instead."""
BOUNDED = {
    "roc_auc",
    "pr_auc",
    "accuracy",
    "balanced_accuracy",
    "f1",
    "precision",
    "recall",
    "brier",
    "c_index",
    "integrated_brier",
}


def bounds(metric: str) -> tuple[float | None, float | None]:
    return (0.0, 1.0) if metric in BOUNDED else (None, None)


def scores(run: Run) -> Chart | None:
    """The main measure: a row a hospital when they are few, else the spread over hospitals."""
    if not run.metric or not any(run.metric in own for m in run.methods for own in m.scores.sites.values()):
        return None
    return scores_by_hospital(run) if len(run.hospitals) <= MANY else scores_spread(run)


def scores_by_hospital(run: Run) -> Chart:
    metric, rows = run.metric, [h.name for h in run.hospitals]
    together = len(rows) > 1 and any(metric in m.scores.weighted for m in run.methods)
    step = 0.7 / max(1, len(run.methods))
    traces: list[Spec] = []
    notes: list[Spec] = []
    seen: list[float] = []
    has_intervals = False
    for index, method in enumerate(run.methods):
        measures = [method.at(site, metric) for site in rows]
        if together:
            measures.append(method.over_all(metric))
        places = [row + step * (index - (len(run.methods) - 1) / 2) for row in range(len(measures))]
        traces.append(dots(method.label, index, measures, places, [*rows, "All hospitals"]))
        seen += [x for m in measures for x in (m.value, m.low, m.high) if x is not None]
        has_intervals |= any(m.low is not None for m in measures)
        notes += [
            missing_score_label(method.label, measure.reason, place, index)
            for measure, place in zip(measures, places, strict=True)
            if measure.value is None
        ]
    names = [*rows, f"All hospitals, by {units_of(run)}"] if together else rows
    low, high = bounds(metric)
    reach = span(seen, floor=low, ceiling=high)
    chance = neutral_value(metric)
    shapes = [vertical_line(chance)] if chance is not None and reach[0] <= chance else []
    if together:
        shapes.append(horizontal_line(len(rows) - 0.5))
    height = 110 + round(len(names) * (26 + 15 * len(run.methods)))
    title = ", ".join(part for part in (label_of(metric), direction(metric)) if part)
    return Chart(
        title=f"{label_of(metric)} at each hospital" + (f" (lines: {interval_name(run)}s)" if has_intervals else ""),
        description=f"Dot plot of {label_of(metric)} with intervals for {len(rows)} hospitals and {len(run.methods)} "
        "models. The table of all scores has the same numbers.",
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": chart_label(title, 60)}, "range": reach},
            y=rows_axis(names),
            shapes=shapes,
            annotations=notes,
        ),
        height=height,
    )


def neutral_value(metric: str) -> float | None:
    return MEANINGS[metric].neutral if metric in MEANINGS else None


def vertical_line(x: float) -> Spec:
    """A dotted line where a model that knows nothing would be."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"} | {
        "line": {"color": QUIET, "width": 1.2, "dash": "dot"}
    }


def horizontal_line(y: float) -> Spec:
    return {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": y, "y1": y} | {
        "line": {"color": QUIET, "width": 0.8}
    }


def dots(name: str, index: int, measures: Sequence[MetricValue], places: Sequence[float], rows: Sequence[str]) -> Spec:
    known = [(m, y, row) for m, y, row in zip(measures, places, rows, strict=False) if m.value is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": chart_label(name),
        "x": [m.value for m, _, _ in known],
        "y": [y for _, y, _ in known],
        "marker": {"color": colour(index), "symbol": mark(index), "size": 10},
        "error_x": {
            "type": "data",
            "symmetric": False,
            # No bar where there is no interval: of zero length it would claim certainty only to those who look closely.
            "array": [upper_error(m) for m, _, _ in known],
            "arrayminus": [lower_error(m) for m, _, _ in known],
            "color": colour(index),
            "thickness": 2,
            "width": 0,
        },
        "hoverinfo": "text",
        "hovertext": [hover_text(row, name, m) for m, _, row in known],
    }


def upper_error(measure: MetricValue) -> float:
    return max(0.0, measure.high - measure.value) if measure.high is not None and measure.value is not None else 0.0


def lower_error(measure: MetricValue) -> float:
    return max(0.0, measure.value - measure.low) if measure.low is not None and measure.value is not None else 0.0


def hover_text(row: str, name: str, measure: MetricValue) -> str:
    lines = [f"<b>{chart_label(row, 60)}</b>", chart_label(name, 60), numbers.score(measure.value or 0.0)]
    if numbers.interval(measure):
        lines[-1] += f" ({numbers.interval(measure)})"
    return "<br>".join(lines)


def missing_score_label(name: str, reason: str, y: float, index: int) -> Spec:
    """Words where a dot would be."""
    return {
        "x": 0.01,
        "xref": "paper",
        "xanchor": "left",
        "y": y,
        "text": chart_label(f"{plain(name)}: {plain(reason)}", 64),
        "showarrow": False,
        "font": {"size": 11.5, "color": colour(index)},
    }


def scores_spread(run: Run) -> Chart:
    """Half of the hospitals lie in the box, and every hospital counts the same."""
    traces: list[Spec] = []
    values: list[float] = []
    for index, method in enumerate(run.methods):
        own = [x for h in run.hospitals if (x := method.at(h.name, run.metric).value) is not None]
        values += own
        traces.append(
            {
                "type": "box",
                "orientation": "h",
                "name": chart_label(method.label),
                "x": own,
                "y": [index] * len(own),
                "marker": {"color": colour(index), "size": 3, "opacity": 0.45},
                "line": {"width": 1.6},
                "width": 0.5,
                "boxpoints": "outliers",
                "hoverinfo": "x",
                "showlegend": False,
            }
        )
    height = 120 + 64 * len(run.methods)
    low, high = bounds(run.metric)
    title = ", ".join(part for part in (label_of(run.metric), direction(run.metric)) if part)
    return Chart(
        title=f"{label_of(run.metric)} over {len(run.hospitals):,} hospitals",
        description=f"Box plots of {label_of(run.metric)} over {len(run.hospitals)} hospitals, one for each of "
        f"{len(run.methods)} models. Percentiles are in a table further down.",
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": chart_label(title, 60)}, "range": span(values, floor=low, ceiling=high)},
            y=rows_axis([method.label for method in run.methods]),
        ),
        height=height,
    )


def main_differences(run: Run) -> list[MethodDifference]:
    """Those of the main measure; with many hospitals only the one over all of them."""
    own = [d for d in run.differences if d.metric == run.metric and d.measure.value is not None]
    return own if len({d.site for d in own}) <= MANY else [d for d in own if d.site == ALL]


def differences(run: Run) -> Chart | None:
    """Differences with intervals around a line at zero, a colour for each pair of methods."""
    entries = main_differences(run)
    if not entries:
        return None
    pairs = list(dict.fromkeys((d.method, d.against) for d in entries))
    sites = list(dict.fromkeys(d.site for d in entries))
    step = 0.7 / len(pairs)
    traces = []
    for index, pair in enumerate(pairs):
        own = [d for d in entries if (d.method, d.against) == pair]
        places = [sites.index(d.site) + step * (index - (len(pairs) - 1) / 2) for d in own]
        name = f"{plain(run.method(pair[0]).label)} − {plain(run.method(pair[1]).label)}"
        # Marks go on after those of the methods, so that nobody takes a pair for a method.
        traces.append(dots(name, index + 3, [d.measure for d in own], places, [place_name(d.site) for d in own]))
        traces[-1]["name"] = chart_label(name, 70)
    values = [x for d in entries for x in (d.measure.value, d.measure.low, d.measure.high, 0.0) if x is not None]
    height = 130 + round(len(sites) * (26 + 15 * len(pairs))) + 18 * max(0, len(pairs) - 2)
    zero = vertical_line(0.0) | {"line": {"color": INK, "width": 1.2}}
    return Chart(
        title=f"Differences in {label_of(run.metric)} on the same {units_of(run)}",
        description=f"Differences in {label_of(run.metric)} with intervals, for {len(pairs)} pairs of models at "
        f"{len(sites)} places. An interval that crosses the line at zero shows no difference. The table below has "
        "the same numbers and a verdict in words.",
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": chart_label(f"difference in {label_of(run.metric)}", 60)}, "range": span(values)},
            y=rows_axis([place_name(site) for site in sites]),
            shapes=[zero],
        ),
        height=height,
    )


def place_name(site: str) -> str:
    return "All hospitals" if site == ALL else site
