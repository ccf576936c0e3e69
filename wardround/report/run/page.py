"""The report of a run folder: one HTML file for a clinician and a hospital board."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.report.analysis.page import analysis_page
from wardround.report.clinical.case_pictures import TITLE, CasePicture, pictures_section
from wardround.report.explain.page import selection_page
from wardround.report.html.document import date_text, document, notices
from wardround.report.html.markup import Html, join, safe, section
from wardround.report.partners.answer import partnership_of
from wardround.report.partners.page import partners_page
from wardround.report.run.section import ReportSection, find_sections
from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.explain.explain_result import ExplainResult
from wardround.runs.explain.gaps_result import GapsResult
from wardround.runs.fields import Json
from wardround.runs.file_names import REPORT
from wardround.runs.read import read_manifest, read_result
from wardround.runs.result import CasesResult, MonitorResult, PartnersResult, RunResult
from wardround.runs.run import Run, read_run, run_of

PICTURED = 51
"""The order of a site's own pictures: after how good the models are."""
KINDS = {
    "run": "Report of a training run",
    "compare": "Comparison of ways to train",
    "demo": "Demonstration",
    "deployed": "Report of a study over real hospitals",
    "site": "A hospital's own report of a study over real hospitals",
}


def write_report(folder: Path) -> Path:
    """Writes `report.html` into the run folder and returns its path; a report that is there is replaced."""
    folder = Path(folder)
    text = report_page(folder)
    target, fresh = folder / REPORT, folder / f".{REPORT}.{os.getpid()}"
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


def report_page(folder: Path) -> Html:
    """The page that fits what the folder holds: what an analysis found, an answer about partners, or a run."""
    found = read_result(folder)
    if found is not None and isinstance(found.result, AnalysisResult):
        return analysis_page(found.result, read_manifest(folder) or {}, found.remarks)
    if found is not None and isinstance(found.result, ExplainResult | GapsResult):
        return selection_page(found.result, read_manifest(folder) or {}, found.remarks)
    if found is not None and isinstance(found.result, CasesResult):
        from wardround.report.cases.page import cases_page  # which itself draws on pages of runs

        return cases_page(folder)
    if found is not None and isinstance(found.result, MonitorResult):
        from wardround.report.monitor.consortium import consortium_page  # which draws on pages of monitors

        return consortium_page(found.result, read_manifest(folder) or {})
    if found is None or not isinstance(found.result, PartnersResult):
        return run_page(read_run(folder))
    manifest, name = read_manifest(folder), folder.resolve().name
    return partners_page(partnership_of(found.result, manifest=manifest, default_name=name, remarks=found.remarks))


def run_page(run: Run) -> Html:
    """The whole document."""
    return document(run.name, subtitle(run), content(run), run.manifest)


def own_page(result: RunResult, study: Json, pictures: Sequence[CasePicture] = ()) -> Html:
    """Of a site's own report, which is made at the site and has no run folder; no other page shows `pictures`."""
    run = replace(run_of(result), manifest={"study": study, "wardround": __version__})
    return document(run.name, subtitle(run), content(run, pictures), run.manifest)


def subtitle(run: Run) -> Html:
    parts = [safe(KINDS.get(run.kind, "Report"))]
    if run.manifest.get("finished" if run.finished else "started"):
        word = "finished" if run.finished else "started"
        parts.append(Html(f"{word} {safe(date_text(run.manifest[word]))}"))
    return join(parts, " · ")


def content(run: Run, pictures: Sequence[CasePicture] = ()) -> Html:
    """The sections in the order in which a reader asks: the result, its limits, the evidence, the cost."""
    parts = {one: section(one.name, one.title, *one.parts(run)) for one in find_sections()}
    parts |= {ReportSection(PICTURED, "images", TITLE, lambda run: ()): pictures_section(pictures)}
    shown = sorted(((one, part) for one, part in parts.items() if part), key=lambda one: one[0].order)
    return join([file_problems(run), *(part for _, part in shown[:1]), contents(shown[1:]), *(p for _, p in shown[1:])])


def contents(shown: Sequence[tuple[ReportSection, Html]]) -> Html:
    """Links to what follows the first answers."""
    links = join((Html(f'<li><a href="#{one.name}">{safe(one.title)}</a></li>') for one, _ in shown), "")
    return Html(f'<nav class="contents" aria-label="Contents"><ul>{links}</ul></nav>' if len(shown) > 2 else "")


def file_problems(run: Run) -> Html:
    """What is wrong with the files, before anything else is said."""
    found = []
    if run.kind == "site":
        found.append(
            Html(
                "<strong>This page stays at your hospital.</strong> It holds exact figures of your own patients, small "
                "groups included; nothing in it is rounded or withheld, and nothing of it was sent to anybody."
            )
        )
    if not run.finished:
        done = max((course.rounds[-1] for course in run.courses if course.rounds), default=0)
        until = f"after round {done:,}" if done else "before its first round was recorded"
        found.append(
            Html(
                f"<strong>This run was interrupted {until}:</strong> there is no <code>result.json</code>. Run the "
                "study again with <code>--resume</code>: it continues from its last checkpoint."
            )
        )
    found += [safe(remark) for remark in run.remarks]
    return notices(found)
