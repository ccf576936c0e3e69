"""Numbers of a few bits packed inside a compiled program, and random words that every party draws alike."""

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.codes.bit_field import GROUP, bytes_of_rows, rows_of_bytes
from wardround.core.contracts import Array

SPACING = 0x9E3779B9
UNIT = 2.0**-24


def pack_bits(codes: Array, bits: int) -> Array:
    """Numbers from 0 to 2^bits - 1, bits from 1 to 32, as bytes."""
    rows = jnp.pad(codes.astype(jnp.uint32), (0, -codes.shape[0] % GROUP)).reshape(GROUP, -1)
    return jnp.concatenate([row.astype(jnp.uint8) for row in bytes_of_rows(rows, bits)])


def unpack_bits(packed: Array, bits: int, entries: int) -> Array:
    """The numbers again."""
    return jnp.concatenate(rows_of_bytes(packed.reshape(bits, -1).astype(jnp.uint32), bits))[:entries]


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
