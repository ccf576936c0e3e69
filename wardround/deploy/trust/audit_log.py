"""The audit log of a site or coordinator: all that ever left it, and every decision, in a file nobody can quietly edit.

JSON lines chained by SHA-256, each on the disk before what it tells happens. Beside the log lies its head, a small file
with the number of entries and the last hash, signed by the owner's key and renewed with every entry, so that lines
missing at the end are noticed. Whoever holds that key, or puts back an old log TOGETHER with its old head, could still
roll it back: hence the other side countersigns heads and keeps them, and shows them to `verify` as witnesses.
What an interrupted append leaves is put right by the next one, which says so in the log. An append waits for the disk
once, however long the log is and however many entries come together; the head is not waited for, so a power cut may
leave it behind, which is put right too. Files that nobody touched since our last append are not looked through again.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.core.files import BINARY, stamp, write_at, write_whole
from wardround.core.journals.journal import ROOT, End, Format, Journal, Violation
from wardround.core.journals.journal_head import Head, head_path, head_problems
from wardround.deploy.trust.certificates import Key
from wardround.deploy.trust.log_heads import (
    RESTORE,
    Countersigned,
    Keys,
    countersignature_problem,
    head_bytes,
    head_signature_problem,
    load_log_head,
    parse_countersigned,
    sign_head,
)

Entry = dict[str, Any]
"""Plain JSON with at least "time" and "kind"."""
MOST_ARRAYS = 1000
BETWEEN = 2**30
"""In place of a round's number: about the model as it stood between two rounds."""
SENT = re.compile(rb'"sha256":"([0-9a-f]{64})"')
"""The hash of what was sent, in a line."""


def is_countersigned(entry: Entry) -> bool:
    return entry.get("kind") == "countersigned"


def countersigned_in(entry: Entry) -> Countersigned:
    """The countersigned head that an entry holds; a ValueError says what is wrong."""
    return parse_countersigned({name: entry.get(name) for name in ("by", "head", "signature")})


def read_entry(content: Entry) -> Entry:
    if is_countersigned(content):
        countersigned_in(content)
    return content


def has_withdrawal(path: Path, study: str) -> bool:
    """Whether a log tells of a study's withdrawal, which is final, whatever the decision on file says now."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return False
    named = f'"study":{json.dumps(study)}'.encode()
    return any(b'"kind":"withdrawn"' in line and named in line for line in lines)


FORMAT = Format("audit log", read_entry, RESTORE)


class LogNotWritable(Refusal):
    """The disk would not take an entry; it will when there is room again."""


class Examination(NamedTuple):
    """The entries that can be read, everything that is wrong, and whose signatures could not be checked."""

    entries: tuple[Entry, ...]
    findings: list[Violation]
    unchecked: tuple[str, ...]


def sent_entry(facts: Mapping[str, Any]) -> Entry:
    """What is about to leave: study, topic, round, to whom, bytes, their hash, names and shapes of arrays, no value."""
    shapes = facts.get("arrays") or {}
    told = dict(list(shapes.items())[:MOST_ARRAYS])
    more = {"more_arrays": len(shapes) - len(told)} if len(shapes) > len(told) else {}
    return {**facts, "arrays": told, **more, "time": timestamp("milliseconds"), "kind": "sent"}


def event_entry(kind: str, **words: Any) -> Entry:
    """Something that happened here, such as a decision."""
    return {"time": timestamp("milliseconds"), "kind": kind, **words}


@dataclass(frozen=True)
class AuditLog:
    """The log in the file `path` with its head beside it (`path` + ".head"), kept by `who` with its key."""

    path: Path
    who: str
    key: Key

    @property
    def journal(self) -> Journal[Entry]:
        return Journal(self.path, FORMAT)

    def append(self, *entries: Entry) -> Head:
        """Write entries down and wait for the disk; refused, so that nothing may leave, where it cannot be."""
        if not entries:
            return self.head()
        with self.journal.lock(write=True) as file:
            return self._add(file, self._repair(file), *entries)

    def head(self) -> Head:
        """The signed head as it is now: what the other side countersigns."""
        with self.journal.lock(write=True) as file:
            last = self._repair(file)
            return sign_head(last.entries, last.hash, self.who, self.key)

    def keep(self, seen: Countersigned) -> Head:
        """Write down that the other side has countersigned a head of this log."""
        return self.append(event_entry("countersigned", **seen.content()))

    def _repair(self, file: int) -> End:
        """How the log ends, after what an interruption left was put right."""
        known = _ends.get(self.path)
        if known is not None and known[0] == stamps(file, self.path):
            return known[1]
        last, head = self.journal.end(file), load_log_head(self.path)
        if head is None and last.entries == 0:
            # The head of nothing comes first, so that a log without a head is never one that was interrupted.
            self._write_first_head()
            head = Head(0, ROOT, self.who, "")
        behind = None if head is None else last.entries - head.entries
        if head is None or not self._is_continued(file, last, head):
            raise Refusal(
                "the audit log does not match its signed head, so nothing is written and nothing is sent",
                where=str(self.path),
                remedy="see what is missing with `wardround audit verify`, restore both files from a backup, or move"
                " both to a safe place so that a new log begins",
            )
        done = []
        if last.torn:
            self.journal.cut_torn_line(file, last.torn)
            done.append(f"{last.torn} bytes of an entry that was never finished were cut off")
        if behind:
            done.append(f"the head was behind by {behind}")
        if done:
            words = " and ".join(done)
            written = self._add(file, last, event_entry("mended", what=f"after an interruption {words}"))
            return End(written.entries, written.hash, last.hash, 0)
        return last

    def _is_continued(self, file: int, last: End, head: Head) -> bool:
        """Whether the log still holds the entry that the head names, with nothing but whole entries after it."""
        if (head.entries, head.hash) in ((last.entries, last.hash), (last.entries - 1, last.previous)):
            return True
        if head.entries >= last.entries:
            return False
        chain = self.journal.check(file)  # a power cut: rare, so all of it may be read
        return not chain.violations and chain.hashes[head.entries] == head.hash

    def _add(self, file: int, last: End, *new: Entry) -> Head:
        _ends.pop(self.path, None)
        try:
            end = self.journal.append(file, last, *new)
        except OSError as problem:
            raise LogNotWritable(
                f"the audit log cannot be written ({problem.strerror}), so nothing is sent; the log is unchanged",
                where=str(self.path),
                remedy="free some disk space; the site then continues by itself",
            ) from None
        head = sign_head(end.entries, end.hash, self.who, self.key)
        handle = os.open(head_path(self.path), os.O_WRONLY | BINARY)
        try:
            write_at(handle, head_bytes(head), 0)  # in place, over as many bytes: needs no room
        finally:
            os.close(handle)
        _ends[self.path] = stamps(file, self.path), end
        return head

    def _write_first_head(self) -> None:
        try:
            write_whole(head_path(self.path), head_bytes(sign_head(0, ROOT, self.who, self.key)))
        except OSError as problem:
            raise Refusal(
                f"the audit log cannot be created: {problem.strerror}",
                where=str(self.path),
                remedy="free some disk space",
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


def verify(path: Path, keys: Keys | None = None, *, witnesses: Sequence[Countersigned] = ()) -> list[Violation]:
    """Everything that is wrong with a log, or an empty list; without keys, beside the signatures."""
    return examine(path, keys, witnesses=witnesses).findings


def examine(path: Path, keys: Keys | None = None, *, witnesses: Sequence[Countersigned] = ()) -> Examination:
    journal = Journal(path, FORMAT)
    with journal.lock(write=False) as file:
        chain = journal.check(file)
        findings = [*chain.violations, *chain.torn]
        findings += [Violation(0, what) for what in end_problems(path, chain.hashes, keys)]
    seen = [(0, witness) for witness in witnesses]
    seen += [(line.number, countersigned_in(line.entry)) for line in chain.lines if is_countersigned(line.entry)]
    strangers: set[str] = set()
    for number, one in seen:
        name = f"the head that {one.by!r} countersigned"
        findings += [Violation(number, what) for what in head_problems(name, one.head, chain.hashes, "log")]
        if keys is not None and one.by in keys:
            wrong = countersignature_problem(keys, one)
            findings += [Violation(number, f"{name}: {wrong}")] if wrong else []
        else:
            strangers.add(one.by)
    return Examination(tuple(line.entry for line in chain.lines), findings, tuple(sorted(strangers)))


def end_problems(path: Path, hashes: Sequence[str], keys: Keys | None) -> list[str]:
    """What the head beside the log shows to be wrong."""
    try:
        head = load_log_head(path)
    except Refusal as problem:
        return [problem.what]
    if head is None:
        return ["the head is missing, so entries lost at the end could not be noticed"]
    behind = "a process was interrupted there (the next entry will say so), or someone without the key added lines"
    problems = head_problems("the head", head, hashes, "log", behind=behind)
    wrong = "" if keys is None else head_signature_problem(keys, head)
    return [*problems, f"the head: {wrong}"] if wrong else problems
