"""The one gate through which everything leaves a site that a study is told: the approved list, counted down.

A request is admitted before anything is computed for it, and its reply is let out afterwards. Refused is what is not on
the list of the approved study, what has been told as often as the list says, an answer that is larger than listed or of
other arrays, and a second question for the same place on the list: a round (of a course) is answered once, whatever the
words around it. The same request again is the same bytes and free.

What has left is known from the audit log, where every reply is written down before it leaves: so nothing is counted
anew after a crash, and whoever wanted to turn the count back would have to turn back a log that others countersign.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from wardround.core.components.recipes import from_json
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol.requests import Received, Topic
from wardround.deploy.protocol.wire import digest
from wardround.deploy.site.release.release_list import Release, Releases, name_of
from wardround.deploy.trust.audit_log import SENT
from wardround.study.privacy import KIND

LETTERS = 256
"""Replies to the steps of one round's secure sum, attempts that failed included; its sum is opened once at most."""
MASKED = ("secure", "halves")
"""Kinds of answers that nobody can read one by one: a round of them is asked for in several attempts."""
SEVERAL = (*MASKED, "finish")
"""Kinds of which one place may have several replies: none of them tells a patient's value."""
ANALYSIS = "analysis/"
STATISTICS = ("query/", ANALYSIS)
"""Kinds of answers that tell exact or coarse statistics of this site alone: the policy limits how many."""
REREAD = "reread"
"""In the audit log: the site's administrator lets a study ask anew, about corrected data."""
DECIDED = (b'"kind":"approved"', b'"kind":"withdrawn"', b'"kind":"reread"')
SAID_ENOUGH = "this request is refused, and so many others were that the reason is not told any more"
REMEDY = "ask for what was approved"


class Place(NamedTuple):
    """What a request would use up: a kind of the list, and which one of it (empty: the request itself tells)."""

    kind: str
    slot: str = ""


class ReleaseClaim(NamedTuple):
    """A place that was used: by which request, and the hash of the reply."""

    kind: str
    slot: str
    request: str
    sha256: str = ""

    def words(self) -> dict[str, str]:
        """For the audit log."""
        return {"release": self.kind, "slot": self.slot, "request": self.request}


def place_of(asked: Received[Any], topic: Topic) -> Place:
    """Which place on the list a request is for; one that no list has is refused by every gate."""
    question, course = asked.question, asked.course or 0
    where = f"{course}/{asked.round}"
    if topic is Topic.QUERY:
        return Place(f"query/{from_json(question.query).name}")
    if topic is Topic.ANALYSIS:
        return Place(f"{ANALYSIS}{question.recipe.name}", where)
    if topic in (Topic.SETTLE, Topic.PREPARE, Topic.FIGURES, Topic.FINISH, Topic.JUDGE, Topic.AGREE):
        expected = {Topic.JUDGE: "validation", Topic.FIGURES: "test"}.get(topic)
        if expected is not None and question.part != expected:
            return Place(f"{topic} of other patients", where)
        return Place(topic, "" if topic is Topic.JUDGE else "the only one")
    if topic is Topic.BEGIN:
        return Place("begin", f"{course}/{brief(question.algorithm)}")
    recipe, alone = question.recipe, asked.course is None
    if topic in MASKED:
        kind = str(topic) if alone else f"{topic} of a course"
    elif recipe.kind in ("algorithm", KIND):
        kind = "round" if alone else "training"
    else:
        kind = f"{recipe.kind} in a round" if alone else f"{recipe.kind}/{recipe.name}"
    return Place(kind, where)


def request_of_sum(asked: Received[Any], topic: Topic, message: Message) -> str:
    """By what a round of masked answers is known: all that an answer follows from, in whatever attempt."""
    question = asked.question
    model = question.session.get("model") if topic is Topic.SECURE else digest({}, message)
    return brief([question.method.words(), asked.round, asked.course, model])


def request_of_end(asked: Received[Any], message: Message) -> str:
    """By what the end of a study is known: the model. The transcript beside it is signed anew after a crash."""
    model = Message({name: one for name, one in message.arrays.items() if name != "transcript"})
    return brief([asked.question.method.words(), asked.round, digest({}, model)])


def brief(words: Any) -> str:
    """A short name of fixed length for words that came from outside."""
    return hashlib.sha256(json.dumps(words, sort_keys=True, default=str).encode()).hexdigest()[:32]


@dataclass
class ReleaseGate:
    """Of one study at one site: the approved list, the last round, and what has left so far."""

    releases: Releases
    rounds: int
    """The last one; of an analysis, the last exchange."""
    claims: dict[str, dict[str, ReleaseClaim]] = field(default_factory=dict)
    """By kind and slot."""
    letters: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.listed: dict[str, Release] = {one.kind: one for one in self.releases}

    def recall(self, claims: Iterable[ReleaseClaim]) -> None:
        """Take up what had left before this process was started."""
        for one in claims:
            self.claim(one)

    def check_size(self, place: Place, content: int) -> None:
        """Before a request's arrays are looked at: nothing of the approved study is as large as this."""
        most = self.require(place).request
        if content > most:
            raise Refusal(f"the request has {content} bytes, and {most} are allowed for {place.kind}", remedy=REMEDY)

    def require(self, place: Place) -> Release:
        if place.kind in self.listed and place.kind not in ("refusal", "diverged"):
            return self.listed[place.kind]
        what, _, name = place.kind.partition("/")
        masked = not self.listed.keys().isdisjoint(MASKED)
        if (what in ("query", "probe") and name) or (what == "analysis" and not masked):
            why = f"the study does not use the {what} {name[:80]} with these settings"
        elif what in ("round", "analysis") and masked:
            why = "of the approved study only the sum of the answers is opened, and a single one was requested"
        elif what in ("training", "probe") or "in a round" in what:
            why = "extra training was requested, and the approved study has none"
        else:
            why = f"the list of releases of the approved study has no {place.kind[:80]}"
        raise Refusal(why, remedy=REMEDY)

    def has_claim(self, asked: ReleaseClaim) -> bool:
        """Whether this very request was answered before."""
        before = self.claims.get(asked.kind, {}).get(asked.slot)
        return before is not None and before.request == asked.request

    def admit(self, asked: ReleaseClaim) -> None:
        """Refuse, before anything is computed, what is not on the list any more."""
        place = Place(asked.kind, asked.slot)
        one, used = self.require(place), self.claims.get(place.kind, {})
        counted = place.kind in ("round", *MASKED) or place.kind.startswith(ANALYSIS)
        if counted and not 1 <= int(place.slot.partition("/")[2]) <= self.rounds:
            raise Refusal(f"the approved study has the rounds 1 to {self.rounds}", remedy=REMEDY)
        if place.slot in used:
            if used[place.slot].request != asked.request:
                raise Refusal(
                    f"this was asked before in other words ({name_of(place.kind)}): there is one answer, and no second",
                    remedy="ask the same again for the same answer, or go on",
                )
            if self.letters.get(place.slot, 0) >= LETTERS:
                raise Refusal(f"this was asked too often ({name_of(place.kind)})", remedy="go on")
        elif len(used) >= one.times:
            raise Refusal(
                f"{name_of(place.kind)}: the approved study has {one.times}, and all were given", remedy=REMEDY
            )

    def refuse_gone(self, asked: ReleaseClaim) -> None:
        """Under noise: refuse what has left and is stored no more, before anything is drawn anew for it."""
        before = self.claims.get(asked.kind, {}).get(asked.slot)
        if before is not None and before.sha256 and asked.kind not in SEVERAL:
            raise Refusal(
                "the answer to this request was sent and is no longer stored; a second one, under new noise, would "
                "reveal more than was charged",
                remedy="restore the folder of the study from a backup, or go on with the next round",
            )

    def release(self, claim: ReleaseClaim, size: int, arrays: Iterable[str], *, diverged: bool = False) -> None:
        """Let a reply out, if it is what the list says; what has left under this claim must be the same bytes."""
        kind = "diverged" if diverged else claim.kind
        one = self.listed.get(kind)
        if one is None:
            raise Refusal(f"the approved study lets no '{kind}' leave", remedy="go on without this answer")
        if size > one.bytes:
            raise Refusal(f"the answer has {size} bytes, and {one.bytes} are listed", remedy="offer the study again")
        if one.arrays is not None and not set(arrays) <= set(one.arrays):
            raise Refusal("the answer holds arrays that are not listed", remedy="offer the study again")
        before = self.claims.get(claim.kind, {}).get(claim.slot)
        if before is not None and claim.kind not in SEVERAL and before.sha256 not in ("", claim.sha256):
            raise Refusal(
                "the answer to this request was sent and would be another one now, since the data changed",
                remedy="go on without this site, or offer the study again",
            )

    def claim(self, one: ReleaseClaim) -> None:
        """Write down in memory what the audit log says."""
        used = self.claims.setdefault(one.kind, {})
        if one.kind in SEVERAL:
            self.letters[one.slot] = self.letters.get(one.slot, 0) + 1
        if one.slot not in used or not used[one.slot].sha256:
            used[one.slot] = one

    def refusal(self, topic: str, why: str) -> ReleaseClaim | None:
        """The place of a refusal: none where the same one was written down before, an empty slot where all are used."""
        slot = brief([topic, why])
        used = self.claims.get("refusal", {})
        if slot in used:
            return None
        return ReleaseClaim("refusal", slot if len(used) < self.listed["refusal"].times else "", slot)


class ReleaseRecord:
    """What has left a site by its audit log: the hashes of all replies, and the places on studies' lists they used.

    What was read once is not read again; a log that is replaced or shorter than before is read anew.
    """

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()
        self._claims: dict[str, list[ReleaseClaim]] = {}
        self._approved: set[str] = set()
        self._withdrawn: set[str] = set()
        self._former: dict[str, int] = {}
        """Statistics that studies were given about data that were corrected since."""
        self._read, self._file = 0, -1
        self._reading = threading.Lock()

    def read(self, path: Path) -> None:
        """Take up what was added; of several threads at once, each line counts once."""
        with self._reading:
            self._read_on(path)

    def _read_on(self, path: Path) -> None:
        try:
            with open(path, "rb") as lines:
                status = os.fstat(lines.fileno())
                if status.st_ino != self._file or status.st_size < self._read:
                    self._hashes, self._claims, self._former = set(), {}, {}
                    self._approved, self._withdrawn = set(), set()
                    self._read, self._file = 0, status.st_ino
                if status.st_size == self._read:
                    return
                lines.seek(self._read)
                content = lines.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._hashes.update(SENT.findall(whole))
        for line in whole.splitlines():
            if b'"release":' in line or any(one in line for one in DECIDED):
                self._take(line)
        self._read += len(whole)

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)["entry"]
            if entry["kind"] == "approved":
                self._approved.add(str(entry["study"]))
            elif entry["kind"] == "withdrawn":
                self._withdrawn.add(str(entry["study"]))
            elif entry["kind"] == REREAD:
                study = str(entry["study"])
                self._former[study] = self.statistics([study])
                self._claims.pop(study, None)
            elif entry["kind"] in ("sent", "refused"):
                words = (entry["release"], entry["slot"], entry["request"], entry.get("sha256", ""))
                self._claims.setdefault(entry["study"], []).append(ReleaseClaim(*map(str, words)))
        except (ValueError, KeyError, TypeError):
            return  # `audit verify` tells of a line that is none of ours

    def has_hash(self, sha256: str) -> bool:
        return sha256.encode() in self._hashes

    def has_approval(self, study: str) -> bool:
        """Whether the log goes back to the study's approval, and so tells all that has left for it."""
        return study in self._approved

    def has_withdrawal(self, study: str) -> bool:
        """Whether the study was withdrawn, which is final, whatever its decision says now."""
        return study in self._withdrawn

    def claims(self, study: str) -> tuple[ReleaseClaim, ...]:
        return tuple(self._claims.get(study, ()))

    def statistics(self, studies: Iterable[str]) -> int:
        """Different statistics that these studies were given, or refused after the rows were looked at."""
        named = set(studies)
        found = {(study, one.kind, one.slot) for study in named for one in self._claims.get(study, ())}
        former = sum(self._former.get(study, 0) for study in named)
        return former + sum(kind.startswith(STATISTICS) for _, kind, _ in found)
