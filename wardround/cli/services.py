"""The long-lived processes on the command line: started in the foreground, stopped by Ctrl-C or SIGTERM."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn

import typer
from rich.console import Console

from wardround.cli.operations.event_log import EventLog, LogFormat
from wardround.core.errors import Refusal
from wardround.core.text import plain_line

if TYPE_CHECKING:
    from wardround.deploy.notices.notice import Notifier
    from wardround.deploy.operations.gauges import Look
    from wardround.deploy.party.service import PartyService

NOTICE_EVERY = 60.0
ERRORS = Console(stderr=True)
FAULT, REFUSED = 1, 2
"""Exit codes: a fault of our own, and a mistake of the user's."""
RENEWED = 75
"""Neither done nor failed: the process has to be started anew."""
QUIET = ("hello", "offer", "heads", "countersigned", "membership", "ended")
"""Answers that tell nothing of a study."""


class ServiceOptions(NamedTuple):
    """How a long-lived process tells of itself."""

    metrics: str = ""
    form: LogFormat = "text"
    file: Path | None = None

    def event_log(self, party: str) -> EventLog:
        log = EventLog(self.form, self.file, party)
        log.take_warnings()
        return log


PLAIN = ServiceOptions()
Metrics = Annotated[
    str,
    typer.Option("--metrics", help="Health and Prometheus metrics at this address of this machine, 127.0.0.1:PORT."),
]
LogAs = Annotated[str, typer.Option("--log-format", help="text, or json: one JSON object a line.")]
LogFile = Annotated[
    Path | None, typer.Option("--log-file", help="Write to this file, which is rotated (default: the terminal).")
]


def service_options(metrics: str, form: str, file: Path | None) -> ServiceOptions:
    if form not in ("text", "json"):
        raise Refusal(f"there is no log format '{form}'", where="--log-format", remedy="use text or json")
    if metrics:
        from wardround.deploy.operations.gauges import require_loopback

        require_loopback(metrics)
    return ServiceOptions(metrics, "json" if form == "json" else "text", file)


def start_site(home: Path, options: ServiceOptions = PLAIN) -> NoReturn:
    """`site start`: answer the coordinator until stopped."""
    from wardround.deploy.home import SiteHome
    from wardround.deploy.notices.notice import Notifier
    from wardround.deploy.notices.watch import notice_party
    from wardround.deploy.party.late_answerer import LateAnswerer
    from wardround.deploy.party.service import Answerer, PartyService
    from wardround.deploy.protocol.requests import Topic

    there = SiteHome(home)
    notifier = Notifier(there.path, f"the site {there.own_name}", print_failure)
    log = options.event_log(there.own_name)
    tell = party_announcer(notifier, log)

    def make() -> Answerer:
        from wardround.deploy.site.authorization import HomeAccess
        from wardround.deploy.site.request_handler import RequestHandler

        handler = RequestHandler(HomeAccess(there))
        handler.on_event = tell
        return handler

    topics = [topic for topic in Topic if topic is not Topic.OPEN]  # which the second server alone is asked
    service = PartyService(there, LateAnswerer(there, make), topics, tell)
    watch_for_notices(notifier, lambda: notice_party(notifier, there), service.stopped)
    serve(service, options, log)


def start_second(home: Path, options: ServiceOptions = PLAIN) -> NoReturn:
    """`second start`: the same for a second server."""
    from wardround.deploy.party.service import PartyService
    from wardround.deploy.protocol.requests import Topic
    from wardround.deploy.second.home import SecondHome
    from wardround.deploy.second.request_handler import SecondHandler

    there = SecondHome(home)
    log = options.event_log(there.own_name)
    service = PartyService(there, SecondHandler(there), (Topic.OFFER, Topic.OPEN), party_printer(log))
    serve(service, options, log)


def serve(service: "PartyService", options: ServiceOptions, log: EventLog) -> NoReturn:
    """Run it in the foreground until stopped."""

    def work() -> int:
        serve_gauges(options, service.look)
        name, address = service.state["name"], service.state["coordinator"]
        log.write(f"{name} is connecting to {address}. Press Ctrl-C to stop.", "started", {"coordinator": address})
        stop_on_signal(service.stopped)
        service.work()
        return 0

    leave(guard(service.start, work, service.stop, service.home.path))


def serve_gauges(options: ServiceOptions, look: "Look") -> None:
    """Where somebody wants them."""
    if options.metrics:
        from wardround.deploy.operations.gauges import GaugeServer

        GaugeServer(options.metrics, look)


def guard(start: Callable[[], None], work: Callable[[], int], stop: Callable[[], None], home: Path) -> int:
    """The exit code of a long-lived process, which is stopped whatever happens: its port is free afterwards."""
    started = False
    try:
        start()
        started = True
        return work()
    except Refusal as refusal:
        if not started:
            raise
        # Told here, since the process cannot end in the ordinary way any more.
        ERRORS.print(f"wardround: {plain_line(refusal)}", markup=False, highlight=False, soft_wrap=True)
        return REFUSED
    except Exception as error:
        from wardround.deploy.fault_log import record_fault

        path = record_fault(home, "the process", error)
        words = Refusal(
            f"the process ended by a fault of its own ({type(error).__name__})",
            where=str(home),
            remedy=f"start it again, which loses nothing, and report the fault with the last entry of {path}",
        )
        ERRORS.print(f"wardround: {plain_line(words)}", markup=False, highlight=False, soft_wrap=True)
        return FAULT
    finally:
        stop()


def stop_on_signal(stopped: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())


def leave(code: int = 0) -> NoReturn:
    """End the process: the network library's threads would keep it alive; all that matters is on the disk.

    One whose certificate was renewed begins anew in its own place, with the same words.
    """
    ERRORS.file.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == RENEWED:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    os._exit(code)


def party_printer(log: EventLog) -> Callable[[str, Mapping[str, Any]], None]:
    """Says what happens at a party."""
    sentences = {
        "connected": "connected to the coordinator at {coordinator}",
        "lost": "connection to the coordinator at {coordinator} lost; reconnecting",
        "worried": "not connected to the coordinator: {why}",
        "distrusted": "stopped: this site no longer answers the coordinator at {coordinator}",
        "refused": "refused {topic}: {why}",
        "offered": "{submitter} asks for {study}: wardround site approve {study}",
        "ended": "{study} {state}, says the coordinator (see wardround site studies)",
        "answered": "answered {topic}: sent {bytes} bytes (see wardround site log)",
    }

    def tell(word: str, facts: Mapping[str, Any]) -> None:
        if facts.get("topic") == "revoked":
            log.write("the coordinator revoked this site (see wardround doctor)", "revoked", facts)
        elif word in sentences and (word == "refused" or facts.get("topic") not in QUIET):
            log.write(sentences[word].format(**facts), word, facts)  # a coordinator's words among them

    return tell


def party_announcer(notifier: "Notifier", log: EventLog) -> Callable[[str, Mapping[str, Any]], None]:
    """Says what happens at the terminal, and tells those who want to hear it elsewhere."""
    tell = party_printer(log)

    def announce(word: str, facts: Mapping[str, Any]) -> None:
        tell(word, facts)
        study = str(facts.get("study", ""))
        if word == "offered":
            notifier.notify("study waits", command=f"wardround site approve {study}", study=study)
        elif word == "ended":
            state = str(facts["state"])
            key, command = f"{study} {state}", "wardround site studies"
            event: Literal["study failed", "study ended"] = "study failed" if state == "failed" else "study ended"
            more = {} if state == "failed" else {"state": state}
            notifier.notify(event, command=command, key=key, study=study, **more)
        elif facts.get("topic") == "revoked":
            notifier.notify("revoked", command="wardround doctor")

    return announce


def watch_for_notices(notifier: "Notifier", look: Callable[[], None], stopped: threading.Event) -> None:
    """Look every minute for what nobody reports: sites that stay away, certificates that age."""

    def work() -> None:
        while not stopped.wait(NOTICE_EVERY):
            if notifier.settings() is not None:
                with suppress(Refusal, OSError):
                    look()

    threading.Thread(target=work, name="wardround notices", daemon=True).start()


def print_failure(why: str) -> None:
    ERRORS.print(f"{time.strftime('%H:%M:%S')} {plain_line(why)}", markup=False, highlight=False)


def demo_sites(sites: int, out: Path | None, *, as_json: bool) -> None:
    """`demo --sites`: a consortium on this machine, each party a process; everything is stopped at the end."""
    from wardround.deploy.demo import demonstrate
    from wardround.report.run.page import write_report
    from wardround.report.terminal import summary_table
    from wardround.runs.folder import RunFolder
    from wardround.runs.json_files import as_json as to_json
    from wardround.runs.result import values_of

    folder = out or RunFolder.free_name(Path("runs"), "demo-sites")
    if folder.exists() and any(folder.iterdir()):
        raise Refusal("the output folder is not empty", where=str(folder), remedy="choose another with --out")
    done = demonstrate(folder, sites, demo_printer())
    report = write_report(done["folder"])
    if as_json:
        print(to_json({"folder": str(done["folder"]), "report": str(report), **values_of(done["result"])}))
        return
    Console().print(summary_table(done["result"]))
    Console().print(f"Report: {report}", markup=False, soft_wrap=True)


def demo_printer() -> Callable[[str, Mapping[str, Any]], None]:
    """Says what happens, and nothing twice in a row."""
    last = ""

    def tell(word: str, facts: Mapping[str, Any]) -> None:
        nonlocal last
        words = demo_sentence(word, facts)
        if words != last:
            clock = time.strftime("%H:%M:%S")
            ERRORS.print(f"{clock} {plain_line(words)}", markup=False, highlight=False, soft_wrap=True)
        last = words

    return tell


def demo_sentence(word: str, facts: Mapping[str, Any]) -> str:
    if word == "made":
        return f"created a coordinator at {facts['listen']} and the sites {', '.join(facts['sites'])}"
    if word == "approved":
        return f"{facts['site']} approved the study"
    if facts.get("missing"):
        reasons: dict[str, list[str]] = {}
        for site, why in facts["missing"].items():
            reasons.setdefault(why, []).append(site)
        return "waiting for " + "; ".join(f"{', '.join(sites)} ({why})" for why, sites in reasons.items())
    if facts.get("round"):
        return f"round {facts['round']} of {facts['rounds']}"
    return f"connected: {', '.join(facts.get('present') or ()) or 'no site yet'}"
