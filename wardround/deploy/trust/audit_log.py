"""The audit log of a site or coordinator: all that ever left it, and every decision, in a file nobody can quietly edit.

JSON lines chained by SHA-256, each on the disk before what it tells happens. Beside the log lies its head, a small file
with the number of entries and the last hash, signed by the owner's key and renewed with every entry, so that lines
missing at the end are noticed. Whoever holds that key, or puts back an old log TOGETHER with its old head, could still
roll it back: hence the other side countersigns heads and keeps them, and shows them to `verify` as witnesses.
What an interrupted append leaves is put right by the next one, which says so in the log. An append waits for the disk
once, however long the log is and however many entries come together; the head is not waited for, so a power cut may
leave it behind, which is put right too. Files that nobody touched since our last append are not looked through again.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from wardround.core.errors import Refusal
from wardround.core.files import append_line, stamp, write_whole
from wardround.core.journal import (
    DIGEST,
    LONGEST,
    ROOT,
    End,
    Finding,
    canonical,
    hash_after,
    locked,
    numbered_lines,
    parsed,
    place_problems,
    tail,
)
from wardround.deploy.trust.certificates import Key
from wardround.deploy.trust.log_heads import (
    Countersigned,
    Head,
    Keys,
    head_bytes,
    head_path,
    head_problems,
    read_countersigned,
    sign_head,
    signature_problem,
    stored_head,
)

Entry = dict[str, Any]
"""Plain JSON with at least "time" and "kind"."""
FORMS = {"hash": DIGEST, "previous": DIGEST}
LINE = {"entry": dict, "hash": str, "number": int, "previous": str}
MOST_ARRAYS = 1000
BETWEEN = 2**30
"""In place of a round's number: about the model as it stood between two rounds."""
SENT = re.compile(rb'"sha256":"([0-9a-f]{64})"')


class NoRoom(Refusal):
    """The disk would not take an entry; it will when there is room again."""


class Examined(NamedTuple):
    """The entries that can be read, everything that is wrong, and whose signatures could not be checked."""

    entries: tuple[Entry, ...]
    findings: list[Finding]
    unchecked: tuple[str, ...]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def sent(facts: Mapping[str, Any]) -> Entry:
    """What is about to leave: study, topic, round, to whom, bytes, their hash, names and shapes of arrays, no value."""
    shapes = facts.get("arrays") or {}
    told = dict(list(shapes.items())[:MOST_ARRAYS])
    more = {"more_arrays": len(shapes) - len(told)} if len(shapes) > len(told) else {}
    return {**facts, "arrays": told, **more, "time": now(), "kind": "sent"}


def noted(kind: str, **words: Any) -> Entry:
    """Something that happened here, such as a decision."""
    return {"time": now(), "kind": kind, **words}


class Sent:
    """The hashes of all that a log says was sent; what was read once is not read again."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()
        self._read, self._file = 0, -1

    def holds(self, path: Path, sha256: str) -> bool:
        try:
            with open(path, "rb") as lines:
                status = os.fstat(lines.fileno())
                if status.st_ino != self._file or status.st_size < self._read:
                    self._hashes, self._read, self._file = set(), 0, status.st_ino
                lines.seek(self._read)
                content = lines.read()
        except FileNotFoundError:
            return False
        whole = content[: content.rfind(b"\n") + 1]
        self._hashes.update(SENT.findall(whole))
        self._read += len(whole)
        return sha256.encode() in self._hashes


@dataclass(frozen=True)
class Log:
    """The log in the file `path` with its head beside it (`path` + ".head"), kept by `who` with its key."""

    path: Path
    who: str
    key: Key

    def append(self, *entries: Entry) -> Head:
        """Write entries down and wait for the disk; refused, so that nothing may leave, where it cannot be."""
        if not entries:
            return self.head()
        with locked(self.path, os.O_RDWR | os.O_CREAT, "audit log") as file:
            last = self._ready(file)
            return self._add(file, last.entries, last.hash, *entries)

    def head(self) -> Head:
        """The signed head as it is now: what the other side countersigns."""
        with locked(self.path, os.O_RDWR | os.O_CREAT, "audit log") as file:
            last = self._ready(file)
            return sign_head(last.entries, last.hash, self.who, self.key)

    def keep(self, seen: Countersigned) -> Head:
        """Write down that the other side has countersigned a head of this log."""
        return self.append(noted("countersigned", **seen.content()))

    def _ready(self, file: int) -> End:
        """How the log ends, after what an interruption left was put right."""
        known = _ends.get(self.path)
        if known is not None and known[0] == stamps(file, self.path):
            return known[1]
        last, head = end_of(file, self.path), stored_head(self.path)
        if head is None and last.entries == 0:
            # The head of nothing comes first, so that a log without a head is never one that was interrupted.
            self._write_first_head()
            head = Head(0, ROOT, self.who, "")
        behind = None if head is None else last.entries - head.entries
        if head is None or not self._follows(file, head):
            raise Refusal(
                "the audit log does not end as its signed head says, so nothing is written and nothing may leave",
                where=str(self.path),
                remedy="see what is missing with `wardround audit verify`, restore both files from a copy, or put both"
                " away in a safe place so that a new log begins",
            )
        done = []
        if last.torn:
            os.ftruncate(file, os.fstat(file).st_size - last.torn)
            done.append(f"{last.torn} bytes of an entry that was never finished were cut off")
        if behind:
            done.append(f"the head was behind by {behind}")
        if done:
            words = " and ".join(done)
            written = self._add(file, last.entries, last.hash, noted("mended", what=f"after an interruption {words}"))
            return End(written.entries, written.hash, last.hash, 0)
        return last

    def _follows(self, file: int, head: Head) -> bool:
        """Whether the log still holds the entry that the head names, with nothing but whole entries after it."""
        last = end_of(file, self.path)
        if (head.entries, head.hash) in ((last.entries, last.hash), (last.entries - 1, last.previous)):
            return True
        if head.entries >= last.entries:
            return False
        known = [ROOT]
        with os.fdopen(os.dup(file), "rb") as lines:  # a power cut: rare, so all of it may be read
            lines.seek(0)
            for _, raw in numbered_lines(lines):
                if isinstance(raw, Finding):  # the torn end, of which the caller knows
                    break
                try:
                    line = read_line(raw)
                except ValueError:
                    return False
                if line.previous != known[-1]:
                    return False
                known.append(line.hash)
        return known[head.entries] == head.hash

    def _add(self, file: int, entries: int, before: str, *new: Entry) -> Head:
        lines, digest = [], before
        for entry in new:
            before, digest = digest, hash_after(digest, entry)
            entries += 1
            line = canonical({"entry": entry, "hash": digest, "number": entries, "previous": before}) + b"\n"
            if len(line) > LONGEST:
                raise Refusal(f"an entry of {len(line)} bytes is too long for the audit log", where=str(self.path))
            lines.append(line)
        _ends.pop(self.path, None)
        try:
            append_line(file, b"".join(lines))
        except OSError as problem:
            raise NoRoom(
                f"the audit log cannot be written ({problem.strerror}), so nothing may leave; it is as it was",
                where=str(self.path),
                remedy="make room on the disk; then it goes on by itself",
            ) from None
        head = sign_head(entries, digest, self.who, self.key)
        handle = os.open(head_path(self.path), os.O_WRONLY)
        try:
            os.pwrite(handle, head_bytes(head), 0)  # in place, over as many bytes: needs no room
        finally:
            os.close(handle)
        _ends[self.path] = stamps(file, self.path), End(entries, digest, before, 0)
        return head

    def _write_first_head(self) -> None:
        try:
            write_whole(head_path(self.path), head_bytes(sign_head(0, ROOT, self.who, self.key)))
        except OSError as problem:
            raise Refusal(
                f"the audit log cannot be begun: {problem.strerror}",
                where=str(self.path),
                remedy="make room on the disk",
            ) from None


Stamp = tuple[int, int, int, int]
_ends: dict[Path, tuple[tuple[Stamp, Stamp | None], End]] = {}
"""How logs ended after our own last append, and what their files and heads looked like then."""


def stamps(file: int, path: Path) -> tuple[Stamp, Stamp | None]:
    """What tells whether somebody touched a log or its head."""
    try:
        beside = stamp(os.stat(head_path(path)))
    except OSError:
        beside = None
    return stamp(os.fstat(file)), beside


class Line(NamedTuple):
    entry: Entry
    hash: str
    number: int
    previous: str


def read_line(raw: bytes) -> Line:
    return Line(**parsed(raw, LINE, FORMS))


def end_of(file: int, path: Path) -> End:
    last, torn = tail(file)
    if last is None:
        return End(0, ROOT, "", torn)
    try:
        line = read_line(last)
        if hash_after(line.previous, line.entry) != line.hash:
            raise ValueError("its content was changed")
    except ValueError as problem:
        raise Refusal(
            f"the last entry of the audit log is damaged: {problem}",
            where=str(path),
            remedy="restore both files from a copy, or put both away in a safe place so that a new log begins",
        ) from None
    return End(line.number, line.hash, line.previous, torn)


def verify(path: Path, keys: Keys | None = None, *, witnesses: Sequence[Countersigned] = ()) -> list[Finding]:
    """Everything that is wrong with a log, or an empty list; without keys, beside the signatures."""
    return examine(path, keys, witnesses=witnesses).findings


def examine(path: Path, keys: Keys | None = None, *, witnesses: Sequence[Countersigned] = ()) -> Examined:
    findings: list[Finding] = []
    entries: list[Entry] = []
    seen: list[tuple[int, Countersigned]] = [(0, witness) for witness in witnesses]
    known = [ROOT]  # hashes after 0, 1, 2, ... lines; empty where a line cannot be read
    with locked(path, os.O_RDONLY, "audit log") as handle, os.fdopen(os.dup(handle), "rb") as file:
        for number, raw in numbered_lines(file):
            if isinstance(raw, Finding):
                findings.append(raw)
                break
            try:
                line = read_line(raw)
                if line.entry.get("kind") == "countersigned":
                    words = {name: line.entry.get(name) for name in ("by", "head", "signature")}
                    seen.append((number, read_countersigned(words)))
            except ValueError as problem:
                findings.append(Finding(number, str(problem)))
                known.append("")
                continue
            findings += [
                Finding(number, what) for what in place_problems(line.number, line.previous, number, known[-1])
            ]
            if hash_after(line.previous, line.entry) != line.hash:
                findings.append(Finding(number, "its content was changed: the hash does not fit"))
            known.append(line.hash)
            entries.append(line.entry)
        findings += [Finding(0, what) for what in end_problems(path, known, keys)]
    strangers: set[str] = set()
    for number, one in seen:
        name = f"the head that {one.by!r} countersigned"
        findings += [Finding(number, what) for what in head_problems(name, one.head, known)]
        if keys is not None and one.by in keys:
            wrong = signature_problem(keys, one.by, one.signature, one.message) or signature_problem(
                keys, one.head.who, one.head.signature, one.head.message
            )
            findings += [Finding(number, f"{name}: {wrong}")] if wrong else []
        else:
            strangers.add(one.by)
    return Examined(tuple(entries), findings, tuple(sorted(strangers)))


def end_problems(path: Path, known: Sequence[str], keys: Keys | None) -> list[str]:
    """What the head beside the log shows to be wrong."""
    try:
        head = stored_head(path)
    except Refusal as problem:
        return [problem.what]
    if head is None:
        return ["the head is missing: entries lost at the end could not be told"]
    problems = head_problems("the head", head, known)
    if not problems and head.entries < len(known) - 1:
        problems.append(
            f"the head covers {head.entries} of {len(known) - 1} entries: a process was interrupted there (the next"
            " entry will say so), or somebody without the key added lines"
        )
    wrong = "" if keys is None else signature_problem(keys, head.who, head.signature, head.message)
    return [*problems, f"the head: {wrong}"] if wrong else problems
