"""A journal: an append-only file of JSON lines, each with the hash of the line before, so that no edit goes unnoticed.

The audit log of a site, the ledger of a study and the privacy budget of a site are journals. They differ in their
`Format`: what a line holds, and what refusals call the file. Who signs what is up to them: a ledger signs each line, an
audit log its end, a budget nothing.

JSON with sorted keys, no spaces and ASCII only, so that equal content is equal bytes; reading refuses anything that is
not written so. Every append waits for the disk. A crash can leave a torn last line, which has no newline: it never was
an entry, and is reported or cut off.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from wardround.core.errors import Refusal
from wardround.core.files import BINARY, append_line, lock_file, read_at

ROOT = "0" * 64
"""What the first line gives as the hash before it."""
LONGEST = 1 << 20
"""Bytes in a line, so that a damaged file cannot ask for all memory."""
DIGEST = re.compile(r"[0-9a-f]{64}")
ENTRY_FIELDS: Mapping[str, type] = {"entry": dict, "hash": str, "number": int, "previous": str}
CHAIN_PATTERNS: Mapping[str, re.Pattern[str]] = {"hash": DIGEST, "previous": DIGEST}

Content = dict[str, Any]
"""What an entry is in JSON."""
E = TypeVar("E")


class Violation(NamedTuple):
    """What is wrong with a journal: at which line (0: at its head), and what."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"{f'line {self.line}' if self.line else 'head'}: {self.what}"


class End(NamedTuple):
    """How many whole lines a journal has, the hashes of the last of them, and the bytes of a torn line after it."""

    entries: int
    hash: str
    previous: str
    torn: int


@dataclass(frozen=True)
class Line(Generic[E]):
    """One line; it is intact where its hash is that of its content and of the hash before."""

    entry: E
    number: int
    previous: str
    hash: str
    signature: str
    is_intact: bool


@dataclass(frozen=True)
class Chain(Generic[E]):
    """The lines that can be read, numbered by place, the hashes after 0, 1, 2, ... lines, and what is wrong.

    The hash after a line that cannot be read is empty.
    A torn last line is kept apart from the `violations`: a crash leaves one too, and not everybody minds.
    """

    lines: tuple[Line[E], ...]
    hashes: tuple[str, ...]
    violations: tuple[Violation, ...]
    torn: tuple[Violation, ...]


class Format(NamedTuple, Generic[E]):
    """How one kind of journal is written.

    With a field "entry", that is what the hash is over; without, it is the line itself but for its hash. `read_entry`
    turns the content into what the kind's entries are, or raises ValueError or Refusal. `remedy` is for a damaged file.
    """

    name: str
    read_entry: Callable[[Content], E]
    remedy: str
    fields: Mapping[str, type] = ENTRY_FIELDS
    patterns: Mapping[str, re.Pattern[str]] = CHAIN_PATTERNS

    def hashed_content(self, line: Content) -> Content:
        """The part of a line that its hash is over."""
        content: Content = line["entry"] if "entry" in self.fields else {k: line[k] for k in line if k != "hash"}
        return content

    def read_line(self, raw: bytes, number: int) -> Line[E]:
        """A line (the `number`-th, where it does not say so itself); a ValueError says what is wrong."""
        line = parse_object(raw, self.fields, self.patterns)
        content = self.hashed_content(line)
        try:
            entry = self.read_entry(content)
        except (Refusal, TypeError):
            raise ValueError("its entry is malformed") from None
        is_intact = chain_hash(line["previous"], content) == line["hash"]
        return Line(
            entry, line.get("number", number), line["previous"], line["hash"], line.get("signature", ""), is_intact
        )

    def write_line(self, content: Content, number: int, previous: str, sign: Callable[[str], str] | None) -> Content:
        """The line with which an entry is added; `sign` makes its signature from its hash."""
        line: Content = {"entry": content, "number": number} if "entry" in self.fields else dict(content)
        line["previous"] = previous
        line["hash"] = chain_hash(previous, self.hashed_content(line))
        return line if sign is None else {**line, "signature": sign(line["hash"])}


@dataclass(frozen=True)
class Journal(Generic[E]):
    """The journal in the file `path`; every method but `lock` takes the file that `lock` opened."""

    path: Path
    format: Format[E]

    @contextmanager
    def lock(self, *, write: bool, create: bool = True) -> Iterator[int]:
        """The open file, while no other process writes it; one that writes makes it where it is missing."""
        flags = (os.O_RDWR | (os.O_CREAT if create else 0)) if write else os.O_RDONLY
        where, name = str(self.path), self.format.name
        try:
            file = os.open(self.path, flags | BINARY, 0o600)
        except OSError as problem:
            raise Refusal(
                f"the {name} cannot be opened: {problem.strerror}", where=where, remedy="check its path"
            ) from None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Refusal(f"the {name} is not a file", where=where, remedy="check its path")
            lock_file(file, shared=not write)
            yield file
        finally:
            os.close(file)

    def append(self, file: int, end: End, *contents: Content, sign: Callable[[str], str] | None = None) -> End:
        """Add entries after the `end` and wait for the disk, once for all of them; gives how the journal ends then.

        An OSError (no room, mostly) leaves the file as it was.
        """
        lines, number, previous, digest = list[bytes](), end.entries, end.previous, end.hash
        for content in contents:
            number, previous = number + 1, digest
            line = self.format.write_line(content, number, previous, sign)
            digest = line["hash"]
            lines.append(canonical_json(line) + b"\n")
            if len(lines[-1]) > LONGEST:
                raise Refusal(
                    f"an entry of {len(lines[-1])} bytes is too long for the {self.format.name}",
                    where=str(self.path),
                    remedy="split it",
                )
        append_line(file, b"".join(lines))
        return End(number, digest, previous, 0)

    def end(self, file: int) -> End:
        """How the journal ends, for lines that are numbered; only its tail is read."""
        last, torn = read_tail(file)
        if last is None:
            return End(0, ROOT, "", torn)
        try:
            line = self.format.read_line(last, 0)
            if not line.is_intact:
                raise ValueError("its content was changed")
        except ValueError as problem:
            raise Refusal(
                f"the last entry of the {self.format.name} is damaged: {problem}",
                where=str(self.path),
                remedy=self.format.remedy,
            ) from None
        return End(line.number, line.hash, line.previous, torn)

    def check(self, file: int) -> Chain[E]:
        """Read every line and find what is wrong; nothing is read past a line that does not end."""
        lines, hashes = list[Line[E]](), [ROOT]
        violations, torn = list[Violation](), list[Violation]()
        with os.fdopen(os.dup(file), "rb") as content:
            content.seek(0)
            for number, raw in numbered_lines(content):
                if isinstance(raw, Violation):
                    (violations if raw.what == TOO_LONG else torn).append(raw)
                    break
                try:
                    line = self.format.read_line(raw, number)
                except ValueError as problem:
                    violations.append(Violation(number, str(problem)))
                    hashes.append("")
                    continue
                problems = place_problems(line.number, line.previous, number, hashes[-1])
                if not line.is_intact:
                    problems.append("its content was changed: the hash does not fit")
                violations += [Violation(number, what) for what in problems]
                hashes.append(line.hash)
                lines.append(replace(line, number=number))
        return Chain(tuple(lines), tuple(hashes), tuple(violations), tuple(torn))

    def cut_torn_line(self, file: int, torn: int) -> None:
        """Cut off the bytes of a line that was never finished, and wait for the disk."""
        os.ftruncate(file, os.fstat(file).st_size - torn)
        os.fsync(file)


def canonical_json(value: object) -> bytes:
    """The one way to write a JSON value: keys sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def chain_hash(previous: str, content: object) -> str:
    """The hash of a line's content and, through the hash before, of everything above it."""
    return hashlib.sha256(bytes.fromhex(previous) + canonical_json(content)).hexdigest()


def parse_object(raw: bytes, fields: Mapping[str, type], patterns: Mapping[str, re.Pattern[str]]) -> Content:
    """An object with exactly these fields, written canonically; a ValueError says what is wrong.

    `patterns` are what some of the texts must look like.
    """
    try:
        value = json.loads(raw.decode("ascii"))
        unchanged = canonical_json(value) == raw
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON as it was written here") from None
    if not unchanged or not isinstance(value, dict) or set(value) != set(fields):
        raise ValueError("it is not as it was written here")
    for name, sort in fields.items():
        pattern = patterns.get(name)
        if type(value[name]) is not sort or (pattern and not pattern.fullmatch(value[name])):
            raise ValueError(f"its {name} is malformed")
    return value


def place_problems(number: int, previous: str, expected: int, before: str) -> list[str]:
    """What is wrong with the place of a line that should be the `expected`-th, after the hash `before` (if known)."""
    problems = []
    if number != expected:
        problems.append(f"it calls itself entry {number}: lines were deleted, added or put in another order")
    if before and previous != before:
        problems.append("it does not follow on the line above it, which was changed, deleted or moved")
    return problems


TORN = "the line is torn: it has no end; nothing was read from here on"
TOO_LONG = "the line is longer than any entry; nothing was read from here on"


def numbered_lines(file: Any) -> Iterator[tuple[int, bytes | Violation]]:
    """Every line without its newline, or what is wrong with it; nothing is read past a line that does not end."""
    number = 0
    while raw := file.readline(LONGEST):
        number += 1
        if not raw.endswith(b"\n"):
            yield number, Violation(number, TOO_LONG if len(raw) == LONGEST else TORN)
            return
        yield number, raw[:-1]


def read_tail(file: int) -> tuple[bytes | None, int]:
    """The last whole line (none where there is no line) and the bytes of a torn one after it; reads the end only."""
    size = os.fstat(file).st_size
    for window in (1 << 14, 2 * LONGEST):  # most lines are short
        start = max(0, size - window)
        whole, newline, rest = read_at(file, size - start, start).rpartition(b"\n")
        _, another, last = whole.rpartition(b"\n")
        if another or start == 0:
            break
    # Where even the large window shows no end, there is a line, and it is none that anybody wrote.
    return (None if not newline and start == 0 else last), len(rest)
