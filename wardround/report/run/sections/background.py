"""What it took and from whom: traffic, time and energy, the patients, and how to do the run again."""

from collections.abc import Iterable

from wardround.report.html.document import drawn
from wardround.report.html.markup import Html
from wardround.report.run import progress_charts, score_charts, tables
from wardround.report.run.section import ReportSection
from wardround.runs.run import Run


def costs(run: Run) -> Iterable[Html]:
    return drawn("costs", progress_charts.costs(run)), tables.costs(run)


def patients(run: Run) -> Iterable[Html]:
    return drawn("patients", progress_charts.patients(run)), tables.patients(run)


def curious(run: Run) -> Iterable[Html]:
    return (
        drawn("calibration", [score_charts.calibration(run)]),
        tables.percentiles(run),
        tables.manifest(run),
    )


SECTIONS = (
    ReportSection(120, "costs", "Traffic, time and energy", costs),
    ReportSection(130, "patients", "Patients", patients),
    ReportSection(140, "curious", "For the curious", curious),
)
