"""Where a model ages over the sites of a consortium: sentences, a chart for each site, and one page."""

from collections.abc import Sequence

from wardround.report import numbers
from wardround.report.html.charts import Chart, Spec, layout
from wardround.report.html.document import chart_figures, document
from wardround.report.html.markup import Html, bullets, chart_label, details, join, paragraph, safe, section, table
from wardround.report.html.palette import colour, mark
from wardround.report.monitor.charts import window_axis
from wardround.runs.clinical.monitor import MonitoredSite, MonitoredWindow
from wardround.runs.fields import Json
from wardround.runs.result import MonitorResult

ALL = "all"


def is_aged(site: MonitoredSite) -> bool:
    return any(one.verdict for one in site.windows)


def single_windows(site: MonitoredSite) -> list[MonitoredWindow]:
    return [one for one in site.windows if one.window != ALL]


def verdict(result: MonitorResult) -> str:
    """The answer in one sentence."""
    aged = [site.name for site in result.sites if is_aged(site)]
    told = [site for site in result.sites if site.windows]
    if not told:
        return "Nothing can be said: no site has enough patients whose outcome is known."
    if not aged:
        many = "the one site that told" if len(told) == 1 else f"any of {len(told)} sites"
        return f"No ageing is shown at {many}, beyond chance and what the cells hide."
    return f"The model is no longer right at {' and '.join([', '.join(aged[:-1]), aged[-1]] if aged[:-1] else aged)}."


def site_sentences(site: MonitoredSite) -> list[str]:
    """What is wrong at a site: since when, in which direction, by how much."""
    found = [one for one in single_windows(site) if one.verdict]
    whole = [one for one in site.windows if one.window == ALL and one.verdict]
    lines = []
    for way in ("too low", "too high"):
        own = [one for one in found if one.verdict == way]
        if own:
            when = own[0].window if len(own) == 1 else f"{len(own)} windows from {own[0].window} to {own[-1].window}"
            lines.append(f"{site.name}: predictions were {way} in {when} ({figures(own[-1])} in {own[-1].window}).")
    if not found:
        lines += [
            f"{site.name}: predictions were {one.verdict} over all windows together ({figures(one)})." for one in whole
        ]
    return lines


def percent(value: float | None) -> str:
    return "–" if value is None else numbers.share(value)


def figures(one: MonitoredWindow) -> str:
    predicted, low, high = (percent(value) for value in (one.predicted, one.low, one.high))
    return f"{predicted} predicted, {low} to {high} observed"


def result_sentences(result: MonitorResult) -> list[str]:
    """For a terminal: the answer, each site that is not as predicted, and who is missing."""
    return [verdict(result), *(line for site in result.sites for line in site_sentences(site)), *result.notes]


def consortium_page(result: MonitorResult, manifest: Json) -> Html:
    subtitle = safe(f"Does the model of {result.model} age? {result.outcome}, by {result.every} of {result.date}")
    return document(result.study, subtitle, content(result), manifest)


def content(result: MonitorResult) -> Html:
    found = [line for site in result.sites for line in site_sentences(site)]
    patients = sum(one.patients or 0 for site in result.sites for one in single_windows(site))
    many = len([site for site in result.sites if site.windows])
    scope = (
        f"At least {patients:,} patients with a known outcome at {many} site{'' if many == 1 else 's'}; each looked at"
        " the model that it kept."
    )
    return join(
        [
            section(
                "answer",
                "Result",
                paragraph(safe(verdict(result)), "answer"),
                bullets(safe(one) for one in found) if found else Html(""),
                paragraph(safe(scope), "lead"),
                bullets(safe(one) for one in result.notes) if result.notes else Html(""),
            ),
            section(
                "sites",
                "Predicted and observed, site by site",
                chart_figures("sites", [site_chart(site, result) for site in result.sites if site.windows]),
            ),
            section("figures", "Figures", *(site_table(site) for site in result.sites if site.windows)),
            section("method", "How to read this", *(paragraph(safe(one)) for one in method_sentences(result))),
        ]
    )


def method_sentences(result: MonitorResult) -> list[str]:
    cells = sorted({site.cell for site in result.sites if site.cell is not None})
    told = f"multiples of {' or '.join(map(str, cells))}" if cells and cells[-1] > 1 else "exact numbers"
    return [
        f"Sites told counts as {told}, mean risks on a grid, and nothing of smaller windows. An interval holds all that"
        " this may hide, and chance; with small windows it is wide. Where a prediction lies outside, the model is wrong"
        " there, whatever was hidden.",
        f"All intervals are widened together: the chance of any wrong verdict in this look is about"
        f" {percent(result.false_alarms)} at most. Whoever looks again has that chance again; an alarm that holds"
        " under any number of looks is what `wardround monitor` gives at a site.",
        "A model that is wrong for one site may be adapted there (`wardround adapt`); one that is wrong everywhere is"
        " trained again.",
    ]


def site_chart(site: MonitoredSite, result: MonitorResult) -> Chart:
    """Predicted risk as a line, and the interval of the observed share in every window."""
    shown = single_windows(site) or list(site.windows)
    places = list(range(len(shown)))
    ends: Sequence[tuple[float, float]] = [(one.low or 0.0, one.high or 0.0) for one in shown]
    middle = [(low + high) / 2 for low, high in ends]
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "predicted",
            "x": places,
            "y": [one.predicted for one in shown],
            "line": {"color": colour(0), "width": 2},
            "marker": {"symbol": mark(0), "size": 7},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "observed, between",
            "x": places,
            "y": middle,
            "marker": {"color": colour(1), "symbol": mark(1), "size": 1},
            "error_y": {
                "type": "data",
                "array": [(high - low) / 2 for low, high in ends],
                "color": colour(1),
                "thickness": 2,
                "width": 6,
            },
        },
    ]
    y: Spec = {"title": {"text": chart_label(f"share with {result.outcome}", 60)}, "tickformat": ".0%", "range": [0, 1]}
    return Chart(
        title=site.name,
        description=f"Predicted risk and interval of the observed share in {len(shown)} windows; the table has them.",
        traces=traces,
        layout=layout(280, x=window_axis([one.window for one in shown]), y=y),
        height=280,
    )


def site_table(site: MonitoredSite) -> Html:
    head = ["window", "patients, at least", "predicted", "observed, from", "to", "predictions are"]
    rows = [
        [
            "all together" if one.window == ALL else one.window,
            numbers.count(one.patients or 0),
            *(percent(value) for value in (one.predicted, one.low, one.high)),
            one.verdict or "not shown to be wrong",
        ]
        for one in site.windows
    ]
    shown = table(site.name, head, rows)
    return shown if is_aged(site) else details(f"{site.name}: not shown to be wrong", shown)
