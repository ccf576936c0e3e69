"""The charts of how it went: progress round by round, what it cost, and the patients of each hospital."""

import math
from collections.abc import Callable, Sequence

from wardround.report import numbers
from wardround.report.html.charts import Chart, Spec, layout, rows_axis, span
from wardround.report.html.markup import chart_label, plain
from wardround.report.html.palette import PARTS, colour, with_opacity
from wardround.report.run.score_charts import MANY
from wardround.report.unit import units_of
from wardround.runs.courses import Course
from wardround.runs.result import MethodResult
from wardround.runs.run import Run
from wardround.runs.sites import SiteSummary

POINTS = 600
"""More points than this on a line nobody can see; a long run is thinned to them for the chart."""


WORDS = {"train": "for training", "validation": "for validation", "test": "for testing"}


def progress(run: Run) -> list[Chart]:
    """One chart a method, all on the same scale: the weighted loss, and thin lines for the hospitals."""
    shown = [(m, course) for m in run.methods for course in run.first_courses(m.name) if course.rounds]
    if not shown:
        return []
    values = [x for _, course in shown for x in visible_losses(course)]
    if not values:
        return []
    reach = span(values, floor=0.0 if min(values) >= 0 else None)
    last = max(course.rounds[-1] for _, course in shown)
    first = min(course.rounds[0] for _, course in shown)
    return [
        Chart(
            title=progress_title(told_label(method.label, course), course, best_of(method, course)),
            description=progress_description(told_label(method.label, course), course, best_of(method, course)),
            traces=progress_traces(course, colour(run.methods.index(method)), best_of(method, course)),
            layout=layout(
                270,
                x={"title": {"text": "round"}, "range": span([first, last]), **whole_ticks(first, last)},
                y={"title": {"text": "validation loss"}, "range": reach},
                showlegend=False,
                margin={"l": 10, "r": 10, "t": 10, "b": 44},
            ),
            height=270,
            half=len(shown) > 1,
        )
        for method, course in shown
    ]


def told_label(label: str, course: Course) -> str:
    """The method, and the hospital it was trained for where several asked in turn."""
    return f"{label}, for {course.user}" if course.user else label


def best_of(method: MethodResult, course: Course) -> int | None:
    """The best round; of hospitals that asked in turn only the first one's is in the result."""
    return None if course.user else method.best_round


def whole_ticks(first: int, last: int) -> Spec:
    """There is no round two and a half."""
    return {"dtick": 1} if last - first <= 8 else {}


def visible_losses(course: Course) -> list[float]:
    """What the chart of this course shows, for a common scale; single bad rounds must not flatten all else."""
    own = sorted(x for line in (course.loss, *course.site_loss.values()) for x in line if x is not None)
    if not own:
        return []
    return own[: max(1, math.ceil(0.99 * len(own)))] if len(own) > 100 else own


def sampled_rounds(course: Course) -> range:
    return range(0, len(course.rounds), max(1, math.ceil(len(course.rounds) / POINTS)))


def progress_traces(course: Course, shade: str, best_round: int | None) -> list[Spec]:
    kept = sampled_rounds(course)
    rounds = [course.rounds[i] for i in kept]
    if len(course.site_loss) > MANY:
        traces = band(course, kept, rounds, shade)
    else:
        traces = [
            {
                "type": "scatter",
                "mode": "lines",
                "x": rounds,
                "y": [losses[i] for i in kept],
                "line": {"color": with_opacity(shade, 0.4), "width": 1},
                "hoverinfo": "text",
                "hovertext": [point_words(site, r, losses[i]) for i, r in zip(kept, rounds, strict=True)],
            }
            for site, losses in course.site_loss.items()
        ]
    traces.append(
        {
            "type": "scatter",
            "mode": "lines" if len(rounds) > 1 else "markers",
            "x": rounds,
            "y": [course.loss[i] for i in kept],
            "line": {"color": shade, "width": 3},
            "hoverinfo": "text",
            "hovertext": [point_words("All hospitals", r, course.loss[i]) for i, r in zip(kept, rounds, strict=True)],
        }
    )
    loss = loss_in(course, best_round)
    if loss is not None:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [best_round],
                "y": [loss],
                "marker": {"symbol": "circle", "size": 12, "color": "#ffffff", "line": {"color": shade, "width": 3}},
                "hoverinfo": "text",
                "hovertext": [point_words("Best round", best_round or 0, loss)],
            }
        )
    return traces


def loss_in(course: Course, number: int | None) -> float | None:
    """The weighted loss in that round, None when the round is not there."""
    return course.loss[course.rounds.index(number)] if number is not None and number in course.rounds else None


def progress_title(label: str, course: Course, best_round: int | None) -> str:
    """The best round is told in the title: words beside the mark would lie on the lines."""
    return label if loss_in(course, best_round) is None else f"{label} (best: round {best_round})"


def point_words(name: str, number: int, loss: float | None) -> str:
    value = "no value" if loss is None else numbers.score(loss)
    return f"<b>{chart_label(name, 60)}</b><br>round {number}: {value}"


def band(course: Course, kept: Sequence[int], rounds: list[int], shade: str) -> list[Spec]:
    """Between the 10th and the 90th percentile of the hospitals, in place of a thousand lines."""
    ends: list[tuple[float | None, float | None]] = []
    for i in kept:
        own = sorted(x for losses in course.site_loss.values() if (x := losses[i]) is not None)
        ends.append((own[int(0.1 * (len(own) - 1))], own[math.ceil(0.9 * (len(own) - 1))]) if own else (None, None))
    edge: Spec = {"type": "scatter", "mode": "lines", "x": rounds, "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        edge | {"y": [low for low, _ in ends]},
        edge | {"y": [high for _, high in ends], "fill": "tonexty", "fillcolor": with_opacity(shade, 0.18)},
    ]


def progress_description(label: str, course: Course, best_round: int | None) -> str:
    known = [(r, x) for r, x in zip(course.rounds, course.loss, strict=True) if x is not None]
    if not known:
        return f"Validation loss of {plain(label)}: no values."
    (r0, x0), (r1, x1) = known[0], known[-1]
    words = f"Validation loss of {plain(label)} by round: {numbers.score(x0)} in round {r0}, "
    words += f"{numbers.score(x1)} in round {r1}"
    return words + (f"; best in round {best_round}." if best_round is not None else ".")


def costs(run: Run) -> list[Chart]:
    """Traffic, time and energy: a small chart of bars each, for those that were measured."""
    if len(run.methods) < 2:
        return []
    kinds: list[tuple[str, list[float | None], Callable[[float], str]]] = [
        ("Traffic", [run.cost(m).traffic for m in run.methods], numbers.traffic),
        ("Time", [run.cost(m).seconds for m in run.methods], numbers.time),
        ("Energy (estimate)", [run.cost(m).watt_hours for m in run.methods], numbers.energy),
    ]
    return [bars(run, title, values, words) for title, values, words in kinds if any(v is not None for v in values)]


def bars(run: Run, title: str, values: Sequence[float | None], words: Callable[[float], str]) -> Chart:
    height = 60 + 40 * len(run.methods)
    known = ["not measured" if value is None else words(value) for value in values]
    top = max((value for value in values if value is not None), default=0.0)
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [value or 0 for value in values],
        "y": list(range(len(values))),
        "width": 0.55,
        "marker": {"color": [colour(index) for index in range(len(values))]},
        "text": known,
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    spoken = "; ".join(f"{plain(m.label)}: {word}" for m, word in zip(run.methods, known, strict=True))
    return Chart(
        title=title,
        description=f"{title}. {spoken}.",
        traces=[trace],
        # The words stand right of the bars and need room there.
        layout=layout(
            height,
            x={"range": [0, 1.55 * top or 1], "visible": False},
            y=rows_axis([method.label for method in run.methods]),
            margin={"l": 10, "r": 10, "t": 6, "b": 10},
        ),
        height=height,
        half=True,
    )


def patients(run: Run) -> list[Chart]:
    """How many patients each hospital brought, and for what they were used."""
    known = [hospital for hospital in run.hospitals if hospital.patients]
    if not known:
        return []
    units = units_of(run)
    return [patients_by_hospital(known, units)] if len(known) <= MANY else patients_spread(known, units)


def patients_by_hospital(hospitals: Sequence[SiteSummary], units: str) -> Chart:
    height = 96 + 30 * len(hospitals)
    traces: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": WORDS[part],
            "x": [getattr(hospital, part) or 0 for hospital in hospitals],
            "y": list(range(len(hospitals))),
            "width": 0.6,
            "marker": {"color": shade, "line": {"color": "#ffffff", "width": 1}},
            "hoverinfo": "x+name",
        }
        for part, shade in PARTS.items()
    ]
    known = [(row, h.patients, h.prevalence) for row, h in enumerate(hospitals) if h.prevalence is not None]
    traces.append(
        {
            "type": "scatter",
            "mode": "text",
            "x": [patients for _, patients, _ in known],
            "y": [row for row, _, _ in known],
            "text": [f" {numbers.share(prevalence)} with outcome" for _, _, prevalence in known],
            "textposition": "middle right",
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
    most = max(hospital.patients for hospital in hospitals)
    return Chart(
        title=f"{units.capitalize()} at each hospital",
        description=f"Stacked bars of training, validation and test {units} at {len(hospitals)} hospitals. The table "
        "below has the numbers.",
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": units}, "range": [0, (1.3 if known else 1.05) * most]},
            y=rows_axis([hospital.name for hospital in hospitals]),
            barmode="stack",
        ),
        height=height,
    )


def patients_spread(hospitals: Sequence[SiteSummary], units: str) -> list[Chart]:
    sizes = [float(hospital.patients) for hospital in hospitals]
    shares = [hospital.prevalence for hospital in hospitals if hospital.prevalence is not None]
    charts = [histogram(f"{units.capitalize()} per hospital", units, sizes)]
    if shares:
        charts.append(histogram("Share of patients with the outcome", "share", shares))
    return charts


def histogram(title: str, unit: str, values: Sequence[float]) -> Chart:
    trace = {"type": "histogram", "x": list(values), "nbinsx": 30, "marker": {"color": PARTS["train"]}}
    words = f"from {numbers.score(min(values))} to {numbers.score(max(values))}"
    return Chart(
        title=title,
        description=f"Histogram over {len(values)} hospitals: {unit} {words}.",
        traces=[trace],
        layout=layout(260, x={"title": {"text": unit}}, y={"title": {"text": "hospitals"}}, bargap=0.05)
        | {"margin": {"l": 10, "r": 10, "t": 10, "b": 44}},
        height=260,
        half=True,
    )
