"""What the gate costs a plain round: the time within it over the time of the round, measured in the same run.

    python -m benchmarks.gate [--sites 3] [--rounds 60] [--hidden 2000]

A consortium in one process, each site with its home, keys and audit log. Timed is everything that the handler asks of
the gate (words, place, size, admission, release, claim, the name of the request, what a line of the log says has left)
and the check of the model that came; the first rounds, which compile, are left out.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wardround.deploy.coordinator import run_study
from wardround.deploy.coordinator.events import Event, RoundDone
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.demo import demo_study, make_coordinator, make_site, write_patients
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.site import request_handler, study_worker
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.release.gate import ReleaseGate, ReleaseRecord
from wardround.deploy.site.reply_store import RequestTag
from wardround.deploy.transport.in_process import InProcess
from wardround.deploy.transport.site_register import SiteRegister
from wardround.runs.folder import RunFolder
from wardround.study.file import Named

LEFT_OUT = 5
"""Rounds at the beginning that are not timed."""


class Stopwatch:
    """Adds up the time within some functions, the outermost only; sites answer one after the other here."""

    def __init__(self) -> None:
        self.seconds, self.within = 0.0, False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if self.within:
                return function(*given, **named)
            self.within, started = True, time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.seconds += time.perf_counter() - started
                self.within = False

        return call


def watch_gate() -> Stopwatch:
    """Time all that the gate does from now on."""
    watch = Stopwatch()
    for owner, names in (
        (ReleaseGate, ("check_size", "admit", "release", "claim")),
        (request_handler, ("refuse_unknown_words", "place_of", "request_of_sum")),
        (RequestTag, ("name",)),
        (ReleaseRecord, ("_take",)),
        (study_worker.StudyWorker, ("_check_model",)),
    ):
        for name in names:
            setattr(owner, name, watch.timed(getattr(owner, name)))
    return watch


def measure(sites: int, rounds: int, hidden: int, folder: Path) -> tuple[float, float]:
    """Seconds within the gate of all sites, and of the rounds, after the first few."""
    names = tuple(f"site-{number}" for number in range(sites))
    home = make_coordinator(folder / "coordinator", 1)
    tables = write_patients(folder, names)
    homes = {name: make_site(folder / name, name, home, tables[name]) for name in names}
    transport = InProcess({}, SiteRegister(home, home.log()))
    handlers = {name: request_handler.RequestHandler(HomeAccess(homes[name])) for name in names}
    watch, marks, in_turn = watch_gate(), [], threading.Lock()

    def answer(name: str) -> Callable[[str, str, bytes], bytes]:
        def respond(topic: str, origin: str, body: bytes) -> bytes:
            with in_turn:
                reply = handlers[name].answer(topic, origin, body)
            if topic == "offer" and read_reply(reply).status is Status.WAITING:
                approve(homes[name], submission.id, by=f"admin-{name}")
                return handlers[name].answer(topic, origin, body)
            return reply

        return respond

    def hear(event: Event) -> None:
        if isinstance(event, RoundDone):
            marks.append((time.perf_counter(), watch.seconds))

    study = demo_study(rounds)
    if hidden:
        study = study.model_copy(update={"model": Named.model_validate({"name": "mlp", "hidden": [hidden, hidden]})})
    submission = Submission(study, names, "researcher")
    transport.sites.update({name: answer(name) for name in names})
    run_study.conduct(submission, RunFolder.create(folder / "run", resume=False), transport, hear)
    first, last = marks[LEFT_OUT], marks[-1]
    return last[1] - first[1], last[0] - first[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=0, help="width of two hidden layers; 0: a logistic model")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inside, whole = measure(asked.sites, asked.rounds, asked.hidden, Path(folder))
    timed = asked.rounds - LEFT_OUT - 1
    print(f"{asked.sites} sites, {timed} rounds: {1000 * whole / timed:.2f} ms a round,")
    print(f"{1000 * inside / timed:.3f} ms of it in the gate of all sites together: {inside / whole:.2%}")


if __name__ == "__main__":
    main()
