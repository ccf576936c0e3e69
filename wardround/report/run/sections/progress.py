"""How training went: who was chosen, the error round by round, who took part, and who counted."""

from collections.abc import Iterable

from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, paragraph
from wardround.report.run import asker_charts, diagnostics_charts, participation, progress_charts, score_charts
from wardround.report.run.section import ReportSection
from wardround.report.unit import units_of
from wardround.runs.run import Run


def partner_choice(run: Run) -> Iterable[Html]:
    return (diagnostics_charts.choice_section(run),)


def progress(run: Run) -> Iterable[Html]:
    charts = progress_charts.progress(run)
    return progress_words(run) if charts else Html(""), chart_figures("progress", charts)


def asked(run: Run) -> Iterable[Html]:
    charts = asker_charts.asker_courses(run)
    return asker_words(run) if charts else Html(""), chart_figures("asker", list(charts))


def attendance(run: Run) -> Iterable[Html]:
    return (participation.attendance_section(run),)


def diagnostics(run: Run) -> Iterable[Html]:
    return (diagnostics_charts.by_hospital(run),)


def progress_words(run: Run) -> Html:
    many, units = len(run.hospitals) > score_charts.MANY, units_of(run)
    who = "who" if units == "patients" else "which"
    hospitals = "The band holds the middle 80 % of hospitals." if many else "Each thin line is one hospital."
    repeat = f" Shown is the first of {run.repeats} repeats." if run.repeats > 1 else ""
    return paragraph(
        Html(
            f"The error on validation {units}, {who} are not used for training (validation loss; lower is "
            f"better). The thick line is the mean over all {units}. {hospitals}{repeat}"
        )
    )


def asker_words(run: Run) -> Html:
    repeat = f" Shown is the first of {run.repeats} repeats." if run.repeats > 1 else ""
    return paragraph(
        Html(
            "Full lines: the share of the asking hospital's test patients that each model classifies rightly. Dashed, "
            "red: the same answer for every patient. Dotted: how much each hospital counts, where a method weighs "
            f"them. Nothing was chosen by these patients.{repeat}"
        )
    )


SECTIONS = (
    ReportSection(55, "asker", "For the asking hospital, round by round", asked),
    ReportSection(40, "choosing", "Choosing partners", partner_choice),
    ReportSection(60, "progress", "Progress round by round", progress),
    ReportSection(70, "attendance", "Who took part", attendance),
    ReportSection(80, "told", "How much each hospital counted, round by round", diagnostics),
)
