"""The coordinator's long-lived process: listens for sites, works through its queue of studies, tells how it stands.

Control is by files in the coordinator's home, so nothing but the sites ever connects: a study is put into `queue`, a
site is revoked in `revoked.json`, the state is in `status.json`. Started anew it goes on with the study it was at.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.maintenance import Tending, renew_own
from wardround.deploy.coordinator.run_study import conduct
from wardround.deploy.fault_points import arm, point
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.settings_files import read_json, write_json
from wardround.deploy.site.approvals import study_id
from wardround.deploy.transport.cellnet import Credentials, Party, Unanswered
from wardround.deploy.trust.audit_log import event_entry, sent_entry
from wardround.runs.folder import RunFolder
from wardround.study.file import Study, parse_study

Tell = Callable[[str, Mapping[str, Any]], None]
LOOK = 0.5
"""Seconds between two looks at the queue and at who was revoked."""
DISK_PAUSE = 5.0
"""Seconds until a study is gone on with after the coordinator's disk failed."""
STATES = ("queued", "running", "finished", "failed")


def queued(home: CoordinatorHome, study: Study, submitter: str) -> str:
    """Put a study into the queue; gives its identity. One that is there already is left as it is."""
    name = study_id(study)
    folder = home.folder(name)
    if not (folder / "study.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        content = {"study": study.model_dump(mode="json"), "submitter": submitter}
        write_json(folder / "study.json", content)
    (home.path / "queue").mkdir(exist_ok=True)
    write_json(home.path / "queue" / f"{name}.json", {"study": name, "queued": time.time()})
    return name


def in_queue(home: CoordinatorHome) -> list[str]:
    """Studies waiting or under way, the oldest first."""
    paths = sorted((home.path / "queue").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [path.stem for path in paths]


class Coordinator:
    """Listens and works; `tell` hears what a person at the terminal would want to know."""

    def __init__(self, home: CoordinatorHome, tell: Tell = lambda word, facts: None) -> None:
        arm()
        self.home, self.tell = home, heedless(tell)
        words = home.words
        files = Credentials(home.authority_path, home.certificate_path, home.key_path)
        self.party = Party(words.name, words.listen, files)
        self.tending = Tending(home, self.party, self._warned)
        self.party.watch(self._seen)
        self.stopped = threading.Event()
        self.log = home.log()
        self._writing = threading.Lock()
        self.state: dict[str, Any] = {"listen": words.listen, "study": None, "since": time.time()}
        self._revoked: tuple[float, frozenset[str]] = (-1.0, frozenset())

    def start(self) -> None:
        self.log.append(event_entry("started", version=__version__))
        renew_own(self.home)
        self.party.start()
        self.tending.hourly(self.present, self.stopped)

    def work(self, *, until_done: bool = False) -> None:
        """Take one study after the other; with `until_done`, stop when the queue is empty."""
        while not self.stopped.is_set():
            waiting = in_queue(self.home)
            if waiting:
                self.run(waiting[0])
            elif until_done:
                return
            self.write_status()
            self.stopped.wait(LOOK)

    def run(self, name: str) -> dict[str, Any] | None:
        """Conduct one study to its end; a refusal ends it and is kept, an interrupt leaves it in the queue."""
        folder = self.home.folder(name)
        try:
            result = None if finished(folder) else self._conduct(name, folder)
            how, why = "finished", ""
        except Refusal as refusal:
            result, how, why = None, "failed", str(refusal)
        except KeyboardInterrupt:
            return None
        except OSError as error:
            self._disk(str(error.strerror or error))
            return None
        try:
            self._ended(name, how, why)
        except Refusal as refusal:
            self._disk(str(refusal))
            return None
        self.tell(how, {"study": name, "why": why, "folder": str(folder / "run")})
        return result

    def _conduct(self, name: str, folder: Path) -> dict[str, Any]:
        content = read_json(folder / "study.json", "queue the study again with `wardround coordinator run`")
        study = parse_study(content["study"], where=str(folder / "study.json"))
        if study_id(study) != name:
            raise Refusal(
                f"these words are the study {study_id(study)} to this version of wardround",
                where=str(folder / "study.json"),
                remedy="go on with the version that the study was begun with, or offer it anew",
            )
        self.state |= {"study": name, "state": "running", "round": 0, "rounds": study.study.rounds, "missing": {}}
        self.write_status()
        return conduct(
            study,
            RunFolder.taken_up(folder / "run"),
            self._taking_part(study, folder),
            self.ask,
            present=self.present,
            submitter=content["submitter"],
            told=self._told,
            stopped=self.stopped,
            gone=self.left,
            certificates=self.certificates,
            announce=self.announce,
            sizes=known_sizes(self.home),
        )

    def _taking_part(self, study: Study, folder: Path) -> list[str]:
        """The sites of a study, fixed when it begins: one admitted later must not change a study under way."""
        path = folder / "sites.json"
        if not path.exists():
            write_json(path, {"sites": self.sites_for(study)})
        return [str(site) for site in read_json(path, "queue the study again")["sites"]]

    def _disk(self, why: str) -> None:
        """Nothing is lost when a file cannot be written: the study goes on from its last checkpoint, a little later."""
        words = f"the coordinator cannot write its files: {why}. To mend it: make room; the study goes on by itself"
        if self.state.get("why") != words:
            self.tell("trouble", {"why": words})
        self.state |= {"state": "waiting", "why": words}
        self.write_status()
        self.stopped.wait(DISK_PAUSE)

    def _ended(self, name: str, state: str, why: str) -> None:
        write_json(self.home.folder(name) / "state.json", {"state": state, "why": why, "at": time.time()})
        self.log.append(event_entry(state, study=name, why=why))
        point("coordinator.study.ended")
        (self.home.path / "queue" / f"{name}.json").unlink(missing_ok=True)
        self.state |= {"study": None, "state": state, "why": why, "last": name}
        self.write_status()
        self.tending.soon(*sorted(self.present()))

    def sites_for(self, study: Study) -> list[str]:
        """Those the study names, or everybody with a certificate that was not revoked."""
        known = sorted(path.stem for path in (self.home.path / "sites").glob("*.pem"))
        named = study.deploy.sites or [site for site in known if site not in self.revoked()]
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

    def revoked(self) -> frozenset[str]:
        path = self.home.path / "revoked.json"
        stamp = path.stat().st_mtime_ns if path.exists() else 0
        if stamp != self._revoked[0]:
            self._revoked = (stamp, frozenset(self.home.revoked()))
        return self._revoked[1]

    def certificates(self) -> dict[str, str]:
        """Of all sites that were not revoked, in PEM."""
        paths = sorted((self.home.path / "sites").glob("*.pem"))
        return {path.stem: path.read_text() for path in paths if path.stem not in self.revoked()}

    def left(self) -> dict[str, str]:
        """Sites that must not be waited for: their certificates were revoked."""
        return dict.fromkeys(self.revoked(), "its certificate was revoked")

    def present(self) -> frozenset[str]:
        return self.party.present - self.revoked()

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        """The answer of a site to what was announced before."""
        if site in self.revoked():
            raise Unanswered(site, "its certificate was revoked", gone=True)
        return self.party.ask(site, topic, body, within=within)

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> None:
        """Write down what is about to be sent to whom; all of it is on the disk when this returns."""
        hashes = {id(body): digest_of(body) for body in {id(body): body for body in bodies.values()}.values()}
        self.log.append(
            *(
                sent_entry({"topic": topic, "to": site, "bytes": len(body), "sha256": hashes[id(body)]})
                for site, body in bodies.items()
                if site not in self.revoked()
            )
        )

    def _seen(self, site: str, came: bool) -> None:
        self.tell("came" if came else "went", {"site": site})
        self.write_status()
        if came and site not in self.revoked():
            self.tending.soon(site)

    def _warned(self, site: str, why: str) -> None:
        warnings = self.state.setdefault("warnings", {})
        if why and warnings.get(site) != why:
            self.tell("warning", {"site": site, "why": why})
        if why:
            warnings[site] = why
        else:
            warnings.pop(site, None)

    def _told(self, word: str, facts: Mapping[str, Any]) -> None:
        if "seconds" in facts:
            self.state["seconds"] = facts["seconds"]
        if word == "round":
            self.state |= {"round": facts["round"], "missing": dict(facts["missing"]), "state": "running", "why": ""}
        elif word == "round done":
            self.state |= {"round": facts["round"], "missing": dict(facts.get("absent", {}))}
        elif "missing" in facts:
            self.state["missing"] = dict(facts["missing"])
        elif word == "waiting":
            self.state["missing"] = dict.fromkeys(facts["for"], "it is not connected")
        elif word == "approval":
            self.state["missing"] = dict.fromkeys(facts["waiting"], "it has not approved the study yet")
        if word != "round" or facts["missing"]:  # else it is written at once, when the round is done
            self.write_status()
        self.tell(word, facts)

    def write_status(self) -> None:
        """Several threads write it; a full disk must not end the process."""
        present = self.party.present
        with self._writing, suppress(Refusal):
            self.home.write_status(
                {
                    **self.state,
                    "present": sorted(present - self.revoked()),
                    "revoked": sorted(self.revoked()),
                    "refused": self.party.refused,
                    "queue": in_queue(self.home),
                    "at": time.time(),
                }
            )

    def stop(self) -> None:
        self.stopped.set()
        self.party.stop()


def known_sizes(home: CoordinatorHome) -> dict[str, int]:
    """Every site's training rows, as it told them in the last study that it agreed on."""
    paths = sorted((home.path / "studies").glob("*/run/agreement.json"), key=lambda path: path.stat().st_mtime_ns)
    agreed = [read_json(path, "") for path in paths]
    return {site: int(rows[0]) for words in agreed for site, rows in words.get("rows", {}).items()}


def heedless(tell: Tell) -> Tell:
    """Nobody's screen or log file, full or closed, may stop the work."""

    def told(word: str, facts: Mapping[str, Any]) -> None:
        with suppress(OSError):
            tell(word, facts)

    return told


def finished(folder: Path) -> bool:
    """Whether a crash came after the study had ended and before it was taken from the queue."""
    path = folder / "state.json"
    return path.exists() and read_json(path, "").get("state") == "finished"


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
