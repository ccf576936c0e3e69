"""A site whose files were restored from a backup notices it, answers no study, and goes on when a person accepts it.

What has left and what was debited is counted from the audit log and the ledger. Restored together, both fit each other
and have forgotten everything since the backup: a coordinator could ask for all of that anew. So the coordinator shows
the last head of the site's log that it countersigned. The site signed that head itself and nobody can make one up: if
its log is shorter, or holds something else there, the log was rolled back. An administrator who accepts it ends all
studies that were decided before; what these promised stays promised.

This helps against an accident. A coordinator that lies keeps the head to itself.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.core.journals.journal import ROOT
from wardround.core.journals.journal_head import Head
from wardround.deploy.home import PartyHome
from wardround.deploy.protocol.status import Status
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.log_heads import head_signature_problem, parse_countersigned
from wardround.runs.json_files import read_json, write_json

ACCEPT = (
    "find out from your backups what was restored, and if it is meant to stay so, run `wardround site accept-restore`"
)


def compare_with_witness(home: PartyHome, content: Any) -> str:
    """Compare the own log with its head as another party countersigned it; refused where the log was rolled back.

    Gives the hash of that head if it was given up for good, by which the other party may begin anew; else nothing.
    """
    try:
        head = parse_countersigned(content).head
    except ValueError as problem:
        raise Refusal(f"this is not a countersigned head: {problem}", remedy="send the one that was kept") from None
    wrong = head_signature_problem({home.own_name: home.own_keys()}, head)
    if head.who != home.own_name or wrong:
        raise Refusal(f"this is no head of this site's audit log: {wrong or head.who}", remedy="find out who made it")
    if home.role != "site":  # what a second server opens is counted on its disk, not in its log
        return ""
    state = read_restoration(home)
    if head.hash in [one["hash"] for one in state.get("accepted", ())]:
        return head.hash
    if state.get("found") is None and hash_at(home.audit_path, head.entries) == head.hash:
        return ""
    if state.get("found") is None:
        state["found"] = note_rollback(home, head)
    raise Refusal(str(state["found"]["what"]), where=home.own_name, remedy=ACCEPT)


def note_rollback(home: PartyHome, head: Head) -> dict[str, Any]:
    """On file, where it counts from this moment on; in the audit log only when it is accepted, since it may go yet."""
    own = home.log().head().entries
    found = (
        f"it was rolled back to entry {own}, and entry {head.entries} was countersigned already"
        if own < head.entries
        else f"its entry {head.entries} is not the one that was countersigned"
    )
    what = f"the audit log was restored from an older copy: {found}"
    words = {"what": what, "head": asdict(head), "when": timestamp()}
    write_json(home.restored_path, {**read_restoration(home), "found": words})
    return words


def hash_at(path: Path, entries: int) -> str | None:
    """The hash of a log after so many entries, as its line says; none where there is no such line."""
    if entries == 0:
        return ROOT
    try:
        with open(path, "rb") as lines:
            line = next(islice(lines, entries - 1, None), None)
        return None if line is None else str(json.loads(line)["hash"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def accept_restoration(home: PartyHome, *, by: str, why: str = "") -> tuple[str, ...]:
    """Go on with the log as it is; gives the studies that were decided before, which are not answered any more."""
    state = read_restoration(home)
    found = state.get("found")
    if found is None:
        raise Refusal(
            "nobody has shown this site a later end of its audit log than it has",
            where=home.own_name,
            remedy="nothing is to be accepted; after a restore, let the site connect once",
        )
    ended = tuple(sorted(path.stem for path in (home.path / "decisions").glob("*.json")))
    words: Mapping[str, Any] = {"what": found["what"], "head": found["head"], "studies": list(ended)}
    home.log().append(event_entry("restored", by=by, why=why, **words))
    accepted = [*state.get("accepted", ()), {"hash": found["head"]["hash"], "by": by, "why": why, "when": timestamp()}]
    void = sorted({*state.get("ended", ()), *ended})
    write_json(home.restored_path, {"found": None, "accepted": accepted, "ended": void})
    return ended


def rollback_found(home: PartyHome) -> str:
    """What was found and nobody has accepted yet, or nothing."""
    found = read_restoration(home).get("found")
    return str(found["what"]) if found else ""


def is_ended(home: PartyHome, study: str) -> bool:
    """Whether a study was decided before a restore, so that nobody knows what has left for it."""
    return study in read_restoration(home).get("ended", ())


def restored_status(home: PartyHome, study: str) -> tuple[Status, str] | None:
    """Why no study, or not this one, is answered after a restore; none where nothing is in the way."""
    if rollback_found(home):
        return Status.WAITING, f"the audit log of {home.own_name} was rolled back; its administrator has to decide"
    if is_ended(home, study):
        return Status.DENIED, f"the files of {home.own_name} were restored from a backup since it decided"
    return None


def refuse_restored(home: PartyHome, study: str) -> None:
    """The same for an administrator who would approve a study."""
    if rollback_found(home):
        raise Refusal(rollback_found(home), where=home.own_name, remedy=ACCEPT)
    if is_ended(home, study):
        raise Refusal(
            "this study was decided before the files of this site were restored, so what has left is not known",
            where=study,
            remedy="ask for a changed study, with another seed",
        )


def read_restoration(home: PartyHome) -> dict[str, Any]:
    return read_json(home.restored_path, "restore it from a backup") if home.restored_path.exists() else {}
