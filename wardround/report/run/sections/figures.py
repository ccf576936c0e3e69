"""How good the models are: at each hospital, against each other, and for groups of patients."""

from collections.abc import Iterable

from wardround.report.fairness import section as groups
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, paragraph
from wardround.report.run import score_charts, tables
from wardround.report.run.section import ReportSection
from wardround.report.unit import units_of
from wardround.runs.run import Run


def scores(run: Run) -> Iterable[Html]:
    return (chart_figures("scores", [score_charts.scores(run)]),)


def numbers(run: Run) -> Iterable[Html]:
    return (tables.scores(run),)


def differences(run: Run) -> Iterable[Html]:
    return (
        difference_words(run),
        chart_figures("differences", [score_charts.differences(run)]),
        tables.differences(run),
    )


def fairness(run: Run) -> Iterable[Html]:
    return (groups.fairness_section(groups.fairness_of(run.methods), run.task),)


def difference_words(run: Run) -> Html:
    if not run.differences:
        return Html("")
    units = units_of(run)
    return paragraph(
        Html(
            f"Two models are compared on the same {units}, so that easy or difficult {units} do not decide. Where the "
            "interval includes zero, no difference is shown; that does not prove that there is none. Because many "
            "comparisons are made at once, a verdict may be withheld although the interval excludes zero."
        )
    )


SECTIONS = (
    ReportSection(50, "scores", "How good the models are at each hospital", scores),
    ReportSection(90, "numbers", "All scores", numbers),
    ReportSection(100, "differences", "Is one model better than another?", differences),
    ReportSection(110, "fairness", "Groups of patients", fairness),
)
