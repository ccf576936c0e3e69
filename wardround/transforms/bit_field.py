"""Whole numbers of a few bits each, packed into bytes without gaps, and random words from a seed.

Eight numbers of q bits become q bytes. The first of each eight stand together, then the second ones, and so on: long
rows instead of groups of eight, which a compiled program goes through quickly.
"""

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array

GROUP = 8
SPACING = 0x9E3779B9
UNIT = 2.0**-24


def packed_bytes(entries: int, bits: int) -> int:
    """Bytes that so many numbers take."""
    return bits * -(-entries // GROUP)


def pack_bits(codes: Array, bits: int) -> Array:
    """Numbers from 0 to 2^bits - 1, bits from 1 to 32, as bytes."""
    rows = jnp.pad(codes.astype(jnp.uint32), (0, -codes.shape[0] % GROUP)).reshape(GROUP, -1)
    packed = []
    for byte in range(bits):
        value = jnp.zeros(rows.shape[1], jnp.uint32)
        for place in range(GROUP):
            shift = place * bits - 8 * byte
            if -bits < shift < 8:
                value = value | (rows[place] << shift if shift >= 0 else rows[place] >> -shift)
        packed.append((value & 0xFF).astype(jnp.uint8))
    return jnp.concatenate(packed)


def unpack_bits(packed: Array, bits: int, entries: int) -> Array:
    """The numbers again."""
    rows = packed.reshape(bits, -1).astype(jnp.uint32)
    found = []
    for place in range(GROUP):
        value = jnp.zeros(rows.shape[1], jnp.uint32)
        for byte in range(bits):
            shift = 8 * byte - place * bits
            if -8 < shift < bits:
                value = value | (rows[byte] << shift if shift >= 0 else rows[byte] >> -shift)
        found.append(value & (2**bits - 1))
    return jnp.concatenate(found)[:entries]


def random_words(words: Array, count: int, offset: int = 0) -> Array:
    """32 random bits for each of so many entries, the same wherever they are computed.

    A mixing function of multiplications and shifts (Wellons' lowbias32, twice, with a seed word before each): far
    quicker than a cipher, and nothing here has to be secret.
    """
    value = jax.lax.iota(jnp.uint32, count) + jnp.uint32(offset)
    return mix(mix(value * jnp.uint32(SPACING) ^ words[0]) ^ words[1])


def mix(value: Array) -> Array:
    """Also for NumPy's arrays, so that a choice can be made before a program is compiled."""
    value = (value ^ (value >> 16)) * np.uint32(0x7FEB352D)
    value = (value ^ (value >> 15)) * np.uint32(0x846CA68B)
    return value ^ (value >> 16)


def random_shares(words: Array, count: int, offset: int = 0) -> Array:
    """Numbers from 0 up to, but not including, 1."""
    return (random_words(words, count, offset) >> 8).astype(jnp.float32) * UNIT
