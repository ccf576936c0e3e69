"""The long-lived processes on the command line: started in the foreground, stopped by Ctrl-C or SIGTERM."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from rich.console import Console

from wardround.core.errors import Refusal
from wardround.core.text import plain_line

if TYPE_CHECKING:
    from wardround.deploy.notices.notice import Notifier
    from wardround.deploy.party.service import PartyService

NOTICE_EVERY = 60.0
ERRORS = Console(stderr=True)
FAULT, REFUSED = 1, 2
"""Exit codes: a fault of our own, and a mistake of the user's."""
RENEWED = 75
"""Neither done nor failed: the process has to be started anew."""
QUIET = ("hello", "offer", "heads", "countersigned", "membership", "ended")
"""Answers that tell nothing of a study."""


def start_site(home: Path) -> NoReturn:
    """`site start`: answer the coordinator until stopped."""
    from wardround.deploy.home import SiteHome
    from wardround.deploy.notices.notice import Notifier
    from wardround.deploy.notices.watch import notice_party
    from wardround.deploy.party.late_answerer import LateAnswerer
    from wardround.deploy.party.service import Answerer, PartyService
    from wardround.deploy.protocol.requests import Topic

    there = SiteHome(home)
    notifier = Notifier(there.path, f"the site {there.own_name}", print_failure)
    tell = party_announcer(notifier)

    def make() -> Answerer:
        from wardround.deploy.site.authorization import HomeAccess
        from wardround.deploy.site.request_handler import RequestHandler

        handler = RequestHandler(HomeAccess(there))
        handler.on_event = tell
        return handler

    topics = [topic for topic in Topic if topic is not Topic.OPEN]  # which the second server alone is asked
    service = PartyService(there, LateAnswerer(there, make), topics, tell)
    watch_for_notices(notifier, lambda: notice_party(notifier, there), service.stopped)
    serve(service)


def start_second(home: Path) -> NoReturn:
    """`second start`: the same for a second server."""
    from wardround.deploy.party.service import PartyService
    from wardround.deploy.protocol.requests import Topic
    from wardround.deploy.second.home import SecondHome
    from wardround.deploy.second.request_handler import SecondHandler

    there = SecondHome(home)
    serve(PartyService(there, SecondHandler(there), (Topic.OFFER, Topic.OPEN), print_party_event))


def serve(service: "PartyService") -> NoReturn:
    """Run it in the foreground until stopped."""

    def work() -> int:
        service.start()
        ERRORS.print(
            f"{service.state['name']} is connecting to {service.state['coordinator']}. Press Ctrl-C to stop.",
            markup=False,
        )
        stop_on_signal(service.stopped)
        service.work()
        return 0

    leave(guard(work, service.stop, service.home.path))


def guard(work: Callable[[], int], stop: Callable[[], None], home: Path) -> int:
    """The exit code of a long-lived process, which is stopped whatever happens: its port is free afterwards."""
    try:
        return work()
    except Refusal as refusal:  # told here, since the process cannot end in the ordinary way any more
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


def print_party_event(word: str, facts: Mapping[str, Any]) -> None:
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
    if facts.get("topic") == "revoked":
        word, sentences = "answered", {"answered": "the coordinator revoked this site (see wardround doctor)"}
    if word in sentences and (word == "refused" or facts.get("topic") not in QUIET):
        words = plain_line(sentences[word].format(**facts))  # a coordinator's words among them
        ERRORS.print(f"{time.strftime('%H:%M:%S')} {words}", markup=False, highlight=False)


def party_announcer(notifier: "Notifier") -> Callable[[str, Mapping[str, Any]], None]:
    """Says what happens at the terminal, and tells those who want to hear it elsewhere."""

    def announce(word: str, facts: Mapping[str, Any]) -> None:
        print_party_event(word, facts)
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
