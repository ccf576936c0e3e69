"""The coordinator's long-lived process: listens for sites, conducts the studies of its queue, tells how it stands.

Control is by files in the coordinator's home, so nothing but the sites ever connects: a study is put into `queue`, a
site is revoked in `revoked.json`, the state is in `status.json`. Several studies are under way side by side; started
anew it goes on with those it was at.
"""

import copy
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from wardround import __version__
from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import (
    AnswersGathered,
    ConnectionChanged,
    DiskFailed,
    Event,
    Observer,
    RoundDone,
    SiteWarning,
    StudyEnded,
    ignore,
    suppress_failures,
)
from wardround.deploy.coordinator.maintenance import PATIENCE, Maintenance, refuse_ended, renew_own
from wardround.deploy.coordinator.queue import (
    amended_study,
    has_begun,
    is_finished,
    known_rows,
    queued_studies,
    read_submission,
    sites_for,
)
from wardround.deploy.coordinator.run_study import conduct, refuse_impossible
from wardround.deploy.coordinator.studies.amendment import end_study, ending_of
from wardround.deploy.coordinator.studies.desk import StudyDesk
from wardround.deploy.coordinator.studies.errands import studies_with_errands
from wardround.deploy.coordinator.studies.interruption import StudyTransport
from wardround.deploy.coordinator.studies.lines import in_megabits, keep_lines
from wardround.deploy.coordinator.studies.offers import Standing
from wardround.deploy.coordinator.studies.process_state import coordinator_gauges, last_connections
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.coordinator.studies.traffic import StudyTraffic
from wardround.deploy.coordinator.studies.workload import StudyUnderWay, Workload
from wardround.deploy.coordinator.transcript_record import signer_of
from wardround.deploy.fault_log import record_fault
from wardround.deploy.fault_points import arm
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.operations.gauges import Gauge, PartyHealth
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.transport.cellnet import Credentials, Party
from wardround.deploy.transport.cellnet_transport import CellNetTransport
from wardround.deploy.transport.site_register import SiteRegister
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import has_ended_by
from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.folder import RunFolder
from wardround.runs.json_files import read_json, write_json
from wardround.runs.result import MonitorResult, RunResult
from wardround.study.analyses.analysis import analysis_of
from wardround.study.file import Study

LOOK = 0.5
"""Seconds between two looks at the queue and at who was revoked."""
PROGRESS = 2.0
"""Seconds between two words about transfers that take long."""
LAST_DAYS = timedelta(days=3)
"""Before its certificate ends, a coordinator starts anew with the next one, whatever it is doing."""
GOODBYE = 5.0
"""Seconds that studies under way have to stop."""
DISK_PAUSE = 5.0
"""Seconds until a study is gone on with after the coordinator's disk failed."""


class Coordinator:
    """Listens and works; `observer` hears what a person at the terminal would want to know."""

    def __init__(self, home: CoordinatorHome, observer: Observer = ignore, party: Party | None = None) -> None:
        arm()
        self.home, self.observer = home, suppress_failures(observer)
        words = home.settings
        renew_own(home)  # before it is looked at: one that ended while nobody was here is no obstacle
        refuse_ended(home)
        self._certificate = home.certificate_path.read_bytes()
        self.restarts = False
        """Whether a study under way was left because the certificate that is in use ends in a few days."""
        files = Credentials(home.authority_path, home.certificate_path, home.key_path)
        self.party = party or Party(words.name, words.listen, files, folder=home.transfers_path)
        self.log = home.log()
        self.transport = CellNetTransport(self.party, SiteRegister(home, self.log))
        self.stopped = self.transport.stopped
        self.maintenance = Maintenance(home, self.transport, self._on_warning)
        self.party.watch(self._on_connection)
        self._writing = threading.Lock()
        self._written: dict[str, Any] = {}
        self._told: set[str] = set()
        self._traffic: dict[str, StudyTraffic] = {}
        self.workload = Workload(words.studies_at_once)
        self._looks_alone = False
        """Whether a thread looks after the studies; else `work` does."""
        self.desk = StudyDesk(home, self.transport, self.transport_of, self._take_in, self._end_waiting, self._on_event)
        self.state: dict[str, Any] = {"listen": words.listen, "since": time.time(), "why": ""}
        self.state["connections"] = last_connections(home)

    def start(self) -> None:
        self.log.append(event_entry("started", version=__version__))
        self.party.start()
        self.maintenance.maintain_hourly(self.transport.present, self.stopped)
        self._looks_alone = True
        threading.Thread(target=self._look_after_studies, name="wardround studies", daemon=True).start()
        threading.Thread(target=self._tell_progress, daemon=True).start()

    def _tell_progress(self) -> None:
        """While bytes move slowly, the status says how far they are."""
        while not self.stopped.wait(PROGRESS):
            if self.party.movements() or self._written.get("moving"):
                self.write_status()

    def work(self, *, until_done: bool = False) -> None:
        """Conduct studies as they can begin, some at a time; with `until_done`, stop when the queue is empty.

        Returns, too, when the process must be started anew to use its new certificate (see `is_outdated`): no other
        study begins then, and those under way come to their end.
        """
        while not self.stopped.is_set():
            outdated, idle = self.is_outdated(), not self.workload.names
            if outdated and idle:
                break
            if not self._looks_alone:
                self.look(wait=True)
            name = None if outdated or not self.workload.has_room() else self.desk.next_study()
            if name is not None:
                self.begin(name)
                continue
            if until_done and idle and not queued_studies(self.home):
                self.desk.run_last_errands(GOODBYE)  # who is here hears of the end before this process is gone
                break
            self.write_status()
            self.stopped.wait(LOOK)
        self.workload.join(GOODBYE)

    def _look_after_studies(self) -> None:
        """Until stopped, beside the studies that run."""
        while not self.stopped.wait(LOOK):
            try:
                self.look()
            except Exception as error:  # a fault of ours, or a full disk: the next look may go well
                self._record_fault("the queue", error)

    def look(self, *, wait: bool = False) -> None:
        """Offer, note decisions and what is to end, and tell those who were shut out; with `wait`, until it is done."""
        for name in queued_studies(self.home):
            ending = ending_of(self.home.folder(name))
            if not ending:
                continue
            end = partial(self._end_waiting, name, str(ending["state"]), str(ending["why"]))
            if not self.desk.unless_running(name, end):
                self.workload.end(name)
        revoked = self.transport.register.revoked_names() & self.party.present
        self.tell_revoked(*sorted(revoked - self._told))
        self._told |= revoked
        if self.is_outdated() and has_ended_by(self._certificate, clock.now() + LAST_DAYS):
            self.restarts = True
            self.stopped.set()  # as after a crash, studies go on in the same round
        self.desk.look(wait=wait)
        self.write_status()

    def run(self, name: str) -> RunResult | MonitorResult | AnalysisResult | None:
        """Conduct one study to its end; a refusal ends it and is kept, an interrupt leaves it in the queue.

        A fault of our own ends the study too, never the process: other studies go on.
        """
        return self._run_and_leave(self.workload.enter(name), self.desk.take_running(name))

    def begin(self, name: str) -> None:
        """The same, beside others."""
        one, standing = self.workload.enter(name), self.desk.take_running(name)
        if name in queued_studies(self.home):
            self.workload.begin(name, lambda: self._run_and_leave(one, standing))
        else:  # it was ended a moment ago
            self._leave(one)

    def _run_and_leave(
        self, one: StudyUnderWay, standing: Standing | None
    ) -> RunResult | MonitorResult | AnalysisResult | None:
        try:
            return self._run(one, self.home.folder(one.name), standing)
        finally:
            self._leave(one)

    def _leave(self, one: StudyUnderWay) -> None:
        self.desk.release_running(one.name)
        self.workload.leave(one.name)
        self.write_status()

    def _run(
        self, one: StudyUnderWay, folder: Path, standing: Standing | None
    ) -> RunResult | MonitorResult | AnalysisResult | None:
        name = one.name
        try:
            result = None if is_finished(folder) else self._conduct(one, folder, standing)
            state, why = "finished", ""
        except Refusal as refusal:
            result, state, why = None, "failed", str(refusal)
        except KeyboardInterrupt:
            ending = ending_of(folder)
            if not ending:
                return None
            result, state, why = None, str(ending["state"]), str(ending["why"])
        except OSError as error:
            self._wait_for_disk(name, str(error.strerror or error))
            return None
        except Exception as error:
            result, state, why = None, "failed", self._record_fault(name, error)
        try:
            self._record_end(name, state, why)
        except Refusal as refusal:
            self._wait_for_disk(name, str(refusal))
            return None
        self.observer(StudyEnded(name, state, why, str(folder / "run")))
        return result

    def is_outdated(self) -> bool:
        """Whether the certificate was renewed since the start: who listens goes on with the old one until it ends."""
        try:
            return self.home.certificate_path.read_bytes() != self._certificate
        except OSError:
            return False

    def _record_fault(self, name: str, error: Exception) -> str:
        """Keep what a developer needs in a file of the home; gives what a person is told."""
        path = record_fault(self.home.path, name, error)
        return str(
            Refusal(
                f"the coordinator could not go on with this study ({type(error).__name__})",
                where=name,
                remedy=f"report the fault with the last entry of {path}; other studies are not affected",
            )
        )

    def submission_of(self, name: str) -> Submission:
        """A queued study; its sites are fixed from now on."""
        folder = self.home.folder(name)
        study, submitter = read_submission(folder)
        sites, rows = self._participants(study, folder), known_rows(self.home)
        return Submission(study, sites, submitter, rows, amended_study(folder))

    def _take_in(self, name: str) -> Submission:
        """A study that is new in the queue; what cannot be is refused before any site hears of it."""
        submission = self.submission_of(name)
        if not has_begun(self.home.folder(name)):
            refuse_impossible(submission, self.transport)
        return submission

    def _conduct(
        self, one: StudyUnderWay, folder: Path, standing: Standing | None
    ) -> RunResult | MonitorResult | AnalysisResult:
        name = one.name
        submission = self.submission_of(name) if standing is None else standing.submission
        study = submission.study
        rounds = study.study.rounds if study.analysis is None else analysis_of(study).most
        self.workload.tell(name, round=0, rounds=rounds)
        self.write_status()
        run = RunFolder.open_or_create(folder / "run")
        transport = StudyTransport(self.transport, self.traffic_of(name), one.ended)
        observer = partial(self._on_study_event, name)
        return conduct(submission, run, transport, observer, signer_of(self.home), standing)

    def transport_of(self, name: str) -> StudyTransport:
        """For questions about one study that it does not wait for."""
        return StudyTransport(self.transport, self.traffic_of(name))

    def traffic_of(self, name: str) -> StudyTraffic:
        return self._traffic.setdefault(name, StudyTraffic(self.home.folder(name)))  # of several threads, one for all

    def _participants(self, study: Study, folder: Path) -> tuple[str, ...]:
        """The sites of a study, fixed when it begins: one admitted later must not change a study under way."""
        path = folder / "sites.json"
        if not path.exists():
            write_json(path, {"sites": sites_for(self.home, study, self.transport.register.revoked_names())})
        return tuple(str(site) for site in read_json(path, "queue the study again")["sites"])

    def _wait_for_disk(self, name: str, why: str) -> None:
        """Nothing is lost when a file cannot be written: the study goes on from its last checkpoint, a little later."""
        words = f"the coordinator cannot write its files: {why}. Fix: free some disk space; the study then resumes"
        if self.state["why"] != words:
            self.observer(DiskFailed(words, about=name))
        self.state["why"] = words
        self.workload.tell(name, state="waiting")
        self.write_status()
        self.stopped.wait(DISK_PAUSE)

    def _record_end(self, name: str, state: str, why: str) -> None:
        self.traffic_of(name).save()
        end_study(self.home, name, state, why)
        self.state["why"] = ""
        self.maintenance.maintain_soon(*sorted(self.transport.present()))

    def _end_waiting(self, name: str, state: str, why: str) -> None:
        """The end of a study that waits; written down the next time where the disk is full."""
        try:
            self.traffic_of(name).save()
            end_study(self.home, name, state, why)
        except (Refusal, OSError):
            return
        self.desk.errands = studies_with_errands(self.home)
        self.observer(StudyEnded(name, state, why, str(self.home.folder(name) / "run")))

    def _on_connection(self, site: str, came: bool) -> None:
        self.observer(ConnectionChanged(site, came))
        self.state["connections"] = {**self.state["connections"], site: {"here": came, "since": time.time()}}
        self._told.discard(site)
        self.desk.visit_soon(site)
        self.write_status()
        if came and not self.transport.register.is_revoked(site):
            self.maintenance.maintain_soon(site)

    def tell_revoked(self, *sites: str) -> None:
        """Past the transport, which asks nothing of whom it must not ask."""
        self.maintenance.tell_revoked(
            lambda site, topic, body: self.party.ask(site, topic, body, within=PATIENCE), *sites
        )

    def _on_warning(self, site: str, why: str) -> None:
        warnings = self.state.setdefault("warnings", {})
        if warnings.get(site, "") == why:
            return
        if why:
            warnings[site] = why
            self.observer(SiteWarning(site, why))
        else:
            warnings.pop(site, None)
        self.write_status()  # at once: while a study waits, nothing else would, and an old warning would stay

    def _on_event(self, event: Event) -> None:
        """Keep the status true, and pass on what happened."""
        self.write_status()
        self.observer(event)

    def _on_study_event(self, name: str, event: Event) -> None:
        """The same for what happened in a study under way."""
        self.workload.note(name, event)
        if isinstance(event, RoundDone):
            self.state["why"] = ""  # its files were written
            self.traffic_of(name).save()
        # A round that everybody answered is written when it is done, at once after this.
        if not isinstance(event, AnswersGathered) or event.topic != Topic.ROUND or event.missing:
            self.write_status()
        self.observer(replace(event, about=name))

    def write_status(self) -> None:
        """Several threads write it; a full disk must not end the process. What has not changed is not written."""
        present, revoked = self.party.present, self.transport.register.revoked_names()
        # The desk first: it tells of its studies while it holds its own lock, and would wait for whoever waits for it.
        with self.desk.unchanged(), self._writing, suppress(Refusal):
            keep_lines(self.home, in_megabits(self.party.speeds()))
            words = {
                **self.state,
                "running": self.workload.words(),
                "present": sorted(present - revoked),
                "revoked": sorted(revoked),
                "refused": self.party.refused,
                "versions": dict(self.maintenance.versions),
                "queue": queued_studies(self.home),
                "moving": {site: one._asdict() for site, one in sorted(self.party.movements().items())},
                "offers": self.desk.words(),
            }
            if words != self._written:
                self.home.write_status({**words, "at": time.time()})
                self._written = copy.deepcopy(words)

    def gauges(self) -> tuple[PartyHealth, list[Gauge]]:
        """Health and figures for a monitor: it works unless it cannot write its files."""
        health = PartyHealth(
            not self.state["why"],
            {"listen": self.state["listen"], "studies": sorted(self.workload.names), "why": self.state["why"]},
        )
        present, moving = self.transport.present(), self.party.movements()
        return health, coordinator_gauges(self.home, present, self.workload.words(), moving)

    def stop(self) -> None:
        self.stopped.set()
        self.party.stop()
