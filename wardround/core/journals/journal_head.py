"""The head of a journal: how many entries it has and the last hash, signed, in a small file beside it.

A chain whose last lines were deleted is still a chain; its head shows what is missing. A head that somebody else keeps
is a witness: it shows even that a journal was put back together with its own old head.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wardround.core.errors import Refusal
from wardround.core.journals.journal import DIGEST, LONGEST, canonical_json, parse_object

HEAD_FIELDS: Mapping[str, type] = {"entries": int, "hash": str, "signature": str, "who": str}


@dataclass(frozen=True)
class Head:
    """How far a journal went, signed by `who`."""

    entries: int
    hash: str
    who: str
    signature: str

    def signed_bytes(self, seal: bytes) -> bytes:
        """What the signature is over; the `seal` tells one kind of journal from another."""
        return seal + canonical_json({"entries": self.entries, "hash": self.hash, "who": self.who})

    def to_bytes(self) -> bytes:
        return canonical_json(asdict(self))


def parse_head(raw: bytes, signature: re.Pattern[str]) -> Head:
    """A head as `to_bytes` gave it; a ValueError says what is wrong."""
    return Head(**parse_object(raw, HEAD_FIELDS, {"hash": DIGEST, "signature": signature}))


def head_path(path: Path) -> Path:
    """Where the head of the journal at `path` lies."""
    return path.with_name(path.name + ".head")


def load_head(path: Path, parse: Callable[[bytes], Head], remedy: str) -> Head | None:
    """The head beside the journal at `path`, or nothing where there is none; refused where it cannot be read."""
    try:
        with open(head_path(path), "rb") as file:
            return parse(file.read(LONGEST))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise Refusal(f"the head cannot be read: {problem}", where=str(head_path(path)), remedy=remedy) from None


def head_problems(name: str, head: Head, hashes: Sequence[str], journal: str, *, behind: str = "") -> list[str]:
    """What a head shows to be wrong with the chain of `hashes`; `journal` is what the file is called.

    With `behind`, an explanation, the head has to cover all of the chain.
    """
    whole = len(hashes) - 1
    if head.entries > whole:
        return [f"{name} names {head.entries} entries and the {journal} has {whole}: its end is missing"]
    if head.entries < 0 or hashes[head.entries] != head.hash:
        return [f"{name} names another entry {head.entries} than the {journal} holds: history was rewritten"]
    if behind and head.entries < whole:
        return [f"{name} covers {head.entries} of {whole} entries: {behind}"]
    return []
