"""`wardround monitor`: watch a model on new patients; exit code 3 means that something changed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.models.adapt import ModelMethod, ModelSite, Outcome, Run
from wardround.cli.output import AsJson, say

if TYPE_CHECKING:
    from wardround.monitor.summary import MonitorSummary

ALARM = 3
"""The exit code of an alarm; 2 is for mistakes."""


def monitor(
    run: Run,
    patients: Annotated[
        str, typer.Argument(metavar="PATIENTS", help="New patients: CSV, Parquet or - for standard input.")
    ],
    by: Annotated[str, typer.Option("--by", metavar="COLUMN", help="The column of dates.")],
    outcome: Outcome = None,
    site: ModelSite = None,
    method: ModelMethod = None,
    every: Annotated[str, typer.Option("--every", help="day, week, month, or a number of patients.")] = "month",
    reference: Annotated[
        str | None,
        typer.Option("--reference", metavar="TABLE", help="Patients to compare with (default: the first window)."),
    ] = None,
    date_format: Annotated[
        str | None, typer.Option("--date-format", help="How dates are written (default: 2026-04-30).")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="A number of its own for every row, if there is one.")
    ] = None,
    alpha: Annotated[
        float,
        typer.Option("--false-alarms", min=0.0001, max=0.5, help="The chance of a false alarm, ever."),
    ] = 0.05,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, max=10.0, help="Share of the odds by which risks may be wrong.")
    ] = 0.1,
    out: Annotated[
        Path | None, typer.Option("--out", help="The monitor's folder (default: monitor, in the run folder).")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Watch a model on new patients: drift, calibration over time, and an alarm (exit code 3) for cron."""
    from wardround.monitor.session import MonitorSettings, default_folder, monitor_patients
    from wardround.monitor.summary import plain
    from wardround.monitor.windows import parse_every
    from wardround.report.monitor.page import write_page

    folder = out or default_folder(run, site)
    settings = MonitorSettings(by, outcome, parse_every(every), reference, date_format, identity, alpha, tolerance)
    summary = monitor_patients(run, patients, folder, settings, site=site, method=method)
    page = write_page(folder, summary)
    say(
        {**plain(summary), "page": str(page), "alarm": bool(summary.alarms)},
        [*lines(summary), f"Page: {page}"],
        as_json,
    )
    return ALARM if summary.alarms else 0


def lines(summary: "MonitorSummary") -> list[str]:
    from wardround.report.monitor.text import alarm_sentences, outcome_sentence, scope_sentence, verdict

    return [verdict(summary), *alarm_sentences(summary), scope_sentence(summary), outcome_sentence(summary)]
