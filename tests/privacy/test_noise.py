"""The secret stream against another implementation, and the numbers made from it against their distributions."""

import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from wardround.privacy.noise import BLOCK, gaussian, noise_like, secret_words, stream, uniform

NONCE = jnp.asarray([0, 0x4A000000, 0], jnp.uint32)
KEY = jnp.asarray(np.frombuffer(bytes(range(32)), "<u4"))


def in_usual_order(words: jax.Array) -> bytes:
    """Our words come word by word of all blocks; bytes of a stream come block by block."""
    return np.asarray(words).reshape(BLOCK, -1).T.astype("<u4").tobytes()


def test_the_block_of_rfc_8439() -> None:
    # Section 2.4.2: key 00 01 ... 1f, nonce 00 00 00 00 00 00 00 4a 00 00 00 00, counter 1; its first keystream block.
    expected = bytes.fromhex(
        "224f51f3401bd9e12fde276fb8631ded8c131f823d2c06e27e4fcaec9ef3cf78"
        "8a3b0aa372600a92b57974cded2b9334794cba40c63e34cdea212c4cf07d41b7"
    )
    assert in_usual_order(stream(KEY, NONCE, 1, BLOCK)) == expected


@pytest.mark.parametrize(("first", "blocks"), [(0, 1), (7, 300)])
def test_many_blocks_against_another_implementation(first: int, blocks: int) -> None:
    key, nonce = np.random.default_rng(1).bytes(32), np.random.default_rng(2).bytes(12)
    theirs = Cipher(algorithms.ChaCha20(key, struct.pack("<I", first) + nonce), None).encryptor()
    words = stream(
        jnp.asarray(np.frombuffer(key, "<u4")), jnp.asarray(np.frombuffer(nonce, "<u4")), first, blocks * BLOCK
    )
    assert in_usual_order(words) == theirs.update(bytes(64 * blocks))


def test_uniform_numbers_stay_between_their_ends() -> None:
    ends = np.asarray(uniform(jnp.asarray([0, 1, 2**31, 2**32 - 1], jnp.uint32)))
    # (word + 1/2) / 2^32, the last one held below 1.
    np.testing.assert_allclose(ends, [2.0**-33, 1.5 * 2.0**-32, 0.5, 1 - 2.0**-24], rtol=1e-7)


def test_gaussian_numbers_have_the_normal_distribution() -> None:
    numbers = np.asarray(gaussian(stream(KEY, NONCE, 0, 200_000)), np.float64)
    assert stats.kstest(numbers, "norm").pvalue > 0.01
    # The sum of squares is chi-square with as many degrees of freedom as numbers.
    assert 0.005 < stats.chi2.cdf(np.sum(numbers**2), len(numbers)) < 0.995
    cosines, sines = np.split(numbers, 2)
    assert abs(np.corrcoef(cosines, sines)[0, 1]) < 4 / np.sqrt(len(cosines))
    assert abs(np.corrcoef(cosines**2, sines**2)[0, 1]) < 4 / np.sqrt(len(cosines))


def test_gaussian_numbers_by_hand() -> None:
    # Radius word 2^31: u = 1/2, length sqrt(2 ln 2). Angle words at the middles of the four quarters of the circle.
    middles = np.asarray([2**29, 2**30 + 2**29, 2**31 + 2**29, 3 * 2**30 + 2**29], np.uint32)
    words = np.concatenate([np.full(4, 2**31, np.uint32), middles])
    length = np.sqrt(2 * np.log(2))
    got = np.asarray(gaussian(jnp.asarray(words)))
    np.testing.assert_allclose(got, length * np.array([1, 0, -1, 0, 0, 1, 0, -1]), atol=1e-6)


def test_noise_for_a_tree_uses_every_word_once() -> None:
    tree = {"a": jnp.zeros((3, 5)), "b": jnp.zeros(4), "c": jnp.zeros(())}
    noise = noise_like(tree, KEY, NONCE, 2)
    assert jax.tree.map(jnp.shape, noise) == jax.tree.map(jnp.shape, tree)
    numbers = np.concatenate([np.ravel(part) for part in jax.tree.leaves(noise)])
    np.testing.assert_array_equal(numbers, gaussian(stream(KEY, NONCE, 2, 20)))
    assert len(np.unique(numbers)) == 20


def test_another_key_nonce_or_block_is_another_noise() -> None:
    shape = jnp.zeros(1000)
    first = np.asarray(noise_like(shape, KEY, NONCE))
    for other in (
        noise_like(shape, KEY + 1, NONCE),
        noise_like(shape, KEY, NONCE + 1),
        noise_like(shape, KEY, NONCE, 1000),
    ):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.15


def test_secret_bits_are_fresh_each_time_and_for_each_site_and_seeded_ones_are_not() -> None:
    key = jax.random.key(5)
    draw = jax.jit(lambda key: secret_words(key, seeded=False))
    seen = {np.asarray(draw(key)).tobytes() for _ in range(20)}
    assert len(seen) == 20
    side_by_side = jax.jit(jax.vmap(lambda key: secret_words(key, seeded=False)))(jax.random.split(key, 4))
    assert len({row.tobytes() for row in np.asarray(side_by_side)}) == 4
    seeded = [np.asarray(secret_words(key, seeded=True)) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)
    assert not np.array_equal(seeded[0], secret_words(jax.random.key(6), seeded=True))
