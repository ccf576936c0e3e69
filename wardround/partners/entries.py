"""What a ledger holds: its entries, lines and head, and the one way in which each is written, hashed and read.

JSON with sorted keys, no spaces and ASCII only, so that equal entries are equal bytes; reading refuses anything that is
not written so. The times are what the signing site says, not proof.
"""

import hashlib
import json
import math
import numbers as numeric
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from wardround.core.errors import Refusal

Kind = Literal["joined", "answered", "chosen", "withdrew", "rewarded"]
ROOT = "0" * 64
"""What the first line gives as the hash before it."""
LONGEST = 1 << 20
"""Bytes in a line, so that a damaged file cannot ask for all memory."""
# A signature of one sort can never be passed off as one of the other.
ENTRY_SEAL, HEAD_SEAL = b"wardround ledger entry\n", b"wardround ledger head\n"
DIGEST, SIGNATURE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{128}")


@dataclass(frozen=True)
class Entry:
    """One event, as the site `who` signs it; `phase` is a round's number or the name of a phase before training.

    What concerns several sites stands in `numbers` under their names: the payer's "rewarded" holds each site's cents.
    """

    who: str
    study: str
    phase: int | str
    kind: Kind
    numbers: Mapping[str, float]
    time: str

    def __post_init__(self) -> None:
        for name in ("who", "study"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise Refusal(f"an entry of the ledger needs a {name}", remedy=f"give {name} as text")
        where = f"site {self.who}"
        round_number = isinstance(self.phase, int) and not isinstance(self.phase, bool) and 0 <= self.phase < 2**63
        if not round_number and not (isinstance(self.phase, str) and self.phase.strip()):
            raise Refusal("an entry needs its round (0 or more) or the name of its phase", where=where)
        if self.kind not in get_args(Kind):
            raise Refusal(f"{self.kind!r} is no kind of entry", where=where, remedy=f"use {', '.join(get_args(Kind))}")
        if not zoned(self.time):
            raise Refusal(
                f"the time {self.time!r} cannot be read", where=where, remedy="write it like 2031-05-01T12:00:00+00:00"
            )
        if not isinstance(self.numbers, Mapping):
            raise Refusal("the numbers of an entry are names with a number each", where=where)
        plain = {name: plain_number(name, value, where) for name, value in self.numbers.items()}
        object.__setattr__(self, "numbers", MappingProxyType(plain))

    def content(self) -> dict[str, Any]:
        """The entry as JSON holds it."""
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "numbers": dict(self.numbers)}


@dataclass(frozen=True)
class Head:
    """How far the ledger went when `who` appended, signed; worth keeping, as a witness against a rollback."""

    entries: int
    hash: str
    who: str
    signature: str


class Line(NamedTuple):
    """One line of the file."""

    entry: Entry
    hash: str
    number: int
    previous: str
    signature: str


def zoned(time: object) -> bool:
    """Whether this is an ISO 8601 time that says its zone."""
    try:
        return isinstance(time, str) and datetime.fromisoformat(time).tzinfo is not None
    except ValueError:
        return False


def plain_number(name: object, value: object, where: str) -> int | float:
    """A number that JSON can hold and give back unchanged."""
    if isinstance(name, str) and not isinstance(value, bool):
        if isinstance(value, numeric.Integral) and -(2**63) <= int(value) < 2**63:
            return int(value)
        if isinstance(value, numeric.Real) and not isinstance(value, numeric.Integral) and math.isfinite(value):
            return float(value)
    raise Refusal(f"{name!r} is {value!r}, which a ledger cannot hold", where=where, remedy="give a finite number")


def canonical(value: object) -> bytes:
    """The one way to write a JSON value: keys sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def chained(previous: str, entry: Entry) -> str:
    """The hash of an entry and, through the hash before, of everything above it."""
    return hashlib.sha256(bytes.fromhex(previous) + canonical(entry.content())).hexdigest()


def head_message(entries: int, digest: str, who: str) -> bytes:
    return HEAD_SEAL + canonical({"entries": entries, "hash": digest, "who": who})


def parsed(raw: bytes, fields: Mapping[str, type]) -> dict[str, Any]:
    """An object with exactly these fields, written canonically; a ValueError says what is wrong."""
    try:
        value = json.loads(raw.decode("ascii"))
        unchanged = canonical(value) == raw
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON as the ledger writes it") from None
    if not unchanged or not isinstance(value, dict) or set(value) != set(fields):
        raise ValueError("it is not written as the ledger writes it")
    for name, sort in fields.items():
        form = {"hash": DIGEST, "previous": DIGEST, "signature": SIGNATURE}.get(name)
        if type(value[name]) is not sort or (form and not form.fullmatch(value[name])):
            raise ValueError(f"its {name} is malformed")
    return value


def read_line(raw: bytes) -> Line:
    value = parsed(raw, {"entry": dict, "hash": str, "number": int, "previous": str, "signature": str})
    try:
        return Line(**{**value, "entry": Entry(**value["entry"])})
    except (Refusal, TypeError):
        raise ValueError("its entry is malformed") from None


def read_head(raw: bytes) -> Head:
    head = Head(**parsed(raw.removesuffix(b"\n"), {"entries": int, "hash": str, "who": str, "signature": str}))
    if head.entries < 1 or not raw.endswith(b"\n"):
        raise ValueError("it is not written as the ledger writes it")
    return head
