"""What the model looks at: the columns that move its predictions most."""

from wardround.report import numbers
from wardround.report.clinical.leader import leader_first, others_below, part_of
from wardround.report.html.charts import Chart, Spec, layout, rows_axis, span
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, bullets, chart_label, join, paragraph, plain, safe
from wardround.report.html.palette import COLOURS, QUIET, colour
from wardround.report.metric_names import label_of
from wardround.runs.clinical.figures import ColumnImportance, ModelImportance
from wardround.runs.result import MethodResult
from wardround.runs.run import Run

MOST = 15
"""Columns that are drawn."""
PERMUTATION = "permutation"
RAISES, LOWERS = COLOURS[1], COLOURS[0]


def importance_section(run: Run) -> Html:
    found = {m.name: one for m in run.methods if (one := part_of(m, lambda figures: figures.importance))}
    shown = leader_first(run, tuple(m for m in run.methods if m.name in found and found[m.name].columns))
    without = [m for m in run.methods if m.name in found and found[m.name].reason]
    if not shown and not without:
        return Html("")
    parts = [caution()] if shown else []
    if shown:
        if len(run.methods) > 1:
            parts.append(paragraph(Html(f"Shown for <strong>{safe(shown[0].label)}</strong>.")))
        parts.append(of_method(run, shown[0], found[shown[0].name]))
        parts.append(others_below(shown, lambda method: of_method(run, method, found[method.name])))
    if without:
        parts.append(
            bullets(safe(f"{plain(m.label)}: not shown, since {plain(found[m.name].reason)}.") for m in without)
        )
    return join(parts)


def caution() -> Html:
    return paragraph(
        safe(
            "What moves the prediction need not cause the outcome, and changing it need not help a patient. Columns "
            "that carry the same information share their importance or hide each other's."
        )
    )


def of_method(run: Run, method: MethodResult, found: ModelImportance) -> Html:
    name = f"importance-{run.methods.index(method)}"
    return join([paragraph(safe(meaning(found))), chart_figures(name, [importance_chart(run, method, found)])])


def meaning(found: ModelImportance) -> str:
    rows = f"{found.rows:,} " if found.rows else ""
    if found.kind == PERMUTATION:
        words = (
            f"By how much {label_of(found.metric)} gets worse when the values of a column are shuffled among {rows}"
            "validation patients (lines: lowest and highest of the shuffles)."
        )
    else:
        words = (
            "Standardised coefficients: how much a column moves the prediction (on the scale of log-odds, or of the "
            f"predicted value) when it changes by one standard deviation among {rows}training patients. A column of "
            "categories counts as a whole."
        )
    more = len(found.columns) - MOST
    return f"{words} The first {MOST} of {len(found.columns)} columns." if more > 0 else words


def importance_chart(run: Run, method: MethodResult, found: ModelImportance) -> Chart:
    columns = [one for one in found.columns if one.value is not None][:MOST]
    permuted = found.kind == PERMUTATION
    values = [abs(one.value or 0.0) if not permuted else one.value or 0.0 for one in columns]
    shades = [colour(run.methods.index(method)) if permuted else shade(one) for one in columns]
    height = 90 + 26 * len(columns)
    trace: Spec = {
        "type": "bar",
        "orientation": "h",
        "x": values,
        "y": list(range(len(columns))),
        "width": 0.65,
        "marker": {"color": shades},
        "hoverinfo": "text",
        "hovertext": [f"{chart_label(one.column, 60)}: {numbers.score(one.value or 0.0)}" for one in columns],
        "showlegend": False,
    }
    ends = [0.0, *values]
    if permuted:
        highs = [one.high if one.high is not None else one.value or 0.0 for one in columns]
        lows = [one.low if one.low is not None else one.value or 0.0 for one in columns]
        ends += [*highs, *lows]
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - value for high, value in zip(highs, values, strict=True)],
            "arrayminus": [value - low for low, value in zip(lows, values, strict=True)],
            "thickness": 1.4,
            "width": 3,
        }
    else:
        trace["text"] = [arrow(one) for one in columns]
        trace["textposition"] = "outside"
        trace["cliponaxis"] = False
        ends.append(1.35 * max(ends))
    title = f"loss of {label_of(found.metric)}" if permuted else "size of the standardised coefficient"
    return Chart(
        title=f"{method.label}: the columns that count most",
        description=f"Bars of {len(columns)} columns, the most important first: "
        + ", ".join(plain(one.column) for one in columns[:5])
        + ".",
        traces=[trace],
        layout=layout(
            height,
            x={"title": {"text": chart_label(title, 60)}, "range": span(ends)},
            y=rows_axis([one.column for one in columns]),
        ),
        height=height,
    )


def shade(one: ColumnImportance) -> str:
    return QUIET if not one.directed else LOWERS if (one.value or 0.0) < 0 else RAISES


def arrow(one: ColumnImportance) -> str:
    """Which way a higher value moves the prediction, and how far."""
    value = one.value or 0.0
    if one.directed:
        return f"{'lowers' if value < 0 else 'raises'} {numbers.score(abs(value))}"
    return numbers.score(abs(value)) + (f", highest: {chart_label(one.highest, 20)}" if one.highest else "")
