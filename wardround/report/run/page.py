"""The report of a run folder: one HTML file for a clinician and a hospital board."""

import os
from pathlib import Path

from wardround.core.errors import Refusal
from wardround.report import numbers
from wardround.report.fairness import section as fairness
from wardround.report.html.document import document, drawn, facts, moment, noted, notices
from wardround.report.html.markup import Html, bullets, joined, paragraph, plain, safe, section
from wardround.report.metric_names import label_of
from wardround.report.partners.answer import partnership_of
from wardround.report.partners.page import partners_page
from wardround.report.run import (
    diagnostics_charts,
    ground_truth,
    participation,
    progress_charts,
    score_charts,
    summary,
    tables,
)
from wardround.report.run.ranking import best_overall
from wardround.runs.fields import total
from wardround.runs.read import read_manifest, read_result
from wardround.runs.result import CasesResult, PartnersResult
from wardround.runs.run import Run, read_run

FILE = "report.html"

KINDS = {
    "run": "Report of a training run",
    "compare": "Comparison of ways to train",
    "demo": "Demonstration",
    "deployed": "Report of a study over real hospitals",
}


def write_report(folder: Path) -> Path:
    """Writes `report.html` into the run folder and returns its path; a report that is there is replaced."""
    folder = Path(folder)
    text = text_of(folder)
    target, fresh = folder / FILE, folder / f".{FILE}.{os.getpid()}"
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise Refusal(
            f"the report cannot be written: {error.strerror}",
            where=str(target),
            remedy="check that the folder can be written to and the disk is not full",
        ) from None
    return target


def text_of(folder: Path) -> Html:
    """The page that fits what the folder holds: an answer about partners, or a run."""
    found = read_result(folder)
    if found is not None and isinstance(found.result, CasesResult):
        from wardround.report.cases.page import cases_page  # which itself draws on pages of runs

        return cases_page(folder)
    if found is None or not isinstance(found.result, PartnersResult):
        return page(read_run(folder))
    manifest, name = read_manifest(folder), folder.resolve().name
    return partners_page(partnership_of(found.result, manifest=manifest, default_name=name, remarks=found.remarks))


def page(run: Run) -> Html:
    """The whole document."""
    return document(run.name, subtitle(run), content(run), run.manifest)


def subtitle(run: Run) -> Html:
    parts = [safe(KINDS.get(run.kind, "Report"))]
    if run.manifest.get("finished" if run.finished else "started"):
        word = "finished" if run.finished else "started"
        parts.append(Html(f"{word} {safe(moment(run.manifest[word]))}"))
    return joined(parts, " · ")


def content(run: Run) -> Html:
    """The sections in the order in which a reader asks: what came out, what it cannot tell, the evidence, the cost."""
    progress = progress_charts.progress(run)
    return joined(
        [
            broken(run),
            section("summary", "In short", paragraph(summary.summary(run), "summary"), figures_first(run)),
            section("limits", "What this cannot tell", bullets(summary.limits(run)), noted(run.notes)),
            section("truth", "What is really so", ground_truth.told(run)),
            section("choosing", "Choosing partners", diagnostics_charts.choosing(run)),
            section("scores", "How good the models are at each hospital", drawn("scores", [score_charts.scores(run)])),
            section(
                "progress", "Progress round by round", progress_words(run) if progress else Html(""),
                drawn("progress", progress),
            ),
            section("attendance", "Who took part", participation.told(run)),
            section("told", "Who counted, round by round", diagnostics_charts.by_hospital(run)),
            section("numbers", "The numbers", tables.scores(run)),
            section(
                "differences", "Is one model better than another?", difference_words(run),
                drawn("differences", [score_charts.differences(run)]), tables.differences(run),
            ),
            section("fairness", "Groups of patients", fairness.told(fairness.fairness_of(run.methods), run.task)),
            section("costs", "Traffic, time and energy", drawn("costs", progress_charts.costs(run)), tables.costs(run)),
            section("patients", "Patients", drawn("patients", progress_charts.patients(run)), tables.patients(run)),
            section(
                "curious", "For the curious", drawn("calibration", [score_charts.calibration(run)]),
                tables.percentiles(run), tables.manifest(run),
            ),
        ]
    )  # fmt: skip


def broken(run: Run) -> Html:
    """What is wrong with the files, before anything else is said."""
    found = []
    if not run.finished:
        done = max((course.rounds[-1] for course in run.courses if course.rounds), default=0)
        until = f"after round {done:,}" if done else "before a first round was written"
        found.append(
            Html(
                f"<strong>This run was interrupted {until}:</strong> there is no <code>result.json</code>. Run the "
                "study again (it goes on where it stopped if it left a checkpoint); then make the report again."
            )
        )
    found += [safe(remark) for remark in run.remarks]
    return notices(found)


def figures_first(run: Run) -> Html:
    """The figures a reader looks for first."""
    cost = [run.cost(method) for method in run.methods]
    patients = sum(hospital.patients for hospital in run.hospitals)
    found = []
    if run.hospitals:
        found.append(("Hospitals", f"{len(run.hospitals):,}"))
    if patients:
        found.append(("Patients", f"{patients:,}"))
    leaders = best_overall(run, run.metric)
    if len(leaders) == 1:
        value = leaders[0].over_all(run.metric).value or 0.0
        reached = f"{plain(label_of(run.metric))} {numbers.score(value)}"
        if len(run.methods) == 1:
            found.append(("All hospitals, by patients", reached))
        else:
            found.append((f"Best on average, {reached}", leaders[0].label))
    for title, amount, unit in (
        ("Traffic", total([c.traffic for c in cost]), numbers.traffic),
        ("Time", total([c.seconds for c in cost]), numbers.time),
        ("Energy (estimate)", total([c.watt_hours for c in cost]), numbers.energy),
    ):
        if amount is not None:
            found.append((title, unit(amount)))
    return facts(found)


def progress_words(run: Run) -> Html:
    many = len(run.hospitals) > score_charts.MANY
    hospitals = "The band holds the middle 80 % of hospitals." if many else "Each thin line is one hospital."
    repeat = f" Shown is the first of {run.repeats} repeats." if run.repeats > 1 else ""
    return paragraph(
        Html(
            "The error on patients kept apart for checking (validation loss; lower is better). The thick line is the "
            f"mean over all patients. {hospitals}{repeat}"
        )
    )


def difference_words(run: Run) -> Html:
    if not run.differences:
        return Html("")
    return paragraph(
        Html(
            "Two models are compared on the very same patients, so that easy or hard patients do not decide. Where "
            "the interval includes zero, no difference is shown; that does not prove that there is none. A verdict may "
            "be withheld although the interval excludes zero, when many comparisons were made at once."
        )
    )
