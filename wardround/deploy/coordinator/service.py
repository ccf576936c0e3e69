"""The coordinator's long-lived process: listens for sites, works through its queue of studies, tells how it stands.

Control is by files in the coordinator's home, so nothing but the sites ever connects: a study is put into `queue`, a
site is revoked in `revoked.json`, the state is in `status.json`. Started anew it goes on with the study it was at.
"""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import (
    AnswersGathered,
    AnswersMissing,
    ApprovalPending,
    ConnectionChanged,
    DiskFailed,
    Event,
    Observer,
    RoundDone,
    SitesAwaited,
    SiteWarning,
    StudyEnded,
    ignore,
)
from wardround.deploy.coordinator.maintenance import Maintenance, renew_own
from wardround.deploy.coordinator.queue import is_finished, known_rows, queued_studies, read_submission, record_end
from wardround.deploy.coordinator.run_study import Submission, conduct
from wardround.deploy.coordinator.transcript_record import signer_of
from wardround.deploy.fault_log import record_fault
from wardround.deploy.fault_points import arm, point
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.operations.gauges import Gauge, PartyHealth
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.transport.cellnet import Credentials, Party
from wardround.deploy.transport.cellnet_transport import CellNetTransport
from wardround.deploy.transport.site_register import SiteRegister
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import certificate_summary, read_certificate
from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.folder import RunFolder
from wardround.runs.json_files import read_json, write_json
from wardround.runs.result import MonitorResult, RunResult
from wardround.study.analysis import analysis_of
from wardround.study.file import Study

LOOK = 0.5
"""Seconds between two looks at the queue and at who was revoked."""
PROGRESS = 2.0
"""Seconds between two words about transfers that take long."""
DISK_PAUSE = 5.0
"""Seconds until a study is gone on with after the coordinator's disk failed."""


class Coordinator:
    """Listens and works; `observer` hears what a person at the terminal would want to know."""

    def __init__(self, home: CoordinatorHome, observer: Observer = ignore) -> None:
        arm()
        self.home, self.observer = home, suppress_failures(observer)
        words = home.settings
        files = Credentials(home.authority_path, home.certificate_path, home.key_path)
        self.party = Party(words.name, words.listen, files, folder=home.transfers_path)
        self.log = home.log()
        self.transport = CellNetTransport(self.party, SiteRegister(home, self.log))
        self.stopped = self.transport.stopped
        self.maintenance = Maintenance(home, self.transport, self._on_warning)
        self.party.watch(self._on_connection)
        self._writing = threading.Lock()
        self._written: dict[str, Any] = {}
        self.state: dict[str, Any] = {"listen": words.listen, "study": None, "since": time.time()}

    def start(self) -> None:
        self.log.append(event_entry("started", version=__version__))
        renew_own(self.home)
        self.party.start()
        self.maintenance.maintain_hourly(self.transport.present, self.stopped)
        threading.Thread(target=self._tell_progress, daemon=True).start()

    def _tell_progress(self) -> None:
        """While bytes move slowly, the status says how far they are."""
        while not self.stopped.wait(PROGRESS):
            if self.party.movements() or self._written.get("moving"):
                self.write_status()

    def work(self, *, until_done: bool = False) -> None:
        """Take one study after the other; with `until_done`, stop when the queue is empty."""
        while not self.stopped.is_set():
            waiting = queued_studies(self.home)
            if waiting:
                self.run(waiting[0])
            elif until_done:
                return
            self.write_status()
            self.stopped.wait(LOOK)

    def run(self, name: str) -> RunResult | MonitorResult | AnalysisResult | None:
        """Conduct one study to its end; a refusal ends it and is kept, an interrupt leaves it in the queue.

        A fault of our own ends the study too, never the process: the next study in the queue has its turn.
        """
        folder = self.home.folder(name)
        try:
            result = None if is_finished(folder) else self._conduct(name, folder)
            state, why = "finished", ""
        except Refusal as refusal:
            result, state, why = None, "failed", str(refusal)
        except KeyboardInterrupt:
            return None
        except OSError as error:
            self._wait_for_disk(str(error.strerror or error))
            return None
        except Exception as error:
            result, state, why = None, "failed", self._record_fault(name, error)
        try:
            self._record_end(name, state, why)
        except Refusal as refusal:
            self._wait_for_disk(str(refusal))
            return None
        self.observer(StudyEnded(name, state, why, str(folder / "run")))
        return result

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

    def _conduct(self, name: str, folder: Path) -> RunResult | MonitorResult | AnalysisResult:
        study, submitter = read_submission(folder)
        rounds = study.study.rounds if study.analysis is None else analysis_of(study).most
        self.state |= {"study": name, "state": "running", "round": 0, "rounds": rounds, "missing": {}}
        self.write_status()
        submission = Submission(study, self._participants(study, folder), submitter, known_rows(self.home))
        run = RunFolder.open_or_create(folder / "run")
        return conduct(submission, run, self.transport, self._on_event, signer_of(self.home))

    def _participants(self, study: Study, folder: Path) -> tuple[str, ...]:
        """The sites of a study, fixed when it begins: one admitted later must not change a study under way."""
        path = folder / "sites.json"
        if not path.exists():
            write_json(path, {"sites": self.sites_for(study)})
        return tuple(str(site) for site in read_json(path, "queue the study again")["sites"])

    def _wait_for_disk(self, why: str) -> None:
        """Nothing is lost when a file cannot be written: the study goes on from its last checkpoint, a little later."""
        words = f"the coordinator cannot write its files: {why}. Fix: free some disk space; the study then resumes"
        if self.state.get("why") != words:
            self.observer(DiskFailed(words))
        self.state |= {"state": "waiting", "why": words}
        self.write_status()
        self.stopped.wait(DISK_PAUSE)

    def _record_end(self, name: str, state: str, why: str) -> None:
        record_end(self.home.folder(name), self.log, name, state, why)
        point("coordinator.study.ended")
        (self.home.path / "queue" / f"{name}.json").unlink(missing_ok=True)
        self.state |= {"study": None, "state": state, "why": why, "last": name}
        self.write_status()
        self.maintenance.maintain_soon(*sorted(self.transport.present()))

    def sites_for(self, study: Study) -> list[str]:
        """Those the study names, or everybody with a certificate that was not revoked."""
        known = sorted(path.stem for path in (self.home.path / "sites").glob("*.pem"))
        named = study.deploy.sites or [site for site in known if not self.transport.register.is_revoked(site)]
        for site in named:
            if site not in known:
                raise Refusal(
                    f"there is no site called '{site}'",
                    where="[deploy] sites",
                    remedy="sign its request first, with `wardround coordinator sign`",
                )
        if not named:
            raise Refusal("no site has a certificate", remedy="sign requests with `wardround coordinator sign`")
        return named

    def _on_connection(self, site: str, came: bool) -> None:
        self.observer(ConnectionChanged(site, came))
        self.write_status()
        if came and not self.transport.register.is_revoked(site):
            self.maintenance.maintain_soon(site)

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
        self.state |= status_after(event)
        # A round that everybody answered is written when it is done, at once after this.
        if not isinstance(event, AnswersGathered) or event.topic != Topic.ROUND or event.missing:
            self.write_status()
        self.observer(event)

    def write_status(self) -> None:
        """Several threads write it; a full disk must not end the process. What has not changed is not written."""
        present, revoked = self.party.present, self.transport.register.revoked_names()
        with self._writing, suppress(Refusal):
            words = {
                **self.state,
                "present": sorted(present - revoked),
                "revoked": sorted(revoked),
                "refused": self.party.refused,
                "versions": dict(self.maintenance.versions),
                "queue": queued_studies(self.home),
                "moving": {site: one._asdict() for site, one in sorted(self.party.movements().items())},
            }
            if words != self._written:
                self.home.write_status({**words, "at": time.time()})
                self._written = words

    def look(self) -> tuple[PartyHealth, list[Gauge]]:
        """Health and figures for a monitor: it works unless it cannot write its files."""
        present = self.transport.present()
        health = PartyHealth(
            self.state.get("state") != "waiting",
            {"listen": self.state["listen"], "study": self.state["study"], "why": self.state.get("why", "")},
        )
        own = certificate_summary(read_certificate(self.home.certificate_path)).until
        moving = self.party.movements().items()
        return health, [
            Gauge("sites", len(self.home.site_names()), "Sites with a certificate that were not revoked."),
            Gauge("sites_connected", len(present), "Sites that are connected."),
            Gauge("studies_queued", len(queued_studies(self.home)), "Studies that wait or are under way."),
            Gauge("study_round", int(self.state.get("round") or 0), "The last round of the study under way."),
            Gauge("study_rounds", int(self.state.get("rounds") or 0), "Rounds of the study under way."),
            Gauge("sites_late", len(self.state.get("missing") or {}), "Sites that have not answered in time."),
            Gauge("certificate_ends_seconds", own.timestamp(), "When the own certificate ends (Unix)."),
            Gauge("build_info", 1, "The version of wardround.", {"version": __version__}),
            *(
                Gauge(f"transfer_{name}_bytes", value, f"Bytes of a transfer under way, {name}.", {"site": site})
                for site, one in moving
                for name, value in (("moved", one.moved), ("whole", one.of))
            ),
        ]

    def stop(self) -> None:
        self.stopped.set()
        self.party.stop()


def status_after(event: Event) -> dict[str, Any]:
    """What an event changes in the coordinator's status."""
    match event:
        case AnswersGathered():
            found: dict[str, Any] = {"missing": dict(event.missing)}
            if event.seconds is not None:
                found["seconds"] = event.seconds
            if event.topic == Topic.ROUND:
                found |= {"round": event.round, "state": "running", "why": ""}
            return found
        case RoundDone():
            return {"round": event.round, "missing": dict(event.absent)}
        case AnswersMissing():
            return {"missing": dict(event.missing)}
        case SitesAwaited():
            return {"missing": dict.fromkeys(event.sites, "it is not connected")}
        case ApprovalPending():
            return {"missing": dict.fromkeys(event.sites, "it has not approved the study yet")}
        case _:
            return {}


def suppress_failures(observer: Observer) -> Observer:
    """Nobody's screen or log file, full, closed or unable to show something, may stop the work."""

    def observe(event: Event) -> None:
        with suppress(Exception):
            observer(event)

    return observe
