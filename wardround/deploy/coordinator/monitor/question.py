"""Asks every site about the model that it kept, and writes down where it ages.

There is one question and one answer a site, so nothing needs to be kept in between: a coordinator that died asks again
and is given the same bytes.
"""

from collections.abc import Mapping
from typing import Any

from wardround.core.components.recipes import to_json
from wardround.core.contracts import Message, Query, Report
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.answer_bounds import combine_answers_of, query_check
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.coordinator.gather import Absences
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.requests import NOTHING, AskQuery
from wardround.engine.registry import make_from
from wardround.monitor.consortium import FALSE_ALARMS, aged_windows
from wardround.runs.clinical.monitor import MonitoredSite, MonitoredWindow
from wardround.runs.folder import RunFolder
from wardround.runs.result import MonitorResult
from wardround.study.file import Study
from wardround.study.monitor_section import MonitorSection


def refuse_monitor(said: MonitorSection) -> None:
    """What is wrong with a study before any site hears of it."""
    if not said.outcome:
        raise Refusal(
            "the study does not name the column of outcomes",
            where="[monitor]",
            remedy='add outcome = "...", or name a study that this coordinator conducted',
        )


def ask_windows(
    engine: Deployment,
    study: Study,
    said: MonitorSection,
    folder: RunFolder,
    approved: set[str],
    manifest: Mapping[str, Any],
) -> MonitorResult:
    """Ask those who approved, and conclude; a site that cannot answer is named and left out."""
    query: Query = make_from(said.query)
    cohort = [site for site in engine.sites if site in approved]
    answers, absent = engine.gatherer.ask_quorum(
        cohort,
        AskQuery(to_json(said.query), "raw"),
        NOTHING,
        0,
        get_ready=lambda sites: {},
        check=query_check(query, Message({}), noised=False),
        leaves_out=True,
    )
    report = combine_answers_of(query, {site: one.message for site, one in answers.items()}, engine.sites)
    missing = {site: absent[site] for site in cohort if site not in answers and site in absent}
    result = conclude(study, said, report, missing, [site for site in engine.sites if site not in approved])
    point("coordinator.result.before_save")
    folder.write_result(result)
    folder.finish(manifest, sites=list(engine.sites))
    point("coordinator.result.saved")
    return result


def conclude(
    study: Study, said: MonitorSection, report: Report, missing: Absences, undecided: list[str]
) -> MonitorResult:
    windows = aged_windows(report)
    silent = [site for site, own in report["sites"].items() if not own["windows"]]
    notes = [f"{site} gave no answer: {why}." for site, why in sorted(missing.items())]
    notes += [f"{site} had not approved the study in time." for site in undecided]
    notes += [f"{site} has no {said.every} with enough patients whose outcome is known." for site in silent]
    return MonitorResult(
        study=study.study.name,
        kind="monitor",
        model=said.study,
        outcome=said.outcome,
        date=said.date,
        every=said.every,
        false_alarms=FALSE_ALARMS,
        sites=tuple(
            MonitoredSite(
                name=site,
                cell=own["cell"],
                windows=tuple(
                    MonitoredWindow(
                        window=one.window,
                        patients=one.patients,
                        predicted=one.predicted,
                        low=one.low,
                        high=one.high,
                        verdict=one.verdict,
                    )
                    for one in windows
                    if one.site == site
                ),
            )
            for site, own in report["sites"].items()
        ),
        notes=tuple(notes),
    )
