"""The signed end of an audit log, and the other side's signature under it: witnesses against a rollback.

A head is the number of entries and the last hash of somebody's log, signed with the owner's own key (ECDSA over P-256).
The other side checks it, countersigns it and keeps the last one: a log that later ends earlier, or holds another hash
there, was rolled back, even by its owner.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.journals.journal import LONGEST, canonical_json, parse_object
from wardround.core.journals.journal_head import Head, load_head, parse_head
from wardround.deploy.trust.certificates import Key

Keys = Mapping[str, Sequence[ec.EllipticCurvePublicKey]]
"""The public keys that each party has, or had before it renewed them."""
SIGNATURE = re.compile(r"(?:[0-9a-f]{2}){8,80}")
HEAD_BYTES = 512
"""A head fills one sector of a disk, so that it is replaced in one piece."""
RESTORE = (
    "restore both files from a backup, or move both to a safe place so that a new log begins; "
    "studies approved before are then not answered any more"
)
# A signature of one sort can never be passed off as one of the other.
HEAD_SEAL, COUNTER_SEAL = b"wardround audit head\n", b"wardround audit countersignature\n"


@dataclass(frozen=True)
class Countersigned:
    """A head that another party has seen and signed too: a witness against a rollback."""

    head: Head
    by: str
    signature: str

    @property
    def message(self) -> bytes:
        return COUNTER_SEAL + canonical_json({"by": self.by, "head": asdict(self.head)})

    def content(self) -> dict[str, Any]:
        return {"by": self.by, "head": asdict(self.head), "signature": self.signature}


def sign(key: Key, message: bytes) -> str:
    return key.sign(message, ec.ECDSA(hashes.SHA256())).hex()


def sign_head(entries: int, digest: str, who: str, key: Key) -> Head:
    unsigned = Head(entries, digest, who, "")
    return Head(entries, digest, who, sign(key, unsigned.signed_bytes(HEAD_SEAL)))


def countersign(head: Head, by: str, key: Key) -> Countersigned:
    """The other side's signature under a head; whether the head may be believed is `witness`'s to say."""
    return Countersigned(head, by, sign(key, Countersigned(head, by, "").message))


def head_signature_problem(keys: Keys, head: Head) -> str:
    """What is wrong with the signature of a head, or nothing."""
    return signature_problem(keys, head.who, head.signature, head.signed_bytes(HEAD_SEAL))


def countersignature_problem(keys: Keys, seen: Countersigned) -> str:
    """What is wrong with either signature of a countersigned head, or nothing."""
    wrong = signature_problem(keys, seen.by, seen.signature, seen.message)
    return wrong or head_signature_problem(keys, seen.head)


def signature_problem(keys: Keys, who: str, signature: str, message: bytes) -> str:
    """What is wrong with a signature, or nothing."""
    for key in keys.get(who, ()):
        try:
            key.verify(bytes.fromhex(signature), message, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            continue
        return ""
    return f"the signature is not by {who!r}" if who in keys else f"signed as {who!r}, whose key is not known here"


def read_head(raw: bytes) -> Head:
    """A head as its file holds it, padding included; a ValueError says what is wrong."""
    head = parse_head(raw.rstrip(b" \n"), SIGNATURE)
    if raw != head_bytes(head) or head.entries < 0:
        raise ValueError("it was changed")
    return head


def head_bytes(head: Head) -> bytes:
    return head.to_bytes().ljust(HEAD_BYTES - 1) + b"\n"


def parse_head_json(content: Any) -> Head:
    """A head that came in a message; a ValueError says what is wrong."""
    return parse_head(canonical_json(content), SIGNATURE)


def parse_countersigned(content: Any) -> Countersigned:
    """What `Countersigned.content` gave, from a message or file; a ValueError says what is wrong."""
    value = parse_object(canonical_json(content), {"by": str, "head": dict, "signature": str}, {"signature": SIGNATURE})
    return Countersigned(parse_head_json(value["head"]), value["by"], value["signature"])


def load_log_head(path: Path) -> Head | None:
    """The head beside the log at `path`, or nothing where there is none."""
    return load_head(path, read_head, RESTORE)


def read_witness(path: Path) -> Countersigned:
    """A countersigned head from a file."""
    try:
        with open(path, "rb") as file:
            return parse_countersigned(json.loads(file.read(LONGEST)))
    except OSError as problem:
        raise Refusal(
            f"the countersigned head cannot be read: {problem.strerror}", where=str(path), remedy="check the path"
        ) from None
    except (ValueError, RecursionError) as problem:
        raise Refusal(
            f"this is not a countersigned head: {problem}", where=str(path), remedy="ask the other side for it again"
        ) from None


def witness(path: Path, head: Head, keys: Keys, by: str, key: Key) -> Countersigned:
    """Check the head of somebody else's log against the one kept at `path`, countersign it and keep it there.

    Refuses a head that its owner did not sign, and one that goes back behind what was countersigned before.
    """
    wrong = head_signature_problem(keys, head)
    before = read_witness(path).head if path.exists() else None
    if not wrong and before is not None:
        if before.who != head.who:
            wrong = f"it belongs to {head.who!r}, but the one kept here belongs to {before.who!r}"
        elif head.entries < before.entries or (head.entries == before.entries and head.hash != before.hash):
            wrong = f"it was rolled back to entry {head.entries}, and entry {before.entries} was countersigned already"
    if wrong:
        raise Refusal(
            f"the head of an audit log is not countersigned: {wrong}",
            where=head.who,
            remedy="ask its owner to run `wardround audit verify`",
        )
    seen = countersign(head, by, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, canonical_json(seen.content()) + b"\n")
    return seen
