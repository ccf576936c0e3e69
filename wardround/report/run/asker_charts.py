"""The asking hospital's story: how often every model was right for its test patients, round by round.

Beside it what always saying yes, or always no, would give there, and how much the other hospitals counted.
"""

from collections.abc import Sequence

from wardround.report import numbers
from wardround.report.html.charts import Chart, Spec, layout, span
from wardround.report.html.markup import chart_label, plain
from wardround.report.html.palette import colour
from wardround.report.run.progress_charts import sampled_rounds, whole_ticks
from wardround.runs.courses import Course
from wardround.runs.run import Run

ALWAYS = "#c0392b"
MOST_ASKERS = 12


def asker_courses(run: Run) -> Sequence[Chart]:
    """A chart for every hospital that asked, where accuracy was followed; else nothing."""
    askers = dict.fromkeys(run.asker(course) for course in run.courses if course.accuracy)
    named = [asker for asker in askers if asker] or [h.name for h in run.hospitals if h.test] * any(askers)
    return [chart for asker in named[:MOST_ASKERS] if (chart := asker_course(run, asker)) is not None]


def asker_course(run: Run, asker: str) -> Chart | None:
    """Full lines: the share classified rightly. Dotted: weights. Dashed: the same answer for everybody."""
    shown = [
        (index, method.label, course)
        for index, method in enumerate(run.methods)
        for course in run.first_courses(method.name)
        if course.user in ("", asker) and asker in course.accuracy
    ]
    if not shown:
        return None
    traces = [line(course, course.accuracy[asker], label, colour(index)) for index, label, course in shown]
    for _, label, course in shown:
        traces += weight_lines(course, label, len(run.hospitals))
    last = max(course.rounds[-1] for _, _, course in shown)
    share = next((h.test_prevalence for h in run.hospitals if h.name == asker), None)
    if share is not None:
        yes = plain(run.task.positive or "yes")
        traces += [flat(last, share, f"always {yes}"), flat(last, 1 - share, f"never {yes}")]
    ends = "; ".join(f"{plain(label)} {numbers.score(course.accuracy[asker][-1] or 0.0)}" for _, label, course in shown)
    height = 340
    return Chart(
        title=f"{plain(asker)} asks: share of its test patients classified rightly",
        description=f"Accuracy on the test patients of {plain(asker)} by round. In the last round: {ends}.",
        traces=traces,
        layout=layout(
            height,
            x={"title": {"text": "round"}, "range": span([1, last]), **whole_ticks(1, last)},
            y={"title": {"text": "accuracy, weight"}, "range": [-0.02, 1.02]},
            margin={"l": 10, "r": 10, "t": 80, "b": 44},
        ),
        height=height,
        half=False,
    )


def line(course: Course, values: Sequence[float | None], label: str, shade: str, dash: str = "solid") -> Spec:
    kept = sampled_rounds(course)
    return {
        "type": "scatter",
        "mode": "lines" if len(kept) > 1 else "markers",
        "name": chart_label(label, 40),
        "x": [course.rounds[i] for i in kept],
        "y": [values[i] for i in kept],
        "connectgaps": True,
        "line": {"color": shade, "width": 3 if dash == "solid" else 1.5, "dash": dash},
    }


def weight_lines(course: Course, label: str, hospitals: int) -> list[Spec]:
    """What each hospital counted, where the method weighs them."""
    told = course.diagnostics
    place = {number: index for index, number in enumerate(told.rounds)}
    return [
        line(
            course,
            [values[place[number]] if number in place else None for number in course.rounds],
            f"weight of {plain(site)}",
            colour(7 + index),
            "dot",
        )
        for index, (site, values) in enumerate(told.sites.get("alpha", {}).items())
        if hospitals <= MOST_ASKERS
    ]


def flat(last: int, height: float, label: str) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": chart_label(label, 40),
        "x": [1, last],
        "y": [height, height],
        "line": {"color": ALWAYS, "width": 1.5, "dash": "dash"},
    }
