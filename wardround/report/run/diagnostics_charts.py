"""The charts and tables of what an algorithm told of itself: weights, distances, groups and mixing over the rounds."""

import math
from typing import NamedTuple

from wardround.report import numbers
from wardround.report.html.charts import Chart, Spec, layout, rows_axis, span
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, bullets, chart_label, details, join, paragraph, plain, safe, table
from wardround.report.html.palette import COLOURS, INK, QUIET, colour, with_opacity
from wardround.report.run import diagnostics_text
from wardround.report.run.progress_charts import POINTS, told_label, whole_ticks
from wardround.runs.courses import ChoiceRound, Course, Diagnostics
from wardround.runs.run import Run

LEGEND = 12
"""Hospitals up to which each line has a colour and a name; of more, the asking one alone stands out."""
DASHES = ("solid", "dash", "dot", "dashdot")
HIDDEN = ("rounds",)
"""Told by hospital, and said in words where it matters."""


class DiagnosticChart(NamedTuple):
    """A number whose meaning we know: the title of its chart, its axis, and a sentence above the charts."""

    title: str
    axis: str
    words: str


KNOWN = {
    "alpha": DiagnosticChart(
        "How much each hospital counts",
        "weight",
        "Every hospital starts with weight 1 and loses weight while its patients pull the model in another direction "
        "than those of the asking hospital. A hospital with few patients also loses weight as they are reused.",
    ),
    "distance": DiagnosticChart(
        "How far each hospital pulls from the asking one",
        "distance",
        "Distance 0 means that a hospital would change the model just as the asking hospital would; 1 means that they "
        "differ by as much as the asking hospital's whole step.",
    ),
    "cluster": DiagnosticChart(
        "Which hospitals share a model",
        "model",
        "Each hospital takes, in every round, the one of several models that fits its own patients best.",
    ),
    "mixing": DiagnosticChart(
        "How much of its own model each hospital mixes in",
        "share of the own model",
        "At 0 a hospital uses the common model, at 1 only its own.",
    ),
}


def chart_for(name: str) -> DiagnosticChart:
    """What we know of the number, or its name in plain words."""
    words = plain(name.replace("_", " "))
    return KNOWN.get(name, DiagnosticChart(f"{words[:1].upper()}{words[1:]} of each hospital", words, ""))


def by_hospital(run: Run) -> Html:
    """Words, charts and last numbers for every method that told something by hospital."""
    parts: list[Html] = []
    explained: set[str] = set()
    told = [(method, course) for method in run.methods for course in run.first_courses(method.name)]
    for index, (method, course) in enumerate(told):
        if not (chart_names(course.diagnostics) or course.diagnostics.stopped):
            continue
        fresh = [name for name in chart_names(course.diagnostics) if name not in explained]
        explained.update(fresh)
        meaning = " ".join(words for name in fresh if (words := chart_for(name).words))
        parts += [
            Html(f"<h3>{safe(told_label(method.label, course))}</h3>"),
            paragraph(Html(meaning)) if meaning else Html(""),
            diagnostic_bullets(course.diagnostics, run.asker(course)),
            chart_figures(f"told-{index}", charts(course, run.asker(course))),
            last_numbers(told_label(method.label, course), course.diagnostics),
        ]
    return join(part for part in parts if part)


def diagnostic_bullets(diagnostics: Diagnostics, asking: str) -> Html:
    words = diagnostics_text.bullets_of(diagnostics, asking)
    return bullets(words) if words else Html("")


def chart_names(diagnostics: Diagnostics) -> list[str]:
    """Those numbers by hospital that a chart can show."""
    shown = [name for name in diagnostics.sites if name not in HIDDEN]
    return [name for name in shown if any(x is not None for values in diagnostics.sites[name].values() for x in values)]


def charts(course: Course, asking: str) -> list[Chart]:
    diagnostics = course.diagnostics
    return [
        groups(diagnostics) if name == "cluster" else lines(diagnostics, name, asking)
        for name in chart_names(diagnostics)
    ]


def lines(diagnostics: Diagnostics, name: str, asking: str) -> Chart:
    """One line per hospital."""
    known, series = chart_for(name), diagnostics.sites[name]
    kept = range(0, len(diagnostics.rounds), max(1, math.ceil(len(diagnostics.rounds) / POINTS)))
    rounds = [diagnostics.rounds[i] for i in kept]
    few = len(series) <= LEGEND
    traces: list[Spec] = []
    for index, (site, values) in enumerate(series.items()):
        asks = site == asking
        shade = INK if asks else colour(index) if few else with_opacity(COLOURS[0], 0.45)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines" if len(rounds) > 1 else "markers",
                "name": chart_label(f"{plain(site)} (asks)" if asks else site),
                "x": rounds,
                "y": [values[i] for i in kept],
                "connectgaps": True,
                "line": {"color": shade, "width": 2 if few or asks else 1, "dash": DASHES[index // 7 % 4]},
                "hoverinfo": "text",
                "hovertext": [point(site, r, values[i]) for i, r in zip(kept, rounds, strict=True)],
                "showlegend": few or asks,
            }
        )
    seen = [x for own in series.values() for x in own if x is not None]
    top, cut = ceiling(seen)
    first, last = diagnostics.rounds[0], diagnostics.rounds[-1]
    rows = math.ceil(len(series) / 3) if few else 1
    height = 270 + 20 * rows
    return Chart(
        title=f"{known.title} (values above {numbers.score(top)} are cut off)" if cut else known.title,
        description=description(diagnostics, name, known.title),
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": "round"}, "range": span([first, last]), **whole_ticks(first, last)},
            y={"title": {"text": chart_label(known.axis)}, "range": span([min(0.0, *seen), top])},
            shapes=[stop_line(diagnostics.stopped)] if diagnostics.stopped is not None else [],
            annotations=[stop_label(diagnostics.stopped)] if diagnostics.stopped is not None else [],
            margin={"l": 10, "r": 10, "t": 20 + 20 * rows, "b": 44},
        ),
        height=height,
        half=True,
    )


def ceiling(values: list[float]) -> tuple[float, bool]:
    """The top of the axis, and whether some values lie above: close to the own optimum distances grow without end."""
    ranked = sorted(values)
    usual = ranked[int(0.9 * (len(ranked) - 1))]
    top = max(3 * usual, 1.0)
    return (top, True) if ranked[-1] > top else (ranked[-1], False)


def stop_line(number: int) -> Spec:
    line = {"color": QUIET, "width": 1.2, "dash": "dot"}
    return {"type": "line", "x0": number, "x1": number, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def stop_label(number: int) -> Spec:
    spot = {"x": number, "xanchor": "right", "y": 0.5, "yref": "paper", "yanchor": "middle", "showarrow": False}
    return (
        spot
        | {"text": "stopped", "textangle": -90, "font": {"size": 12, "color": QUIET}}
        | {"bgcolor": "rgba(255,255,255,0.85)"}
    )


def point(site: str, number: int, value: float | None) -> str:
    words = "no value" if value is None else numbers.score(value)
    return f"<b>{chart_label(site, 60)}</b><br>round {number}: {words}"


def description(diagnostics: Diagnostics, name: str, title: str) -> str:
    last = [(site, values[-1]) for site, values in diagnostics.sites[name].items() if values[-1] is not None]
    start = f"Lines for {len(diagnostics.sites[name])} hospitals over {len(diagnostics.rounds)} rounds. {title}"
    if not last or len(last) > LEGEND:
        return f"{start}. The table has the final values."
    ends = "; ".join(f"{plain(site)} {numbers.score(value or 0.0)}" for site, value in last)
    return f"{start}, in round {diagnostics.rounds[-1]}: {ends}."


def groups(diagnostics: Diagnostics) -> Chart:
    """Rows of colour: hospitals of the same colour share a model."""
    series = diagnostics.sites["cluster"]
    kept = range(0, len(diagnostics.rounds), max(1, math.ceil(len(diagnostics.rounds) / POINTS)))
    models = sorted({int(x) for values in series.values() for x in values if x})
    most = max(models, default=1)
    # A step for each model: Plotly's colours run over a scale, and steps make it a key.
    steps = [[edge, shade_of(number)] for number in range(1, most + 1) for edge in ((number - 1) / most, number / most)]
    trace: Spec = {
        "type": "heatmap",
        "x": [diagnostics.rounds[i] for i in kept],
        "y": list(range(len(series))),
        "z": [[values[i] or None for i in kept] for values in series.values()],
        "zmin": 0.5,
        "zmax": most + 0.5,
        "colorscale": steps,
        "ygap": 3,
        "colorbar": {"title": {"text": "model"}, "tickvals": models, "thickness": 12, "outlinewidth": 0},
        "hoverinfo": "text",
        "hovertext": [
            [point_of_group(site, diagnostics.rounds[i], values[i]) for i in kept] for site, values in series.items()
        ],
    }
    height = max(190, 90 + 26 * len(series))
    first, last = diagnostics.rounds[0], diagnostics.rounds[-1]
    return Chart(
        title=KNOWN["cluster"].title,
        description=f"Bands for {len(series)} hospitals over {len(diagnostics.rounds)} rounds, coloured by the model "
        "each uses. The text above says who shares a model at the end.",
        traces=[trace],
        layout=layout(
            height,
            x={"title": {"text": "round"}, "showgrid": False, **whole_ticks(first, last)},
            y=rows_axis(list(series)),
            margin={"l": 10, "r": 10, "t": 10, "b": 44},
        ),
        height=height,
    )


def shade_of(number: int) -> str:
    return colour(number - 1)


def point_of_group(site: str, number: int, value: float | None) -> str:
    words = f"model {value:.0f}" if value else "not asked yet"
    return f"<b>{chart_label(site, 60)}</b><br>round {number}: {words}"


def last_numbers(label: str, diagnostics: Diagnostics) -> Html:
    names = chart_names(diagnostics)
    if not names:
        return Html("")
    sites = list(dict.fromkeys(site for name in names for site in diagnostics.sites[name]))
    rows = [[safe(site), *(last_cell(diagnostics.sites[name].get(site, ()), name) for name in names)] for site in sites]
    caption = f"{plain(label)}: values in round {diagnostics.rounds[-1]:,}"
    columns = [Html("Hospital"), *(safe(chart_for(name).axis.capitalize()) for name in names)]
    return details(f"Values in round {diagnostics.rounds[-1]:,}", table(caption, columns, rows))


def last_cell(values: tuple[float | None, ...], name: str) -> Html:
    value = values[-1] if values else None
    if value is None:
        return Html("unknown")
    return safe(f"{value:.0f}" if name == "cluster" else numbers.score(value))


def choice_section(run: Run) -> Html:
    """How partners were chosen before training, and what each hospital was given."""
    parts = []
    for asker, labels, choice in diagnostics_text.choices(run):
        parts.append(paragraph(diagnostics_text.choice_words(run, asker, labels, choice)))
        if choice.scores:
            parts.append(score_table(choice, asker))
    return join(parts)


def score_table(choice: ChoiceRound, asking: str) -> Html:
    ranked = sorted((site for site in choice.scores if site != asking), key=lambda site: -choice.scores[site])
    rows = [
        [
            safe(site),
            safe(numbers.score(choice.scores[site])),
            Html("chosen" if site in choice.chosen else "not chosen"),
        ]
        for site in ranked
    ]
    columns = [Html("Hospital"), Html("Score"), Html("Partner")]
    whole = table("Scores before training; a higher score speaks for the partner", columns, rows)
    return whole if len(rows) <= 30 else details(f"Scores of all {len(rows):,} hospitals", whole)
