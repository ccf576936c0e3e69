"""The messages of a secure sum: what each holds, how it is signed, and how a faulty one is refused.

A message is plain JSON and at most one vector, so any transport can carry it. A site signs every message it writes with
its long-term key (Ed25519, or ECDSA as in its certificate); the signature covers the session, so that a message of
another study, round or attempt cannot be passed off as one of this. The coordinator's messages are not signed: the
channel tells who sends them, and what matters in them was signed by sites.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.masks import PROTOCOL, Ring, length_prefixed

SigningKey = Ed25519PrivateKey | ec.EllipticCurvePrivateKey
VerifyingKey = Ed25519PublicKey | ec.EllipticCurvePublicKey
COORDINATOR = "coordinator"
STEPS = ("advertise", "share", "check", "open", "mask", "agree", "reveal")
"""What a site does, one after the other; the coordinator's message bears the step that it asks for. `open` is asked
only of sites about whose shares somebody complained, and mostly of nobody."""
WORDS = ("step", "session", "sender", "content", "signature")
LONGEST_SIGNATURE = 256


class BadMessage(Refusal):
    """A message that cannot be right, and whose it was (or in whose name it came)."""

    def __init__(self, sender: str, what: str, *, step: str, remedy: str = "") -> None:
        self.sender = sender
        super().__init__(
            f"secure sum: {what}",
            where=f"from {sender}, step {step}",
            remedy=remedy or f"repeat the round without {sender}, and find out what is wrong there",
        )


@dataclass(frozen=True)
class SumMessage:
    """From a site to the coordinator, or back; `session` is the session's digest in hexadecimal."""

    step: str
    session: str
    sender: str
    content: Mapping[str, Any]
    vector: Ring | None = field(default=None, repr=False)
    signature: str = ""


def signed_bytes(message: SumMessage) -> bytes:
    """What a signature covers: all of the message but itself."""
    words = {"step": message.step, "session": message.session, "sender": message.sender, "content": message.content}
    text = json.dumps(words, sort_keys=True, separators=(",", ":")).encode()
    vector = b"" if message.vector is None else sha256(little_endian(message.vector).data).digest()
    return length_prefixed(PROTOCOL, text, vector)


def little_endian(vector: Ring) -> Ring:
    """The same bytes on every machine; no copy on the usual ones."""
    return np.ascontiguousarray(vector, "<u8")


def sign(message: SumMessage, key: SigningKey) -> SumMessage:
    content = signed_bytes(message)
    made = key.sign(content) if isinstance(key, Ed25519PrivateKey) else key.sign(content, ec.ECDSA(SHA256()))
    return SumMessage(message.step, message.session, message.sender, message.content, message.vector, made.hex())


def is_signed(message: SumMessage, key: VerifyingKey) -> bool:
    try:
        content, signature = signed_bytes(message), bytes.fromhex(message.signature)
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, content)
        else:
            key.verify(signature, content, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError, TypeError, RecursionError):  # the last two: contents that are no plain JSON
        return False
    return True


def to_json(message: SumMessage) -> dict[str, Any]:
    """The message without its vector, for the header of a message."""
    return {name: getattr(message, name) for name in WORDS}


def from_json(words: Any, vector: Ring | None = None) -> SumMessage:
    """A message as it came; its content is looked at by whoever it is for."""
    if not isinstance(words, Mapping) or set(words) != set(WORDS):
        raise BadMessage("unknown", "this is not a message of a secure sum", step="unknown")
    sender = words["sender"] if isinstance(words["sender"], str) else "unknown"
    texts = all(isinstance(words[name], str) for name in WORDS if name != "content")
    if not texts or not isinstance(words["content"], Mapping) or words["step"] not in STEPS:
        raise BadMessage(sender, "this is not a message of a secure sum", step="unknown")
    if len(words["signature"]) > LONGEST_SIGNATURE:
        raise BadMessage(sender, "the signature is too long", step=words["step"])
    if vector is not None and not (vector.dtype == np.dtype("<u8") and vector.ndim == 1):
        raise BadMessage(sender, f"the vector is of {vector.dtype}, not of 64-bit ring elements", step=words["step"])
    return SumMessage(words["step"], words["session"], sender, words["content"], vector, words["signature"])


# ---- reading contents ----


def read_entries(message: SumMessage, name: str) -> Mapping[str, Any]:
    """A part of the content that is an object by the names of sites."""
    part = message.content.get(name)
    if not isinstance(part, Mapping) or not all(isinstance(key, str) for key in part):
        raise BadMessage(message.sender, f"it has no list '{name}'", step=message.step)
    return part


def read_bytes(message: SumMessage, text: Any, size: int, what: str) -> bytes:
    """So many bytes, written in hexadecimal."""
    # Compared with its own spelling: fromhex would also take spaces and capitals, and one thing has one form here.
    if isinstance(text, str) and len(text) == 2 * size:
        try:
            content = bytes.fromhex(text)
        except ValueError:
            content = b""
        if content.hex() == text:
            return content
    raise BadMessage(message.sender, f"{what} is not {size} bytes in hexadecimal", step=message.step)


def require_fields(message: SumMessage, *names: str) -> None:
    if set(message.content) != set(names):
        raise BadMessage(message.sender, f"it does not hold exactly {', '.join(names)}", step=message.step)
