"""The charts of a monitor: predicted and observed over time, and the evidence of a change."""

from collections.abc import Sequence

from wardround.monitor.summary import MonitorSummary
from wardround.report.html.charts import Chart, Spec, layout
from wardround.report.html.markup import chart_label
from wardround.report.html.palette import colour, mark


def window_axis(names: Sequence[str]) -> Spec:
    """Windows as numbers with labels, about a dozen of which are written."""
    step = max(1, len(names) // 12)
    places = list(range(0, len(names), step))
    return {
        "tickvals": places,
        "ticktext": [chart_label(names[place]) for place in places],
        "range": [-0.5, len(names) - 0.5],
        "showgrid": False,
    }


def calibration_chart(summary: MonitorSummary) -> Chart | None:
    """Means predicted and observed, window by window."""
    known = [(place, one) for place, one in enumerate(summary.windows) if one.observed.value is not None]
    if not known:
        return None
    places = [place for place, _ in known]
    observed = [one.observed for _, one in known]
    values = [one.value or 0.0 for one in observed]
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "predicted",
            "x": places,
            "y": [one.predicted for _, one in known],
            "line": {"color": colour(0), "width": 2},
            "marker": {"symbol": mark(0), "size": 7},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "observed (95 % interval)",
            "x": places,
            "y": values,
            "marker": {"color": colour(1), "symbol": mark(1), "size": 8},
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [(one.high or value) - value for one, value in zip(observed, values, strict=True)],
                "arrayminus": [
                    value - (value if one.low is None else one.low) for one, value in zip(observed, values, strict=True)
                ],
                "color": colour(1),
                "thickness": 1.5,
                "width": 0,
            },
        },
    ]
    of_classes = "share with the outcome" if summary.risk else "share predicted rightly"
    what = f"mean {summary.target}" if summary.quantity else of_classes
    y: Spec = {"title": {"text": chart_label(what, 60)}}
    if not summary.quantity:
        y |= {"rangemode": "tozero", "tickformat": ".0%"}
    return Chart(
        title="Predicted and observed, window by window",
        description=f"Line of predicted and dots of observed values in {len(known)} windows. The table has them.",
        traces=traces,
        layout=layout(320, x=window_axis([one.name for one in summary.windows]), y=y),
        height=320,
    )


def evidence_chart(summary: MonitorSummary) -> Chart | None:
    """The highest capital of the bets in each window, as a share of its limit."""
    if not summary.windows:
        return None
    names = [one.name for one in summary.windows]
    lines = (
        ("calibration", [one.evidence_calibration / summary.calibration_limit for one in summary.windows]),
        ("inputs", [one.evidence_inputs / summary.input_limit for one in summary.windows]),
    )
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(range(len(names))),
            "y": [min(max(value, 1e-4), 1e4) for value in values],
            "line": {"color": colour(index), "width": 2},
            "marker": {"symbol": mark(index), "size": 7},
        }
        for index, (name, values) in enumerate(lines)
    ]
    limit: Spec = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": 1, "y1": 1}
    limit["line"] = {"color": colour(1), "width": 1.5, "dash": "dot"}
    y: Spec = {"title": {"text": "evidence / limit"}, "type": "log", "range": [-4.2, 4.2]}
    y |= {"tickvals": [1e-4, 1e-2, 1, 1e2, 1e4], "ticktext": ["1/10,000", "1/100", "1", "100", "10,000"]}
    return Chart(
        title="Evidence of a change (the dotted line is the alarm)",
        description="Evidence over the windows, for calibration and for inputs, against the limit of the alarm.",
        traces=traces,
        layout=layout(300, x=window_axis(names), y=y, shapes=[limit]),
        height=300,
    )
