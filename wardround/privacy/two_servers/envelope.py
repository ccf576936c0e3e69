"""A sealed envelope for the holder of a long-term key: whoever carries it can neither read nor change nor reuse it.

ECIES over P-256 as in SEC 1: a fresh key pair for each envelope, ECDH with the holder's key, HKDF-SHA256 (RFC 5869)
over the shared point with both public keys in the info, ChaCha20-Poly1305 (RFC 8439). The key is used once, so the
nonce is 0. `about` is bound in as associated data: study, round, model, sender. It does not say who sealed it: senders
sign. All of it is done by `cryptography`; nothing here is a cipher of our own.
"""

import os
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wardround.privacy.secure_sum.masks import KEY_BYTES, NONCE_BYTES, length_prefixed

CURVE = ec.SECP256R1()
POINT_BYTES = 65
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
PURPOSE = b"wardround envelope 1"
NONCE = bytes(NONCE_BYTES)


def seal_for(
    holder: ec.EllipticCurvePublicKey, content: bytes, about: bytes, draw: Callable[[int], bytes] = os.urandom
) -> bytes:
    """What only the holder can read: the fresh public key, then the sealed content."""
    # Eight bytes more than the order has, so that the remainder is as good as uniform.
    fresh = ec.derive_private_key(int.from_bytes(draw(KEY_BYTES + 8), "big") % (ORDER - 1) + 1, CURVE)
    point = encoded(fresh.public_key())
    key = derived_key(fresh.exchange(ec.ECDH(), holder), point, encoded(holder))
    return point + ChaCha20Poly1305(key).encrypt(NONCE, content, about)


def open_envelope(key: ec.EllipticCurvePrivateKey, envelope: bytes, about: bytes) -> bytes | None:
    """The content; nothing where it was sealed for somebody else, about something else, or was changed."""
    point, sealed = envelope[:POINT_BYTES], envelope[POINT_BYTES:]
    try:
        fresh = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)
        secret = derived_key(key.exchange(ec.ECDH(), fresh), point, encoded(key.public_key()))
        return ChaCha20Poly1305(secret).decrypt(NONCE, sealed, about)
    except (ValueError, InvalidTag):
        return None


def encoded(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def derived_key(secret: bytes, point: bytes, holder: bytes) -> bytes:
    info = length_prefixed(PURPOSE, point, holder)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)
