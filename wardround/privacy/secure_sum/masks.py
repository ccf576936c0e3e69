"""Masks: a short secret stretched to as many ring elements as a model has, and added to them modulo 2^64.

Two sites agree on a secret (`group`), make a key of it (HKDF-SHA256, RFC 5869; the session's digest is the salt, so
that study, round and model are bound in) and stretch the whole 256-bit key with AES-256 in counter mode (NIST SP
800-38A), which is about 1.5 times as fast as ChaCha20 where the processor has AES. Shares travel sealed with
ChaCha20-Poly1305 (RFC 8439) under a key that two sites agree on apart (X25519, RFC 7748). All of it is done by
`cryptography`; nothing here is a cipher of our own.

The stretching goes chunk by chunk for all masks together, so that a chunk stays in the processor's cache.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Ring = np.ndarray[Any, Any]
"""A vector of unsigned 64-bit integers; NumPy's arithmetic on them is modulo 2^64."""
KEY_BYTES = 32
NONCE_BYTES = 12
CHUNK = 1 << 15
"""Ring elements a time: 256 kB of mask."""
ZEROS = bytes(8 * CHUNK)
PROTOCOL = b"wardround secure sum 2"


def length_prefixed(*parts: bytes) -> bytes:
    """Parts with their lengths before them, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def digest(*parts: bytes) -> bytes:
    return sha256(length_prefixed(PROTOCOL, *parts)).digest()


def shared_secret(own: X25519PrivateKey, peer: bytes) -> bytes | None:
    """The secret of two sites; nothing where the other's public key is none (of low order)."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:
        return None


def derive_key(secret: bytes, session: bytes, *purpose: bytes) -> bytes:
    """A key for one purpose in one session, 256 bits."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=session, info=length_prefixed(PROTOCOL, *purpose)).derive(
        secret
    )


def stream(key: bytes) -> CipherContext:
    """The key stream of AES-256-CTR; every key is used for one mask only, so that the counter may begin at 0."""
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()


def apply_masks(vector: Ring, plus: Sequence[bytes], minus: Sequence[bytes]) -> Ring:
    """The vector with the masks of some keys added and those of others taken away; the vector itself is left alone."""
    result = np.array(vector, np.uint64)
    signed = [(stream(key), np.add) for key in plus] + [(stream(key), np.subtract) for key in minus]
    # Encryption may write up to a block more than it is given.
    room = bytearray(8 * CHUNK + 16)
    for begin in range(0, len(result), CHUNK):
        part = result[begin : begin + CHUNK]
        size = 8 * len(part)
        mask = np.frombuffer(room, "<u8", len(part))
        for source, combine in signed:
            source.update_into(memoryview(ZEROS)[:size], room)
            combine(part, mask, out=part)
    return result


def low_bits(vector: Ring, bits: int) -> Ring:
    """The elements modulo 2^bits: what is masked modulo 2^64 is masked modulo every smaller power of two, too."""
    return vector if bits == 64 else vector & np.uint64(2**bits - 1)


def signed_from(total: Ring, bits: int) -> Ring:
    """Elements modulo 2^bits as numbers with a sign, in a ring of 64 bits."""
    if bits == 64:
        return total
    up = np.uint64(64 - bits)
    moved = np.ascontiguousarray(total << up).view(np.int64) >> np.int64(64 - bits)
    return moved.view(np.uint64)


def seal(key: bytes, nonce: bytes, content: bytes, about: bytes) -> bytes:
    return ChaCha20Poly1305(key).encrypt(nonce, content, about)


def unseal(key: bytes, nonce: bytes, content: bytes, about: bytes) -> bytes | None:
    """What was sealed; nothing where it was sealed with another key, about something else, or was changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, content, about)
    except InvalidTag:
        return None
