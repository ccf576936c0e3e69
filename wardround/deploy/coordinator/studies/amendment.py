"""Ends a study before its time, or puts another in its place; both by files, which a running coordinator heeds.

HOME/studies/STUDY/ending.json says that a study is to end. An amended study is a new one, with the old one's name in
its offer: a site whom the change does not concern moves its approval to it (see `site/studies/amendment.py`).
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import is_running
from wardround.deploy.coordinator.queue import (
    enqueue,
    is_finished,
    queued_studies,
    read_submission,
    record_end,
    with_parties,
)
from wardround.deploy.coordinator.studies.errands import tell_end
from wardround.deploy.fault_points import point
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.study_id import study_id
from wardround.runs.json_files import read_json, write_json
from wardround.study.file import Study, parse_study
from wardround.study.methods import without_numbers_of

ENDING = "ending.json"
CANCELLED, AMENDED = "cancelled", "amended"


def ask_to_end(home: CoordinatorHome, study: str, state: str, *, by: str, why: str = "", replaced: str = "") -> None:
    """End a study: at once, or, while a coordinator works through the queue, by asking it to."""
    words = {"state": state, "by": by, "why": why, "replaced": replaced, "at": time.time()}
    write_json(home.folder(study) / ENDING, words)
    if study not in queued_studies(home) or not is_running(home):
        end_study(home, study, state, why)


def end_study(home: CoordinatorHome, study: str, state: str, why: str) -> None:
    """Write down how a study ended, let its parties be told, and take it from the queue."""
    folder = home.folder(study)
    record_end(folder, home.log(), study, state, why)
    point("coordinator.study.ended")
    with suppress(Refusal, OSError):  # that sites hear of the end is worth less than the end
        note_end(folder, state, ending_of(folder))
    (folder / ENDING).unlink(missing_ok=True)
    (home.path / "queue" / f"{study}.json").unlink(missing_ok=True)


def ending_of(folder: Path) -> dict[str, Any]:
    """How a study is to end; nothing where it is not."""
    path = folder / ENDING
    return read_json(path, "delete it") if path.exists() else {}


def cancel(home: CoordinatorHome, study: str, *, by: str, why: str = "") -> None:
    """End a study that waits, runs or has failed; a finished one stays finished."""
    if is_finished(home.folder(study)):
        raise Refusal(
            "this study has already finished", where=study, remedy="its model stays; ask the sites to delete theirs"
        )
    ask_to_end(home, study, CANCELLED, by=by, why=why)


def without_sites(study: Study, without: Sequence[str]) -> Study:
    """The study for fewer sites; a quorum of all stays one of all."""
    unknown = [site for site in without if site not in study.deploy.sites]
    if unknown:
        raise Refusal(
            f"{unknown[0]} is no site of this study",
            where="--without",
            remedy=f"its sites are {', '.join(study.deploy.sites)}",
        )
    left = [site for site in study.deploy.sites if site not in without]
    if not left:
        raise Refusal("no site would be left", where="--without", remedy="cancel the study")
    words = study.deploy.fingerprints
    quorum = study.deploy.quorum
    update = {
        "sites": left,
        "fingerprints": {name: said for name, said in words.items() if name not in without},
        "quorum": None if quorum is None else min(quorum, len(left)),
    }
    present = study.participation.present
    kept = None if present is None else {name: said for name, said in present.items() if name not in without} or None
    new = without_numbers_of(study, without).model_copy(
        update={
            "deploy": study.deploy.model_copy(update=update),
            "participation": study.participation.model_copy(update={"present": kept}),
        }
    )
    return parse_study(new.model_dump(mode="json"), where="--without")


def amend(home: CoordinatorHome, old: str, study: Study, submitter: str, *, why: str = "") -> str:
    """Queue a changed study in the place of another, which ends; gives the new one's identity."""
    if is_finished(home.folder(old)):
        raise Refusal("this study has already finished", where=old, remedy="submit another with `coordinator run`")
    new = with_parties(study, home)
    if study_id(new) == old:
        raise Refusal("nothing was changed", where=old, remedy="change the study file, or name sites with --without")
    name = enqueue(home, new, submitter, amends=old)
    ask_to_end(home, old, AMENDED, by=submitter, why=why, replaced=name)
    return name


def parties_of(folder: Path) -> tuple[str, ...]:
    """All who were asked to approve a study."""
    study, _ = read_submission(folder)
    return (*study.deploy.sites, *([study.deploy.second] if study.deploy.second else []))


def note_end(folder: Path, state: str, ending: dict[str, Any]) -> None:
    """Let its parties be told of the end, in words that each of them may hear."""
    why = str(ending.get("why", "")) if state in (CANCELLED, AMENDED) else ""
    tell_end(folder, parties_of(folder), state, why=why, replaced=str(ending.get("replaced", "")))
