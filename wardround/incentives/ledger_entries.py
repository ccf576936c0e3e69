"""What a ledger holds: its entries, and the form of its lines and head.

The chain itself is `wardround.core.journals.journal`'s. The times are what the signing site says, not proof.
"""

import math
import numbers as numeric
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, get_args

from wardround.core.errors import Refusal
from wardround.core.journals.journal import CHAIN_PATTERNS, ENTRY_FIELDS, Format
from wardround.core.journals.journal_head import Head, parse_head

Kind = Literal["joined", "answered", "chosen", "withdrew", "rewarded"]
# A signature of one sort can never be passed off as one of the other.
ENTRY_SEAL, HEAD_SEAL = b"wardround ledger entry\n", b"wardround ledger head\n"
SIGNATURE = re.compile(r"[0-9a-f]{128}")


@dataclass(frozen=True)
class LedgerEntry:
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
        if not has_zone(self.time):
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


def has_zone(time: object) -> bool:
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


FORMAT = Format(
    "ledger",
    lambda content: LedgerEntry(**content),
    "restore both files from a copy",
    {**ENTRY_FIELDS, "signature": str},
    {**CHAIN_PATTERNS, "signature": SIGNATURE},
)


def read_head(raw: bytes) -> Head:
    """A head as its file holds it; a ValueError says what is wrong."""
    head = parse_head(raw.removesuffix(b"\n"), SIGNATURE)
    if head.entries < 1 or not raw.endswith(b"\n"):
        raise ValueError("it is not as it was written here")
    return head
