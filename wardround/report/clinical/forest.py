"""A forest plot: the main measure over all patients, at every hospital and for every group, with intervals."""

from typing import NamedTuple

from wardround.report import numbers
from wardround.report.clinical.leader import leader_first, others_below
from wardround.report.html.charts import Chart, Spec, layout, span
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, chart_label, join, paragraph, plain, safe
from wardround.report.html.palette import INK, QUIET, colour
from wardround.report.metric_names import direction, is_lower_better, label_of, meaning_of
from wardround.report.run.score_charts import lower_error, upper_error, vertical_line
from wardround.report.run.summary import interval_name
from wardround.runs.fields import whole
from wardround.runs.result import MethodResult
from wardround.runs.run import Run
from wardround.runs.scores import MetricValue

MANY = 24
"""Hospitals above which only the lowest and the highest are drawn."""
ENDS = 8
MOST_GROUPS = 12


class ForestRow(NamedTuple):
    """A line of the plot; one without a figure is a heading."""

    name: str
    rows: int | None = None
    figure: MetricValue | None = None


def forest_section(run: Run) -> Html:
    """For the best model, the others folded away; nothing where one line would be all."""
    shown = methods_shown(run)
    if not shown:
        return Html("")
    words = [f"{label_of(run.metric)}: {meaning_of(run.metric) or direction(run.metric)}."]
    if len(run.methods) > 1:
        words.append(f"Shown for “{plain(shown[0].label)}”.")
    if len(run.hospitals) > MANY:
        words.append(
            f"Of {len(run.hospitals):,} hospitals the {ENDS} with the lowest and the {ENDS} with the highest score are "
            "shown; differences between such ends are partly chance."
        )
    if not shown[0].scores.groups:
        words.append("The study names no groups of patients ([data] groups), so there are no subgroups to show.")
    return join(
        [
            paragraph(safe(" ".join(words))),
            chart_figures("forest", [forest_chart(run, shown[0])]),
            undefined_words(run, shown[0]),
            others_below(shown, lambda m: chart_figures(f"forest-{run.methods.index(m)}", [forest_chart(run, m)])),
        ]
    )


def methods_shown(run: Run) -> tuple[MethodResult, ...]:
    known = tuple(method for method in run.methods if run.metric and len(forest_rows(run, method)) > 3)
    return leader_first(run, known)


def leader_chart(run: Run) -> Chart | None:
    """The plot of the model that is shown first."""
    shown = methods_shown(run)
    return forest_chart(run, shown[0]) if shown else None


def undefined_words(run: Run, method: MethodResult) -> Html:
    """Why lines have no figure."""
    reasons = [
        f"{plain(row.name)}: {plain(row.figure.reason)}"
        for row in forest_rows(run, method)
        if row.figure is not None and row.figure.value is None
    ]
    return paragraph(safe(f"Not defined for {'; '.join(reasons)}.")) if reasons else Html("")


def forest_rows(run: Run, method: MethodResult) -> list[ForestRow]:
    metric, scores = run.metric, method.scores
    rows: list[ForestRow] = []
    sites = [(name, own[metric]) for name, own in scores.sites.items() if metric in own]
    if len(sites) > 1:
        count = sum(whole(scores.rows.get(name)) or 0 for name, _ in sites)
        rows.append(ForestRow("All hospitals", count or None, method.over_all(metric)))
        rows.append(ForestRow("By hospital"))
    rows += [ForestRow(name, patients_at(run, method, name), one) for name, one in ends_of(run, sites)]
    for column, groups in scores.groups.items():
        own = [(name, group) for name, group in groups.items() if metric in group.metrics][:MOST_GROUPS]
        if own:
            rows.append(ForestRow(f"By {plain(column)}"))
            rows += [ForestRow(name, whole(group.rows), group.metrics[metric]) for name, group in own]
    return rows


def ends_of(run: Run, sites: list[tuple[str, MetricValue]]) -> list[tuple[str, MetricValue]]:
    """All hospitals, or of many the lowest and the highest with a score."""
    if len(sites) <= MANY:
        return sites
    lower = is_lower_better(run.metric) or False
    known = [one for one in sites if one[1].value is not None]
    ordered = sorted(known, key=lambda one: one[1].value or 0.0, reverse=lower)
    return [*ordered[:ENDS], *ordered[-ENDS:]]


def patients_at(run: Run, method: MethodResult, site: str) -> int | None:
    own = whole(method.scores.rows.get(site))
    return own if own is not None else next((h.test for h in run.hospitals if h.name == site), None)


def forest_chart(run: Run, method: MethodResult) -> Chart:
    rows = forest_rows(run, method)
    index = run.methods.index(method)
    known = [(at, row, row.figure) for at, row in enumerate(rows) if row.figure and row.figure.value is not None]
    most = max([row.rows or 1 for _, row, _ in known[1:]] or [1])
    sizes = [14 if "All hospitals" in row.name else 6 + 8 * ((row.rows or 1) / most) ** 0.5 for _, row, _ in known]
    seen = [x for _, _, one in known for x in (one.value, one.low, one.high) if x is not None]
    overall = next((one.value for _, row, one in known if "All hospitals" in row.name), None)
    left: Spec = {
        "tickvals": list(range(len(rows))),
        "ticktext": [row_label(row) for row in rows],
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,
        "ticks": "",
    }
    right = {
        **left,
        "ticktext": [value_label(row) for row in rows],
        "overlaying": "y",
        "side": "right",
        "automargin": True,
        "fixedrange": True,
        "zeroline": False,
        "tickfont": {"color": INK, "size": 12},
    }
    height = 90 + 26 * len(rows)
    about = ", ".join(part for part in (label_of(run.metric), direction(run.metric)) if part)
    return Chart(
        title=f"{method.label}: {label_of(run.metric)} by hospital and group (lines: {interval_name(run)}s)",
        description=f"Forest plot of {label_of(run.metric)} with {len(known)} lines. The numbers stand at the right.",
        traces=[
            {
                "type": "scatter",
                "mode": "markers",
                "x": [one.value for _, _, one in known],
                "y": [at for at, _, _ in known],
                "marker": {
                    "color": colour(index),
                    "size": sizes,
                    "symbol": ["diamond" if "All hospitals" in row.name else "square" for _, row, _ in known],
                },
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [upper_error(one) for _, _, one in known],
                    "arrayminus": [lower_error(one) for _, _, one in known],
                    "color": colour(index),
                    "thickness": 1.8,
                    "width": 0,
                },
                "hoverinfo": "text",
                "hovertext": [f"{row_label(row)}<br>{value_label(row)}" for _, row, _ in known],
                "showlegend": False,
            },
            # An axis is drawn only where something lies on it.
            {"type": "scatter", "x": [], "y": [], "yaxis": "y2", "showlegend": False, "hoverinfo": "skip"},
        ],
        layout=layout(
            height,
            x={"title": {"text": chart_label(about, 60)}, "range": span(seen)},
            y=left,
            shapes=[vertical_line(overall) | {"line": {"color": QUIET, "width": 1, "dash": "dot"}}]
            if overall is not None
            else [],
        )
        | {"yaxis2": right},
        height=height,
    )


def row_label(row: ForestRow) -> str:
    if row.figure is None:
        return f"<b>{chart_label(row.name, 26)}</b>"
    size = "" if row.rows is None else f" ({row.rows:,})"
    return chart_label(row.name, 24) + size


def value_label(row: ForestRow) -> str:
    if row.figure is None:
        return ""
    if row.figure.value is None:
        return "not defined"
    ends = numbers.interval(row.figure)
    return numbers.score(row.figure.value) + (f" ({ends})" if ends else "")
