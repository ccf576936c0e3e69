"""A masked answer on the wire: ring elements of 64 bits as they are, those of a narrower ring packed without gaps."""

from typing import Any

import numpy as np

from wardround.core.codes.bit_field import pack_words, packed_bytes, unpack_words
from wardround.core.contracts import Message
from wardround.privacy.secure_sum.masks import Ring
from wardround.privacy.secure_sum.messages import BadMessage
from wardround.privacy.secure_sum.session import RING_BITS, Session

VECTOR, PACKED = "vector", "packed"


def arrays_of(vector: Ring | None, ring_bits: int) -> dict[str, Any]:
    """What a site sends of a masked answer; nothing in the other steps."""
    if vector is None:
        return {}
    return {VECTOR: vector} if ring_bits == RING_BITS else {PACKED: pack_words(vector, ring_bits)}


def read_vector(message: Message, session: Session, site: str) -> Ring | None:
    """The masked answer; the length of a packed one is looked at before anything is unpacked."""
    if PACKED not in message.arrays:
        vector = message.arrays.get(VECTOR)
        return None if vector is None else np.asarray(vector)
    packed = np.asarray(message.arrays[PACKED])
    if session.ring_bits == RING_BITS or len(packed) != packed_bytes(session.entries, session.ring_bits):
        words = f"it sent {len(packed)} bytes, and {session.entries} numbers of {session.ring_bits} bits were agreed"
        raise BadMessage(site, words, step="mask")
    return unpack_words(packed, session.ring_bits, session.entries)
