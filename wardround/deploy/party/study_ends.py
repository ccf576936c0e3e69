"""Studies of which the coordinator said that they ended: kept for whoever looks at the list, believed by nobody else.

HOME/ends/STUDY.json. A site answers by its own decision, whatever is said here; a study that goes on is taken from it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wardround.core.clock import timestamp
from wardround.core.text import LONGEST, plain_line
from wardround.deploy.home import PartyHome
from wardround.deploy.trust.audit_log import event_entry
from wardround.runs.json_files import read_json, write_json

ENDED = "ended"
"""The topic."""
MOST_TOLD = 10
"""Ends of one study that are kept: nobody fills a log by ending and resuming it for ever."""
STATES = ("finished", "failed", "cancelled", "amended")


def end_path(home: PartyHome, study: str) -> Path:
    from wardround.deploy.party.decisions import (
        check_id,
    )  # loads what reads studies, which a party at rest does not need

    return home.path / "ends" / f"{check_id(study)}.json"


def note_end(home: PartyHome, words: Mapping[str, Any]) -> None:
    """Keep how a study ended, if it was ever offered here and that is a way to end; once in the log."""
    from wardround.deploy.party.decisions import offer_path

    study, state = str(words.get("study", "")), str(words.get("state", ""))
    if state not in STATES or not offer_path(home, study).exists():
        return
    told = {key: plain_line(words.get(key, ""), LONGEST) for key in ("state", "why", "replaced")}
    before = read_kept(home, study)
    times = int(before.get("times", 0))
    if times >= MOST_TOLD or {key: before.get(key) for key in told} == told:
        return
    home.log().append(event_entry("told of end", study=study, **{key: one for key, one in told.items() if one}))
    write_json(end_path(home, study), {**told, "when": timestamp(), "times": times + 1})


def read_kept(home: PartyHome, study: str) -> dict[str, Any]:
    path = end_path(home, study)
    return read_json(path, "delete it") if path.exists() else {}


def read_end(home: PartyHome, study: str) -> dict[str, str]:
    """How and when a study ended, as the coordinator said; nothing while it has not."""
    kept = read_kept(home, study)
    return {key: str(kept.get(key, "")) for key in ("state", "why", "replaced", "when")} if kept.get("state") else {}


def forget_end(home: PartyHome, study: str) -> None:
    """It is asked for again; how often its end was told stays counted."""
    kept = read_kept(home, study)
    if kept.get("state"):
        write_json(end_path(home, study), {"times": kept.get("times", 0)})
