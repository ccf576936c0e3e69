"""The coordinator at work in a terminal: says what happens, ends when told to, and tells how a study ended."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wardround.cli.operations.event_log import EventLog, facts_of
from wardround.cli.output import say
from wardround.cli.services import (
    PLAIN,
    REFUSED,
    RENEWED,
    ServiceOptions,
    guard,
    leave,
    serve_gauges,
    stop_on_signal,
    watch_for_notices,
)
from wardround.core.errors import Refusal
from wardround.core.text import plain_line

if TYPE_CHECKING:
    from wardround.deploy.coordinator.events import Event, Observer
    from wardround.deploy.home import CoordinatorHome
    from wardround.deploy.notices.notice import Notifier

INTERRUPTED = 130
WITHOUT_MODEL = ("monitor", "analysis")
"""Kinds of studies that train none, so there is no card to write."""
WRITTEN = {"Report": "report.html", "Model card": "model_card.md"}


def conduct_study(home: "CoordinatorHome", name: str, *, wait: bool, as_json: bool) -> None:
    """Leave a queued study to the running coordinator, or be the coordinator until it has ended."""
    from wardround.deploy.coordinator.consortium import is_running
    from wardround.deploy.coordinator.queue import queued_studies

    if is_running(home):
        if wait:
            while name in queued_studies(home):
                time.sleep(0.5)
            report_end(home, name, as_json=as_json)
            return
        before = [one for one in queued_studies(home) if one != name]
        lines = [
            f"{name} is offered to its sites" + (f", as are {', '.join(before)}." if before else "."),
            f"Each site must approve it: wardround site approve {name}",
            "To see its progress: wardround coordinator status",
        ]
        say({"study": name, "state": "queued", "behind": before}, lines, as_json)
        return
    note(f"No coordinator is running, so this process acts as one until {name} ends.")
    note(f"Each site must approve it: wardround site approve {name}")
    before = [one for one in queued_studies(home) if one != name]
    if before:
        note(f"Also offered: {', '.join(before)}. Whichever is approved first runs first.")
    code = listen(home, until_done=True)
    if code == 0:
        try:
            report_end(home, name, as_json=as_json)
        except Refusal as refusal:  # told here, since the process cannot end in the ordinary way any more
            if as_json:
                typer.echo(json.dumps({"error": str(refusal)}))
            typer.echo(f"wardround: {plain_line(refusal)}", err=True)
            code = REFUSED
    leave(code)


def report_end(home: "CoordinatorHome", name: str, *, as_json: bool) -> None:
    """Say how a study ended; one that failed is a refusal."""
    from wardround.runs.json_files import read_json

    state = read_json(home.folder(name) / "state.json", "continue it with `wardround coordinator resume`")
    if state["state"] != "finished":
        raise Refusal(
            f"the study {state['state']}: {state['why']}".rstrip("."),
            where=name,
            remedy="fix the cause, then run `wardround coordinator resume` (a site that corrected its data runs"
            " `wardround site reread` before), or amend the study",
        )
    run = home.folder(name) / "run"
    lines = [f"{name} finished: {run}", *found_by_monitor(run)]
    lines += [f"{what}: {run / file}" for what, file in WRITTEN.items() if (run / file).exists()]
    say({"study": name, "state": "finished", "folder": run}, lines, as_json)


def found_by_monitor(run: Path) -> list[str]:
    """Where a model ages, in words; nothing for a study that trained one."""
    from wardround.report.monitor.consortium import result_sentences
    from wardround.runs.read import read_result
    from wardround.runs.result import MonitorResult

    found = read_result(run)
    return result_sentences(found.result) if found is not None and isinstance(found.result, MonitorResult) else []


# ---- the long-lived process ----


def listen(home: "CoordinatorHome", *, until_done: bool, options: ServiceOptions = PLAIN) -> int:
    """Be the coordinator; gives the exit code."""
    from wardround.deploy.coordinator.consortium import lock_home
    from wardround.deploy.coordinator.service import Coordinator
    from wardround.deploy.notices.notice import Notifier
    from wardround.deploy.notices.watch import notice_coordinator

    with lock_home(home):
        log = options.event_log(home.settings.name)
        notifier = Notifier(home.path, f"the coordinator {home.own_name}", note)
        coordinator = Coordinator(home, heard_by(announcer(log), notifier))

        def work() -> int:
            serve_gauges(options, coordinator.gauges)
            watch_for_notices(notifier, lambda: notice_coordinator(notifier, home, home.status()), coordinator.stopped)
            stop_on_signal(coordinator.stopped)
            words = home.settings
            said = f"{words.name} of {words.consortium} listens at {words.listen}. Press Ctrl-C to stop."
            log.write(said, "started", {"listen": words.listen})
            coordinator.work(until_done=until_done)
            if coordinator.restarts:
                return RENEWED
            if coordinator.stopped.is_set():
                return INTERRUPTED
            return RENEWED if coordinator.is_outdated() else 0

        code = guard(coordinator.start, work, coordinator.stop, home.path)
    if code == RENEWED:
        note("The coordinator's certificate was renewed; it starts anew to use it.")
    if code == INTERRUPTED and not until_done:
        return 0
    if code == INTERRUPTED:
        note("Stopped. All work so far is saved; continue with: wardround coordinator start")
    return code


def note(words: str) -> None:
    from wardround.report.html.markup import plain

    typer.echo(f"{time.strftime('%H:%M:%S')} {plain(words)}", err=True)


def heard_by(announce: "Observer", notifier: "Notifier") -> "Observer":
    """Both hear every event: the terminal, and whoever wants to be told elsewhere."""
    from wardround.deploy.notices.watch import notice_event

    def observe(event: "Event") -> None:
        announce(event)
        notice_event(notifier, event)

    return observe


def announcer(log: EventLog) -> "Observer":
    """Says what happens as a person at the terminal would want to hear it; the same twice in a row is said once.

    Of several studies under way, the name stands where another one spoke before.
    """
    from wardround.deploy.coordinator.events import StudyEnded

    said, spoke = [""], [""]

    def announce(event: "Event") -> None:
        words = event_sentence(event)
        if words and words != said[0]:
            said[0] = words
            other = event.about and spoke[0] not in ("", event.about)  # who speaks is said when it changes
            spoke[0] = event.about or spoke[0]
            log.write(f"{event.about}: {words}" if other else words, type(event).__name__, facts_of(event))
        if isinstance(event, StudyEnded) and event.state == "finished":
            write_pages(Path(event.folder))

    return announce


def event_sentence(event: "Event") -> str:
    """One thing that happened, in words; nothing for what nobody needs to hear."""
    from wardround.deploy.coordinator import events

    words = ""
    match event:
        case events.ConnectionChanged(site, connected):
            words = f"{site} connected" if connected else f"{site} disconnected"
        case events.SiteWarning(site, why):
            words = f"{site}: {why}"
        case events.ApprovalPending(sites):
            words = f"waiting for approval by {', '.join(sites)}"
        case events.SitesAwaited(sites):
            words = f"waiting for {', '.join(sites)} to connect"
        case events.AnswersGathered("round", number, _, missing) if missing:
            words = f"round {number}: no answer from {reasons_text(missing)}"
        case events.RoundDone(number, of, sites):
            without = f" (without {reasons_text(event.absent)})" if event.absent else ""
            odd = reasons_text(event.measures.get("validation_left_out", {}))
            words = f"round {number} of {of}: {site_count(sites)}{without}"
            words += f" (validation loss without {odd})" if odd else ""
        case events.SiteJoined(site, rows):
            words = f"{site} joined the study with {rows} training patients"
        case events.DiskFailed(why):
            words = why
        case events.StudyEnded(study, "failed", why):
            words = f"{study} failed: {why}"
        case events.StudyEnded(study, "finished", _, folder):
            words = f"{study} finished: {folder}"
        case events.StudyEnded(study, state, why):
            words = f"{study} {state}" + (f": {why}" if why else "")
        case events.StudyOffered(study, parties):
            words = f"{study} is offered to {', '.join(parties)}"
    return words


def reasons_text(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{site}: {why}" for site, why in sorted(reasons.items()))


def site_count(sites: Sequence[str]) -> str:
    return f"{len(sites)} site{'' if len(sites) == 1 else 's'}"


def write_pages(run: Path) -> None:
    """Report and model card of a finished study; the study is finished even if one of them cannot be written."""
    from wardround.report.model_card.facts import write_card
    from wardround.report.run.page import write_report
    from wardround.runs.file_names import MANIFEST
    from wardround.runs.json_files import read_json

    manifest = read_json(run / MANIFEST, "") if (run / MANIFEST).exists() else {}
    trained = () if manifest.get("kind") in WITHOUT_MODEL else (("model card", write_card),)
    for what, write in (("report", write_report), *trained):
        try:
            write(run)
        except Exception as error:  # the coordinator must go on with its next study, whatever a page trips over
            note(f"the {what} could not be written ({type(error).__name__}: {error}); the result is in {run}")
