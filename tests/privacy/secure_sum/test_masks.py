"""The ciphers are those of the standards, and masks cancel."""

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.stats import chi2

from wardround.privacy.secure_sum.masks import (
    CHUNK,
    PROTOCOL,
    apply_masks,
    derive_key,
    length_prefixed,
    seal,
    shared_secret,
    stream,
    unseal,
)

# RFC 7748, section 6.1: two private keys, the public one of each, and what they agree on.
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
AGREED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_two_sites_agree_as_in_rfc_7748():
    alice, bob = (X25519PrivateKey.from_private_bytes(bytes.fromhex(one)) for one in (ALICE, BOB))
    assert alice.public_key().public_bytes_raw().hex() == ALICE_PUBLIC
    assert shared_secret(alice, bytes.fromhex(BOB_PUBLIC)).hex() == AGREED
    assert shared_secret(bob, bytes.fromhex(ALICE_PUBLIC)).hex() == AGREED
    # A point of low order would make every secret 0.
    assert shared_secret(alice, bytes(32)) is None


def by_hand(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF written out from RFC 5869, section 2, with the standard library's HMAC."""
    extracted = hmac.digest(salt, secret, hashlib.sha256)
    block, output = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(extracted, block + info + bytes([counter]), hashlib.sha256)
        output += block
    return output[:length]


def test_keys_are_derived_as_in_rfc_5869():
    # Appendix A.1 shows that the version written out here is right; ours has its own info and must equal it.
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert by_hand(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), 42).hex() == expected
    key = derive_key(b"secret", b"s" * 32, b"pair mask", b"a", b"b")
    assert key == by_hand(b"secret", b"s" * 32, length_prefixed(PROTOCOL, b"pair mask", b"a", b"b"), 32)
    assert len(key) == 32
    # Another session, purpose or pair: another key. Lengths are part of it, so that (ab, c) is not (a, bc).
    others = {
        derive_key(b"secret", b"t" * 32, b"pair mask", b"a", b"b"),
        derive_key(b"secret", b"s" * 32, b"own mask", b"a", b"b"),
        derive_key(b"secret", b"s" * 32, b"pair mask", b"ab", b""),
        key,
    }
    assert len(others) == 4


def test_the_mask_is_aes_256_in_counter_mode():
    # Key 0, counters 0, 1, 2: the hash key, the tag of the empty text and the ciphertext of a zero block in test cases
    # 13 and 14 of the GCM specification (McGrew and Viega), which encrypts with the counters 1 and 2.
    blocks = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738bcea7403d4d606b6e074ec5d3baf39d18"
    mask = apply_masks(np.zeros(6, np.uint64), [bytes(32)], [])
    assert mask.astype("<u8").tobytes().hex() == blocks
    # Every bit of the 256-bit key matters.
    assert all(apply_masks(mask, [], [bytes(i) + b"\x80" + bytes(31 - i)]).any() for i in range(32))


def test_shares_are_sealed_as_in_rfc_8439():
    # Section 2.8.2.
    key, nonce = bytes(range(0x80, 0xA0)), bytes.fromhex("070000004041424344454647")
    about = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    sealed = seal(key, nonce, text, about)
    assert sealed.hex() == (
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
        "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b6116" + "1ae10b594f09e26a7e902ecbd0600691"
    )
    assert unseal(key, nonce, sealed, about) == text
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    assert unseal(key, nonce, changed, about) is None
    assert unseal(key, nonce, sealed, about + b"!") is None
    assert unseal(bytes(32), nonce, sealed, about) is None


@pytest.mark.parametrize("size", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
def test_masks_are_one_stream_whatever_the_chunks_and_cancel(size):
    vector = np.random.default_rng(size).integers(0, 2**64, size, np.uint64)
    before = vector.copy()
    plus, minus = [b"a" * 32, b"b" * 32], [b"c" * 32]
    hidden = apply_masks(vector, plus, minus)
    a, b, c = (np.frombuffer(stream(key).update(bytes(8 * size)), "<u8") for key in (*plus, *minus))
    np.testing.assert_array_equal(hidden, vector + a + b - c)
    np.testing.assert_array_equal(apply_masks(hidden, minus, plus), vector)
    np.testing.assert_array_equal(vector, before)


def test_masked_bytes_look_like_noise_even_where_the_vector_is_constant():
    # 2^20 bytes in 256 bins: the statistic of noise is below the quantile except once in a million runs; the key is
    # fixed, so the test is not a game of chance. The unmasked bytes fail by far.
    vector = np.full(2**17, 12345, np.uint64)

    def statistic(values) -> float:
        counts = np.bincount(np.frombuffer(values.tobytes(), np.uint8), minlength=256)
        expected = counts.sum() / 256
        return float(((counts - expected) ** 2 / expected).sum())

    limit = chi2.ppf(1 - 1e-6, 255)
    assert statistic(vector) > 100 * limit
    assert chi2.ppf(1e-6, 255) < statistic(apply_masks(vector, [b"k" * 32], [])) < limit
    assert statistic(apply_masks(vector, [b"k" * 32], [b"l" * 32])) < limit
