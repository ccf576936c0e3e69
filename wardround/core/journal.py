"""Files of JSON lines in which every line holds the hash of the one before, so that no edit goes unnoticed.

JSON with sorted keys, no spaces and ASCII only, so that equal content is equal bytes; reading refuses anything that is
not written so. What the lines are about, and who signs what, is up to the file: the ledger of a study signs each line,
the audit log of a site signs its end. Needs a POSIX system (locks, file modes).
"""

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from wardround.core.errors import Refusal

ROOT = "0" * 64
"""What the first line gives as the hash before it."""
LONGEST = 1 << 20
"""Bytes in a line, so that a damaged file cannot ask for all memory."""
DIGEST = re.compile(r"[0-9a-f]{64}")


class Finding(NamedTuple):
    """Something wrong in such a file: at which line (0: at the head), and what."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"{f'line {self.line}' if self.line else 'head'}: {self.what}"


class End(NamedTuple):
    """How many whole lines a file has, the hashes of the last of them, and the bytes of a torn line after it."""

    entries: int
    hash: str
    previous: str
    torn: int


def canonical(value: object) -> bytes:
    """The one way to write a JSON value: keys sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def hash_after(previous: str, content: object) -> str:
    """The hash of a line's content and, through the hash before, of everything above it."""
    return hashlib.sha256(bytes.fromhex(previous) + canonical(content)).hexdigest()


def parsed(raw: bytes, fields: Mapping[str, type], forms: Mapping[str, re.Pattern[str]]) -> dict[str, Any]:
    """An object with exactly these fields, written canonically; a ValueError says what is wrong.

    `forms` are what some of the texts must look like.
    """
    try:
        value = json.loads(raw.decode("ascii"))
        unchanged = canonical(value) == raw
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON as it was written here") from None
    if not unchanged or not isinstance(value, dict) or set(value) != set(fields):
        raise ValueError("it is not as it was written here")
    for name, sort in fields.items():
        form = forms.get(name)
        if type(value[name]) is not sort or (form and not form.fullmatch(value[name])):
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


def numbered_lines(file: Any) -> Iterator[tuple[int, bytes | Finding]]:
    """Every line without its newline, or what is wrong with it; nothing is read past a line that does not end."""
    number = 0
    while raw := file.readline(LONGEST):
        number += 1
        if not raw.endswith(b"\n"):
            why = "longer than any entry" if len(raw) == LONGEST else "torn: it has no end"
            yield number, Finding(number, f"the line is {why}; nothing was read from here on")
            return
        yield number, raw[:-1]


def tail(file: int) -> tuple[bytes | None, int]:
    """The last whole line (none where there is no line) and the bytes of a torn one after it; reads the end only."""
    size = os.fstat(file).st_size
    for window in (1 << 14, 2 * LONGEST):  # most lines are short
        start = max(0, size - window)
        whole, newline, rest = os.pread(file, size - start, start).rpartition(b"\n")
        _, another, last = whole.rpartition(b"\n")
        if another or start == 0:
            break
    # Where even the large window shows no end, there is a line, and it is none that anybody wrote.
    return (None if not newline and start == 0 else last), len(rest)


@contextmanager
def locked(path: Path, flags: int, what: str) -> Iterator[int]:
    """The open file, while no other process writes it; `what` it is called in a refusal."""
    try:
        file = os.open(path, flags, 0o600)
    except OSError as problem:
        raise Refusal(
            f"the {what} cannot be opened: {problem.strerror}", where=str(path), remedy="check its path"
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Refusal(f"the {what} is no file", where=str(path), remedy="check its path")
        fcntl.flock(file, fcntl.LOCK_SH if flags == os.O_RDONLY else fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
