"""The coordinator's queue of studies: files in its home, so that a study outlives every process.

HOME/queue/STUDY.json says that a study waits or is under way; HOME/studies/STUDY holds its words, how it ended, and its
run folder.
"""

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.studies.errands import forget_end
from wardround.deploy.coordinator.studies.lines import with_lines
from wardround.deploy.coordinator.two_servers.second_server import with_second
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.study_id import DIGITS, is_meant, study_id
from wardround.deploy.trust.audit_log import AuditLog, event_entry
from wardround.deploy.trust.certificates import read_certificate
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.engine.registry import suggest_name
from wardround.runs.json_files import read_json, write_json
from wardround.study.file import Study, parse_study
from wardround.study.methods import without_numbers_of
from wardround.workflows.retrain import manifest_of, refuse_unknown, without_settings_of

WHOLE = re.compile(rf".+-[0-9a-f]{{{DIGITS}}}")
"""The whole identity of a study."""


def enqueue(home: CoordinatorHome, study: Study, submitter: str, *, amends: str = "") -> str:
    """Put a study into the queue; gives its identity. One that is there already is left as it is.

    `amends` is the study in whose place it is asked for.
    """
    study = with_parties(study, home)
    name = study_id(study)
    folder = home.folder(name)
    if not (folder / "study.json").exists():
        write_submission(folder, study, submitter, amends)
    (home.path / "queue").mkdir(exist_ok=True)
    for left in ("state.json", "ending.json"):  # of the last time that it ended
        (folder / left).unlink(missing_ok=True)
    forget_end(folder)
    if not (home.path / "queue" / f"{name}.json").exists():
        write_json(home.path / "queue" / f"{name}.json", {"study": name, "queued": time.time()})
    return name


def with_parties(study: Study, home: CoordinatorHome) -> Study:
    """The study with all who take part and their keys (its sites, and for two servers the second one) and lines."""
    return with_lines(with_second(home, with_members(study, home)), home)


def with_members(study: Study, home: CoordinatorHome) -> Study:
    """The study with its sites and the fingerprints of their keys, so that they are part of what sites approve.

    Fingerprints that it names already stay: sites compare them with what they have pinned, and follow proven changes.
    """
    names = study.deploy.sites or home.site_names()
    said = {name: words for name, words in study.deploy.fingerprints.items() if name in names}
    found = dict(said)
    for name in names:
        path = home.site_certificate(name)
        if name not in said and path.exists():
            key = read_certificate(path).public_key()
            assert isinstance(key, EllipticCurvePublicKey)
            found[name] = fingerprint(key)
    others = {name: words for name, words in study.deploy.fingerprints.items() if name not in names}
    second = {name: words for name, words in others.items() if name == study.deploy.second}
    deploy = study.deploy.model_copy(update={"sites": list(names), "fingerprints": {**found, **second}})
    return study.model_copy(update={"deploy": deploy})


def queued_studies(home: CoordinatorHome) -> list[str]:
    """Studies waiting or under way, the oldest first."""
    paths = sorted((home.path / "queue").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [path.stem for path in paths]


# ---- a study's folder ----


def write_submission(folder: Path, study: Study, submitter: str, amends: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = {"study": study.model_dump(mode="json"), "submitter": submitter, "submitted": time.time()}
    write_json(folder / "study.json", {**words, "amends": amends} if amends else words)


def amended_study(folder: Path) -> str:
    """The study in whose place this one is asked for, if any."""
    return str(read_json(folder / "study.json", "queue the study again").get("amends", ""))


def find_study(home: CoordinatorHome, word: str | None, states: Mapping[str, str]) -> str:
    """The study that a person means among those with these states; the only one where none is named."""
    meant = [one for one in states if word is None or is_meant(word, one)]
    if len(meant) != 1:
        what = "several studies are meant" if len(meant) > 1 else "there is no such study"
        known = ", ".join(f"{one} ({state})" for one, state in states.items()) or "none"
        raise Refusal(what, where=str(home.path), remedy=f"name one; studies here: {known}")
    return meant[0]


def read_submission(folder: Path) -> tuple[Study, str]:
    """The study that was queued in a folder of its name, and who submitted it."""
    path = folder / "study.json"
    content = read_json(path, "queue the study again with `wardround coordinator run`")
    study = parse_study(content["study"], where=str(path))
    if study_id(study) != folder.name:
        raise Refusal(
            f"this version of wardround reads the stored study as {study_id(study)}",
            where=str(path),
            remedy="continue with the version that started the study, or submit it again",
        )
    return study, str(content["submitter"])


def record_end(folder: Path, log: AuditLog, study: str, state: str, why: str) -> None:
    """Write down how a study ended, in its folder and in the audit log."""
    write_json(folder / "state.json", {"state": state, "why": why, "at": time.time()})
    log.append(event_entry(state, study=study, why=why))


def is_finished(folder: Path) -> bool:
    """Whether a crash came after the study had ended and before it was taken from the queue."""
    path = folder / "state.json"
    return path.exists() and read_json(path, "").get("state") == "finished"


def has_begun(folder: Path) -> bool:
    """Whether its sites have agreed, so that it is only gone on with."""
    return any((folder / "run" / name).exists() for name in ("agreement.json", "columns.json"))


def known_rows(home: CoordinatorHome) -> dict[str, int]:
    """Every site's training rows, as it told them in the last study that it agreed on."""
    paths = sorted((home.path / "studies").glob("*/run/agreement.json"), key=lambda path: path.stat().st_mtime_ns)
    agreed = [read_json(path, "") for path in paths]
    return {site: int(rows[0]) for words in agreed for site, rows in words.get("rows", {}).items()}


def sites_for(home: CoordinatorHome, study: Study, revoked: Collection[str]) -> list[str]:
    """Those the study names, or everybody with a certificate that was not revoked."""
    known = sorted(path.stem for path in (home.path / "sites").glob("*.pem"))
    named = study.deploy.sites or [site for site in known if site not in revoked]
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


# ---- a monitor of a study's model ----


def with_monitored(study: Study, home: CoordinatorHome) -> Study:
    """A study with [monitor] in full: which of this coordinator's studies is meant, its outcome, its sites.

    A study that another coordinator conducted is left as it is named.
    """
    said = study.monitor
    if said is None:
        return study
    known = sorted(path.parent.name for path in (home.path / "studies").glob("*/study.json"))
    meant = [one for one in known if is_meant(said.study, one)]
    ended = [one for one in meant if is_finished(home.folder(one))]
    if not meant and WHOLE.fullmatch(said.study):
        return study
    if not meant:
        raise Refusal(
            f"there is no study called '{said.study}' here",
            where="[monitor] study",
            remedy=suggest_name(said.study, tuple(known)),
        )
    if len(ended) != 1:
        what = "has not finished" if len(meant) == 1 else f"may be any of {', '.join(ended or meant)}"
        raise Refusal(
            f"the study '{said.study}' {what}", where="[monitor] study", remedy="name one that has finished, in full"
        )
    trained, _ = read_submission(home.folder(ended[0]))
    if trained.monitor is not None:
        raise Refusal(f"{ended[0]} trained no model", where="[monitor] study", remedy="name the study that trained it")
    outcome = said.outcome or str(trained.data.settings.get("target") or "")
    deploy = study.deploy.model_copy(update={"sites": study.deploy.sites or trained.deploy.sites})
    words = study.model_copy(
        update={"monitor": said.model_copy(update={"study": ended[0], "outcome": outcome}), "deploy": deploy}
    ).model_dump(mode="json")
    return parse_study({**words, "data": {**words["data"], "target": outcome}}, where="[monitor]")


# ---- the same study without a site ----


def queue_without(folder: Path, without: Sequence[str], submitter: str | None = None) -> str:
    """Queue the study of a deployed run anew, without some sites; gives its identity."""
    manifest = manifest_of(folder)
    home = home_of(folder)
    study = parse_study(manifest["study"], where=str(folder))
    names = sorted(manifest.get("sites") or study.deploy.sites or agreed_sites(folder))
    refuse_unknown(without, names)
    left = [name for name in names if name not in without]
    quorum = study.deploy.quorum
    deploy = study.deploy.model_copy(
        update={"sites": left, "quorum": None if quorum is None else min(quorum, len(left))}
    )
    present = study.participation.present
    if present is not None:
        present = {name: words for name, words in present.items() if name not in without} or None
    new = without_settings_of(without_numbers_of(study, without), without).model_copy(
        update={"deploy": deploy, "participation": study.participation.model_copy(update={"present": present})}
    )
    if new.partners is not None:  # they are no sites of the new study, so nothing is to be said about them
        partners = new.partners.model_copy(
            update={"withdrawn": [one for one in new.partners.withdrawn if one not in without]}
        )
        new = new.model_copy(update={"partners": partners})
    asked = read_json(folder.parent / "study.json", "name the folder studies/STUDY/run inside the coordinator's folder")
    # Checked as a whole: sites will read exactly these words.
    return enqueue(home, parse_study(new.model_dump(mode="json"), where="retrain"), submitter or asked["submitter"])


def home_of(folder: Path) -> CoordinatorHome:
    """The coordinator's home that a deployed run lies in: HOME/studies/STUDY/run."""
    home = CoordinatorHome(folder.absolute().parent.parent.parent)
    if not (home.path / "coordinator.toml").exists():
        raise Refusal(
            "this deployed run is not inside a coordinator's folder",
            where=str(folder),
            remedy="name the run where it was trained: HOME/studies/STUDY/run",
        )
    return home


def agreed_sites(folder: Path) -> list[str]:
    """Who took part in a deployed run, from what the sites agreed on; for one that was interrupted."""
    path = folder / "agreement.json"
    words: Mapping[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    return sorted(words.get("rows", {}))
