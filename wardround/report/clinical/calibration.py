"""Calibration: do patients who are given a risk of 30 % have the outcome in 30 % of cases?"""

from collections.abc import Sequence

from wardround.report import numbers
from wardround.report.clinical.leader import leader_first, others_below, part_of, which_model
from wardround.report.html.charts import Chart, Spec, layout, span
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, bullets, details, join, paragraph, safe, table
from wardround.report.html.palette import QUIET, colour, mark
from wardround.report.run.summary import interval_name
from wardround.report.run.tables import cell
from wardround.runs.clinical.figures import CalibrationSummary
from wardround.runs.result import MethodResult
from wardround.runs.run import Run
from wardround.runs.scores import MetricValue, ReliabilityBin

LISTED = 200
OPEN = 12


def calibration_section(run: Run) -> Html:
    """The curve, two numbers and what they mean; by hospital in a table."""
    shown = methods_shown(run)
    if not shown:
        return Html("")
    return join(
        [
            paragraph(safe(question(run))),
            which_model(run, shown),
            of_method(run, shown[0]),
            others_below(shown, lambda method: of_method(run, method)),
        ]
    )


def methods_shown(run: Run) -> tuple[MethodResult, ...]:
    return leader_first(run, tuple(method for method in run.methods if method.reliability))


def leader_chart(run: Run) -> Chart | None:
    """The curve of the model that is shown first."""
    shown = methods_shown(run)
    return calibration_chart(run, shown[0]) if shown else None


def is_quantity(run: Run) -> bool:
    return run.task.kind == "regression"


def question(run: Run) -> str:
    if is_quantity(run):
        return "Patients are grouped by the predicted value; each point is one group. On the line, both agree."
    if run.task.kind == "survival":
        return (
            "Do patients who are given a risk of 30 % by the last horizon have the event by then in 30 % of cases? "
            "Patients are grouped by the predicted risk; each point is one group, with what its Kaplan-Meier curve "
            "shows. On the line, both agree; below it the risk is told too high."
        )
    if len(run.task.classes) > 2:
        return (
            "Do predictions made with a confidence of 70 % turn out right in 70 % of cases? Patients are grouped by "
            "the confidence in the predicted class; each point is one group. On the line, both agree."
        )
    if run.kind == "deployed":
        return (
            "Do patients who are given a risk of 30 % have the outcome in 30 % of cases? Hospitals told how many of "
            "their test patients are in each band of predicted risk, rounded at random to whole cells; each point is "
            "one band, placed in its middle. Where an interval does not meet the band on the line, the risk is wrong."
        )
    return (
        "Do patients who are given a risk of 30 % have the outcome in 30 % of cases? Patients are grouped by the "
        "predicted risk; each point is one group. On the line, both agree; below it the risk is told too high."
    )


def of_method(run: Run, method: MethodResult) -> Html:
    summary = part_of(method, lambda one: one.calibration)
    name = f"calibration-{run.methods.index(method)}"
    parts = [chart_figures(name, [calibration_chart(run, method)])]
    if summary is not None:
        parts += [bullets(calibration_words(run, summary)), site_table(run, summary)]
    return join(parts)


def calibration_words(run: Run, summary: CalibrationSummary) -> list[Html]:
    words = []
    quantity = is_quantity(run)
    if summary.predicted is not None and summary.observed is not None:
        tell = numbers.score if quantity else percent
        claimed = "value predicted" if quantity else "confidence" if len(run.task.classes) > 2 else "risk predicted"
        seen = "value observed" if quantity else "share right" if len(run.task.classes) > 2 else "share observed"
        words.append(safe(f"On average: {claimed} {tell(summary.predicted)}, {seen} {tell(summary.observed)}."))
    large, slope = summary.in_the_large, summary.slope
    unit = "mean of observed less predicted" if quantity else "in log-odds"
    words.append(
        verdict("Calibration in the large", large, 0.0, f"{unit}; 0 is right", "predicts too low", "predicts too high")
    )
    words.append(
        verdict("Calibration slope", slope, 1.0, "1 is right", "predicts too narrowly", "predicts too extremely")
    )
    return words


def verdict(name: str, figure: MetricValue, right: float, unit: str, above: str, below: str) -> Html:
    """The figure, its interval, and on which side of what is right it lies for certain."""
    if figure.value is None:
        return safe(f"{name}: not defined ({figure.reason}).")
    value, ends = numbers.score(figure.value), numbers.interval(figure)
    if figure.low is None or figure.high is None:
        return safe(f"{name}: {value} ({unit}).")
    if figure.low > right:
        tells = f"the model {above}"
    elif figure.high < right:
        tells = f"the model {below}"
    else:
        tells = "no miscalibration of this kind is shown"
    return safe(f"{name}: {value} ({ends}; {unit}): {tells}.")


def percent(value: float) -> str:
    """
    >>> percent(0.2314), percent(0.0042)
    ('23.1 %', '0.42 %')
    """
    return f"{100 * value:.1f} %" if value >= 0.01 else f"{100 * value:.2g} %"


def site_table(run: Run, summary: CalibrationSummary) -> Html:
    if not summary.sites:
        return Html("")
    rows = [[name, cell(one.in_the_large), cell(one.slope)] for name, one in list(summary.sites.items())[:LISTED]]
    caption = f"Calibration at each hospital; in small print: {interval_name(run)}"
    whole = table(caption, ["Hospital", "In the large (0 is right)", "Slope (1 is right)"], rows)
    return whole if len(rows) <= OPEN else details(f"Calibration at {len(rows):,} hospitals", whole)


def calibration_chart(run: Run, method: MethodResult) -> Chart:
    points = method.reliability
    index = run.methods.index(method)
    reach = axis_range(run, points)
    diagonal: Spec = {"type": "scatter", "mode": "lines", "x": reach, "y": reach, "showlegend": False}
    unit = "value" if is_quantity(run) else "share"
    return Chart(
        title=f"{method.label}: predicted and observed",
        description=f"Calibration curve of {len(points)} groups of patients, predicted against observed, with "
        "intervals; on the diagonal both agree.",
        traces=[
            diagonal | {"line": {"color": QUIET, "width": 1, "dash": "dot"}, "hoverinfo": "skip"},
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [point.predicted for point in points],
                "y": [point.observed for point in points],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [
                        (point.high or 0) - (point.observed or 0) if point.high is not None else 0 for point in points
                    ],
                    "arrayminus": [
                        (point.observed or 0) - point.low if point.low is not None else 0 for point in points
                    ],
                    "color": colour(index),
                    "thickness": 1.6,
                    "width": 3,
                },
                "line": {"color": colour(index), "width": 1.2},
                "marker": {"symbol": mark(index), "size": 8},
                "hoverinfo": "text",
                "hovertext": [hover(run, point) for point in points],
                "showlegend": False,
            },
        ],
        layout=layout(
            380,
            x={"title": {"text": f"predicted {unit}"}, "range": reach},
            y={"title": {"text": f"observed {unit}"}, "range": reach},
        ),
        height=380,
    )


def axis_range(run: Run, points: Sequence[ReliabilityBin]) -> list[float]:
    """The same on both axes: as far as there is something to see, so that rare outcomes do not hide in a corner."""
    ends = [x for point in points for x in (point.predicted, point.observed, point.low, point.high) if x is not None]
    if is_quantity(run):
        return span(ends)
    return span([0.0, *ends], floor=0.0, ceiling=1.0)


def hover(run: Run, point: ReliabilityBin) -> str:
    tell = numbers.score if is_quantity(run) else percent
    ends = f" ({tell(point.low)} to {tell(point.high)})" if point.low is not None and point.high is not None else ""
    rows = f"{point.rows:,.0f} patients" if point.rows is not None else ""
    return f"predicted {tell(point.predicted or 0)}<br>observed {tell(point.observed or 0)}{ends}<br>{rows}"
