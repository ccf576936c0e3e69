"""A consortium over the transport `in_process`: sites with real homes and request handlers, but no network.

Points at which a party dies raise `Died` here; the party is then made anew from what is on its disk.
"""

import errno
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from tests.support.results import plain
from wardround.deploy import fault_points
from wardround.deploy.coordinator import engine, gather, run_study
from wardround.deploy.coordinator import secure_round as coordinator_sum
from wardround.deploy.coordinator.events import Observer, ignore
from wardround.deploy.coordinator.monitor import question as coordinator_monitor
from wardround.deploy.coordinator.queue import with_members
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.coordinator.transcript_record import signer_of
from wardround.deploy.coordinator.two_servers import attempt as coordinator_pair
from wardround.deploy.demo import demo_study, make_coordinator, make_site, write_patients
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode
from wardround.deploy.second import robust_sum
from wardround.deploy.site import kept_state, request_handler, study_worker
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.release import secure_round as site_sum
from wardround.deploy.site.release import two_server_round as site_pair
from wardround.deploy.site.release.grid_offset import NAME
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.transport.in_process import InProcess
from wardround.deploy.transport.site_register import SiteRegister
from wardround.deploy.trust.pins import needs_pins
from wardround.runs.folder import RunFolder
from wardround.study.file import Study, parse_study

POINTED = (
    *(kept_state, study_worker, request_handler, run_study, engine, gather),
    *(coordinator_sum, site_sum, coordinator_pair, site_pair, robust_sum, coordinator_monitor),
)
"""Modules that call `point`."""
NAMES = ("bo", "freetown", "kenema")
KEPT = {"name": "scaffold", "learning_rate": 0.1}
"""An algorithm of which both sides keep something between rounds."""


class Died(BaseException):
    """A process ended without a farewell; no `except Exception` may hear of it."""


def study_of(name: str, rounds: int = 3, **tables: Any) -> Study:
    words = demo_study(rounds).model_dump(mode="json", exclude_none=True)
    words["evaluation"] = {"resamples": 20}
    words["study"]["name"] = name
    for table, values in tables.items():
        words[table] = values if isinstance(values, list) else {**(words.get(table) or {}), **values}
    return parse_study(words, where="test")


class Consortium:
    """Sites over `InProcess`; `change` may spoil a reply on its way, `away` says who is not connected.

    It is the transport itself, so a test may also put another `ask` in the place of its own.
    """

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        self.folder, self.names = folder, tuple(names)
        self.home = make_coordinator(folder / "coordinator", 1)
        self.tables = write_patients(folder, names)
        self.homes = {name: make_site(folder / name, name, self.home, self.tables[name]) for name in names}
        for home in self.homes.values():  # some tests conduct a hundred studies over the same rows
            set_policy(home.policy_path, "statistics", "100000")
        self.handlers: dict[str, RequestHandler] = {}
        self.transport = InProcess({}, SiteRegister(self.home, self.home.log()))
        for name in names:
            self.restart(name)
        self._full: dict[str, Study] = {}
        self.away: set[str] = set()
        self.deciding: set[str] = set()
        """Sites whose administrator has not decided yet."""
        self.asked: list[tuple[str, str, int]] = []
        self.deaths: list[str] = []
        self.change: Callable[[str, str, dict[str, Any], bytes], bytes] = lambda site, topic, header, reply: reply

    def restart(self, name: str) -> None:
        """A new process of a site, from what is on its disk."""
        self.handlers[name] = RequestHandler(HomeAccess(self.homes[name]))
        self.transport.sites[name] = self.handlers[name].answer

    @property
    def register(self) -> SiteRegister:
        return self.transport.register

    # ---- the transport's contract ----

    @property
    def stopped(self) -> threading.Event:
        return self.transport.stopped

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        header, _ = decode(body)
        self.asked.append((site, topic, header.get("round", 0)))
        try:
            reply = self.transport.ask(site, topic, body, within)
            waits = topic == "offer" and read_reply(reply).status is Status.WAITING
            if waits and site not in self.deciding:
                approve(self.homes[site], header["study"], by=f"admin-{site}")
                self.fix_grid(site, header["study"])
                reply = self.transport.ask(site, topic, body, within)
        except Died:
            self.deaths.append(site)
            self.restart(site)
            raise Unanswered(site, "it disconnected before it answered", gone=True) from None
        return self.change(site, topic, header, reply)

    def fix_grid(self, site: str, study: str) -> None:
        """A key that every run of the tests has: which way a figure is rounded is then the same each time."""
        folder = self.homes[site].folder(study)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NAME).write_bytes(site.encode().ljust(32))

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        return self.transport.announce(topic, bodies)

    def present(self) -> frozenset[str]:
        return self.transport.present() - self.away

    def revoked(self) -> Mapping[str, str]:
        return self.transport.revoked()

    def certificates(self) -> Mapping[str, str]:
        return self.transport.certificates()

    # ---- studies ----

    def conduct(
        self, study: Study, observer: Observer = ignore, *, known_rows: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        """One process of the coordinator: until the end, or until it dies."""
        study = self.full(study)
        path = self.run(study)
        folder = RunFolder.create(path, resume=(path / "manifest.json").exists())
        submission = Submission(study, self.names, "researcher", known_rows or {})
        return plain(run_study.conduct(submission, folder, self, observer, signer_of(self.home)))

    def until_done(self, study: Study) -> dict[str, Any]:
        """The coordinator is started again whenever it died."""
        while True:
            try:
                return self.conduct(study)
            except Died:
                self.deaths.append("coordinator")

    def full(self, study: Study) -> Study:
        """The study as it is queued, if it hides answers among those of others: with its sites and their fingerprints.

        Other studies stay as they are, so that a test that knows the study knows its identity too.
        """
        if not needs_pins(study):
            return study
        return self._full.setdefault(study_id(study), with_members(study, self.home))

    def id(self, study: Study) -> str:
        return study_id(self.full(study))

    def run(self, study: Study) -> Path:
        return self.home.folder(self.id(study)) / "run"

    def rounds(self, study: Study) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run(study) / "rounds.jsonl").read_text().splitlines()]

    def model(self, study: Study) -> dict[str, bytes]:
        arrays = load_file(self.run(study) / "model.safetensors")
        return {f"{name} {array.dtype} {array.shape}": array.tobytes() for name, array in arrays.items()}

    def left(self, name: str, study: Study) -> list[dict[str, Any]]:
        entries = [json.loads(line)["entry"] for line in self.homes[name].audit_path.read_bytes().splitlines()]
        own = self.id(study)
        return [one for one in entries if one["kind"] == "sent" and one["study"] == own]


def die_at(monkeypatch: Any, name: str, count: int = 1) -> None:
    """Let whoever passes a point for the `count`-th time die there."""
    passed = [0]

    def point(here: str) -> None:
        if here == name:
            passed[0] += 1
            if passed[0] == count:
                raise Died

    for module in POINTED:
        monkeypatch.setattr(module, "point", point)
    if name in fault_points.PARTIAL:
        replace = os.replace

        def replaced(source: Any, target: Any) -> None:
            whose = ("/coordinator/" in str(target)) == name.startswith("coordinator.")
            if whose and str(source).endswith(".partial") and fault_points.PARTIAL[name] in str(target):
                point(name)
            replace(source, target)

        monkeypatch.setattr(os, "replace", replaced)


def full_disk(monkeypatch: Any, under: Path, times: int) -> list[str]:
    """Let the next writes below a folder fail as on a full disk; gives the list of what could not be written."""
    failed: list[str] = []
    fsync = os.fsync

    def synced(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        if path.startswith(str(under)) and len(failed) < times and not os.path.isdir(path):
            failed.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", synced)
    return failed
