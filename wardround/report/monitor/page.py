"""The page of a monitor: one HTML file that loads nothing from the network."""

from pathlib import Path

from wardround import __version__
from wardround.monitor.drift import Distance
from wardround.monitor.summary import ColumnFigures, MonitorSummary, WindowFigures
from wardround.report import numbers
from wardround.report.html.document import chart_figures, document
from wardround.report.html.markup import Html, bullets, details, join, paragraph, safe, section, table
from wardround.report.monitor.charts import calibration_chart, evidence_chart
from wardround.report.monitor.text import (
    alarm_sentences,
    column_name,
    evidence_text,
    outcome_sentence,
    promise,
    scope_sentence,
    size_word,
    verdict,
    with_interval,
)
from wardround.runs.json_files import write_file

FILE = "monitor.html"


def write_page(folder: Path, summary: MonitorSummary) -> Path:
    path = folder / FILE
    write_file(path, monitor_page(summary).encode())
    return path


def monitor_page(summary: MonitorSummary) -> Html:
    """The whole document."""
    whose = f" at {summary.site}" if summary.site else ""
    subtitle = safe(f"Monitor of the model for {summary.target}{whose} ({summary.method})")
    return document(summary.study, subtitle, content(summary), {"wardround": __version__})


def content(summary: MonitorSummary) -> Html:
    found = alarm_sentences(summary)
    return join(
        [
            section(
                "answer",
                "Result",
                paragraph(safe(verdict(summary)), "answer"),
                bullets(safe(one) for one in found) if found else Html(""),
                paragraph(safe(f"{scope_sentence(summary)} {outcome_sentence(summary)}"), "lead"),
            ),
            section(
                "calibration",
                "Predicted and observed",
                chart_figures("calibration", [calibration_chart(summary)]),
                windows_table(summary) if summary.known else Html(""),
            ),
            section("evidence", "Evidence", chart_figures("evidence", [evidence_chart(summary)])),
            section("inputs", "Inputs in the last window", columns_table(summary), stability_table(summary)),
            section("method", "What the alarm promises", paragraph(safe(promise(summary)))),
        ]
    )


def windows_table(summary: MonitorSummary) -> Html:
    """Performance window by window."""
    if summary.quantity:
        head = ["window", "patients", "outcome known", "predicted", "observed", "mean squared error"]
        rows = [[*counts(one), mean(one.predicted), *map(figure, (one.observed, one.error))] for one in known(summary)]
    else:
        head = ["window", "patients", "outcome known", "predicted", "observed", "ROC-AUC", "Brier"]
        head += ["sensitivity", "specificity", "flagged"]
        rows = [
            [
                *counts(one),
                mean(one.predicted),
                *map(figure, (one.observed, one.auc, one.error, one.sensitivity, one.specificity, one.flagged)),
            ]
            for one in known(summary)
        ]
    return table("Performance, with 95 % intervals", head, rows)


def known(summary: MonitorSummary) -> list[WindowFigures]:
    return [one for one in summary.windows if one.known]


def counts(window: WindowFigures) -> list[str]:
    return [window.name, numbers.count(window.patients), numbers.count(window.known)]


def mean(value: float | None) -> str:
    return "–" if value is None else numbers.score(value)


def figure(of: Distance) -> str:
    return with_interval(of) or "–"


def columns_table(summary: MonitorSummary) -> Html:
    head = ["input", "stability index", "KS distance", "missing", "missing in the reference", "unlike training"]
    head += ["mean, in training scales", "evidence"]
    return table(
        "Against the reference and against training, with 95 % intervals",
        head,
        [column_row(summary, one) for one in summary.columns],
    )


def column_row(summary: MonitorSummary, column: ColumnFigures) -> list[str]:
    word = size_word(column.stability)
    moved = " (alarm)" if column.evidence >= summary.input_limit else ""
    return [
        column_name(column.name),
        figure(column.stability) + (f", {word}" if word else ""),
        figure(column.distance),
        numbers.share(column.missing),
        numbers.share(column.missing_reference),
        numbers.share(column.outside),
        figure(column.training),
        f"{evidence_text(column.evidence)}{moved}",
    ]


def stability_table(summary: MonitorSummary) -> Html:
    """Every column in every window."""
    names = [column.name for column in summary.columns]
    rows = [
        [
            window.name,
            *(numbers.score(window.stability[name]) for name in names),
        ]
        for window in summary.windows
        if window.stability
    ]
    head = ["window", *map(column_name, names)]
    return details("Stability index of every input in every window", table("Stability index", head, rows))
