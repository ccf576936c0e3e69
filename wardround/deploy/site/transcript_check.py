"""What a site makes of the coordinator's transcript: keeps it, and compares it with its own audit log.

With the finished model comes the transcript of the training. The site checks the signature, that
it is about the study it approved and the agreement it was told, that its own answers stand in it as they left, that it
was sent the models that stand in it, and that the model it was given is the published one. Where all is well it
countersigns, so that no other transcript can be shown to others. Where not, its administrator is told in words; the
model is kept all the same. Replaying the sums takes longer and is for `wardround audit replay`.
"""

import errno
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.journals.journal_head import head_path
from wardround.deploy.home import SiteHome
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.site.reply_store import IN_TRANSCRIPT
from wardround.deploy.trust.audit_log import Entry, LogNotWritable, event_entry, examine
from wardround.deploy.trust.countersignatures import coordinator_key
from wardround.deploy.trust.transcript.entries import (
    CERTIFICATE,
    LARGEST,
    NAME,
    LossEntry,
    Opening,
    RoundEntry,
    Transcript,
    countersign_transcript,
    digest_of,
    head_problem,
    parse_transcript,
    transcript_folder,
    words_digest,
)
from wardround.runs.json_files import read_json, write_json

TRANSCRIPT = "transcript"
FINDINGS = "findings.json"


@dataclass
class OwnFindings:
    """What a site's own log says about a transcript: `problems` contradict, `remarks` have honest causes too."""

    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    found: int = 0
    """Own answers that stand in it as they left."""

    def paragraph(self, study: str) -> str:
        told = "; ".join(self.problems or self.remarks)
        return (
            f"the transcript of {study} does not match what this site knows: {told}. Fix: ask the coordinator, compare"
            " with other sites, and do not rely on the model before it is clear"
            if self.problems
            else f"the transcript of {study}: {told}"
        )


def receive_transcript(home: SiteHome, study: str, message: Message) -> tuple[dict[str, Any], OwnFindings]:
    """Keep the transcript that came with the model, and check it; gives the words of the reply, and what was found."""
    folder = transcript_folder(home.folder(study))
    findings = OwnFindings()
    parts = message.arrays.get(TRANSCRIPT)
    if parts is None:
        findings.remarks.append("the coordinator sent none, so nobody here can replay how the model was trained")
        return {}, findings
    given = digest_of(message.arrays.get("params"))
    reply: dict[str, Any] = {}
    folder.mkdir(parents=True, exist_ok=True)
    entries = 0
    try:
        lines, head, certificate = (part_bytes(parts, name) for name in ("lines", "head", "certificate"))
        write_whole(folder / NAME, lines)
        write_whole(head_path(folder / NAME), head)
        write_whole(folder / CERTIFICATE, certificate)
        transcript = parse_transcript(lines, head, certificate)
        entries = len(transcript.entries)
        findings = check_own(home, study, transcript, given)
        if not findings.problems and transcript.head is not None:
            reply = {TRANSCRIPT: countersign_transcript(transcript.head, home.own_name, home.key).content()}
    except (ValueError, Refusal) as problem:
        findings.problems.append(f"it cannot be read: {problem}")
    write_json(folder / FINDINGS, {"model": given, **asdict(findings)})
    words = {"entries": entries, "problems": findings.problems, "remarks": findings.remarks}
    try:
        home.log().append(event_entry(TRANSCRIPT, study=study, **words))
    except LogNotWritable as full:  # a full disk: the coordinator is to ask again
        raise OSError(errno.ENOSPC, full.what) from None
    return reply, findings


def part_bytes(parts: Any, name: str) -> bytes:
    found = parts.get(name) if isinstance(parts, Mapping) else None
    if not isinstance(found, np.ndarray) or found.dtype != np.uint8 or found.ndim != 1 or found.size > LARGEST:
        raise Refusal(f"the transcript has no {name}", remedy="install the same version of wardround on both sides")
    return found.tobytes()


def check_own(home: SiteHome, study: str, transcript: Transcript, given: str) -> OwnFindings:
    """Everything that this site alone can say about a transcript; `given` is the hash of the model it got."""
    findings = OwnFindings()
    problems = findings.problems
    opening, closing, head = transcript.opening, transcript.closing, transcript.head
    if transcript.violations or opening is None or closing is None or head is None:
        problems.append(f"it is not whole: {transcript.violations[0] if transcript.violations else 'no end'}")
        return findings
    if (head.entries, head.hash) != (len(transcript.entries), transcript.hashes[-1]):
        problems.append("its signed end names other entries than it has")
    key = coordinator_key(home, transcript.certificate)
    wrong = head_problem({home.settings.server_name: [key]}, head)
    problems += [f"its end: {wrong}"] if wrong else []
    if opening.study != study:
        problems.append(f"it is about the study {opening.study}")
    if closing.model != given:
        problems.append("the model that this site was given is not the published one")
    problems += agreement_problems(home.folder(study), opening)
    compare_answers(home, study, transcript, findings)
    return findings


def agreement_problems(folder: Path, opening: Opening) -> list[str]:
    """Whether schema and preparation are those that this site was told."""
    problems = []
    for topic, word, claimed in (
        ("settle", "schema", opening.agreed_schema),
        ("prepare", "preparation", opening.agreed_preparation),
    ):
        path = folder / f"{topic}.json"
        told = read_json(path, "")[word] if path.exists() else None
        if told is not None and words_digest(json.loads(json.dumps(told))) != claimed:
            problems.append(f"its {word} is not the one that this site was told")
    return problems


def compare_answers(home: SiteHome, study: str, transcript: Transcript, findings: OwnFindings) -> None:
    """Own answers in the audit log against those in the transcript, and the models that came with the requests."""
    sent = sent_answers(home, study)
    own = {one["sha256"]: one for one in sent}
    listed: set[int] = set()
    for entry in transcript.entries:
        if not isinstance(entry, RoundEntry | LossEntry):
            continue
        what = f"round {entry.round}" if isinstance(entry, RoundEntry) else f"the losses after round {entry.round}"
        claimed = entry.answers.get(home.own_name)
        if claimed is None:
            continue
        named = entry.sent_to(home.own_name) if isinstance(entry, RoundEntry) else entry.sent
        if isinstance(entry, RoundEntry):
            listed.add(entry.round)
        if claimed not in own:
            findings.problems.append(f"{what}: it lists an answer of this site that never left here ({claimed[:12]})")
        elif own[claimed].get("asked", named) != named:
            findings.problems.append(f"{what}: this site was sent another model than the one that it names")
        else:
            findings.found += 1
    reasons = {
        entry.round: entry.absent[home.own_name]
        for entry in transcript.entries
        if isinstance(entry, RoundEntry) and home.own_name in entry.absent
    }
    for number in sorted({int(one["round"]) for one in sent if one["topic"] != Topic.JUDGE and "asked" in one}):
        if number in listed:
            continue
        if number in reasons:
            findings.remarks.append(
                f"round {number}: an answer of this site left here, and the coordinator says that it was not used "
                f"({reasons[number]})"
            )
        else:
            findings.problems.append(f"round {number}: an answer of this site left here and is not listed at all")


def sent_answers(home: SiteHome, study: str) -> list[Entry]:
    """What left for rounds and losses of a study's own training; what was asked to choose partners is not in it."""
    return [
        entry
        for entry in examine(home.audit_path).entries
        if entry.get("kind") == "sent"
        and entry.get("study") == study
        and entry.get("topic") in IN_TRANSCRIPT
        and entry.get("course") is None
        and isinstance(entry.get("sha256"), str)
    ]


def stored_findings(home: SiteHome, study: str) -> dict[str, Any]:
    """What was found when the transcript came; nothing where none came."""
    path = transcript_folder(home.folder(study)) / FINDINGS
    return read_json(path, "") if path.exists() else {}
