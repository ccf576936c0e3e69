"""What a clinician asks: who the patients are, whom the model flags, are its risks right, does acting on it pay."""

from collections.abc import Iterable

from wardround.report.clinical.calibration import calibration_section
from wardround.report.clinical.decision_curve import decision_section
from wardround.report.clinical.flow import flow_section
from wardround.report.clinical.forest import forest_section
from wardround.report.clinical.horizons import horizons_section
from wardround.report.clinical.importance import importance_section
from wardround.report.clinical.operating_point import operating_section
from wardround.report.clinical.patient_table import table_section
from wardround.report.html.document import chart_figures
from wardround.report.html.markup import Html, paragraph, safe
from wardround.report.run import progress_charts, tables
from wardround.report.run.section import ReportSection
from wardround.runs.run import Run


def included(run: Run) -> Iterable[Html]:
    return flow_section(run), chart_figures("patients", progress_charts.patients(run)), tables.patients(run)


def patient_table(run: Run) -> Iterable[Html]:
    return (table_section(run),)


def operating_point(run: Run) -> Iterable[Html]:
    return operating_section(run), untold(run)


def calibration(run: Run) -> Iterable[Html]:
    return (calibration_section(run),)


def horizons(run: Run) -> Iterable[Html]:
    return (horizons_section(run),)


def decision_curve(run: Run) -> Iterable[Html]:
    return (decision_section(run),)


def forest(run: Run) -> Iterable[Html]:
    return (forest_section(run),)


def importance(run: Run) -> Iterable[Html]:
    return (importance_section(run),)


def untold(run: Run) -> Html:
    """Why a deployed study lacks what a simulation shows."""
    if run.kind != "deployed" or not run.finished:
        return Html("")
    if run.task.kind == "survival":
        return paragraph(
            safe(
                "Times of follow-up stay at the hospitals, and so do survival curves and calibration by groups of "
                "risk. C-index, Brier score and the gap between predicted and seen risk of each hospital are among the "
                "scores below; each hospital has all figures of its own patients in its own report "
                "(`wardround site report`)."
            )
        )
    if any(method.clinical is not None for method in run.methods):
        return paragraph(
            safe(
                "Counts were rounded at random to whole cells at each hospital (multiples of ten, where it does not "
                "say otherwise): they are right on average, each is off by less than a cell, and the intervals include "
                "this. Each hospital has its exact figures in its own report (`wardround site report`)."
            )
        )
    return paragraph(
        safe(
            "Numbers of patients flagged, calibration curves and decision curves are not on the list of what may leave "
            "the hospitals: the study did not ask for them with [evaluation] risk_bands, or no hospital had enough "
            "patients. Recall, precision and calibration error of each hospital are among the scores below, and each "
            "hospital has all of these figures of its own patients in its own report (`wardround site report`)."
        )
    )


SECTIONS = (
    ReportSection(30, "included", "Who was included", included),
    ReportSection(32, "patients", "The patients", patient_table),
    ReportSection(52, "operating", "What it means for patients", operating_point),
    ReportSection(53, "horizons", "Survival: the risk at each horizon", horizons),
    ReportSection(54, "calibration", "Calibration: are the predictions right?", calibration),
    ReportSection(56, "decisions", "Is acting on the model worth it?", decision_curve),
    ReportSection(58, "forest", "By hospital and by group of patients", forest),
    ReportSection(59, "importance", "What the model looks at", importance),
)
