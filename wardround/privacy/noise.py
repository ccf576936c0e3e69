"""Random numbers that nobody outside a site can know: ChaCha20 with a 256-bit key from the operating system.

The key of a round is drawn afresh whenever a site takes part, so what the coordinator knows (the study's seed, the
round, the site's number) tells nothing about noise and samples. The stream is computed inside the compiled round (RFC
8439, tested against another implementation), about as quickly as JAX's own generator, whose keys have only 64 bits.
For tests the key can be derived from the study's seed instead; such noise protects nobody.

Gaussian numbers come from pairs of 32-bit words (Box and Muller 1958) and reach to 6.7 standard deviations. They are
floating-point numbers: attacks on their last bits (Mironov, CCS 2012) are not defended against here.
"""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from wardround.core.contracts import Array, Key, Tree

KEY_WORDS, NONCE_WORDS, BLOCK = 8, 3, 16
CONSTANT = np.frombuffer(b"expand 32-byte k", "<u4").astype(np.uint32)
ROUNDS = 20
HALF_STEP = np.float32(2.0**-33)


def secret_words(key: Key, *, seeded: bool) -> Array:
    """The 256-bit key of one site in one round; `seeded` ones follow from the study's seed, for tests only."""
    if seeded:
        return jax.random.bits(key, (KEY_WORDS,), jnp.uint32)
    # Asked with the round's key only so that each site of each round asks for itself.
    words: Array = _from_system(jax.random.key_data(key))
    return words


def _fill(context: Any, out: Any, *given: Any) -> None:
    np.copyto(np.asarray(out), np.frombuffer(os.urandom(4 * KEY_WORDS), np.uint32))


_from_system: Any = buffer_callback(
    _fill, jax.ShapeDtypeStruct((KEY_WORDS,), jnp.uint32), has_side_effect=True, vmap_method="sequential"
)


def stream(key: Array, nonce: Array, first: int, count: int) -> Array:
    """`count` words of the ChaCha20 stream of (key, nonce), from block `first` on; pieces must not overlap.

    First the first word of every block, then the second, and so on: turned into the usual order it would cost time.
    """
    blocks = -(-count // BLOCK)
    start = jnp.concatenate([jnp.asarray(CONSTANT), key, jnp.zeros(1, jnp.uint32), nonce])
    state = jnp.broadcast_to(start[:, None], (BLOCK, blocks))
    state = state.at[12].set(first + jnp.arange(blocks, dtype=jnp.uint32))

    def double_round(_: Array, rows: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b, c, d = _quarter_rounds(*rows)
        # Diagonals become columns by turning the rows.
        a, b, c, d = _quarter_rounds(a, jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0))
        return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)

    mixed = jax.lax.fori_loop(0, ROUNDS // 2, double_round, tuple(jnp.split(state, 4)))
    words = state + jnp.concatenate(mixed)
    return words.reshape(-1)[:count]


def _quarter_rounds(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    """Four quarter rounds side by side, one a column."""
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    return a, _rotate(b ^ c, 7), c, d


def _rotate(words: Array, bits: int) -> Array:
    return (words << jnp.uint32(bits)) | (words >> jnp.uint32(32 - bits))


def uniform(words: Array) -> Array:
    """Numbers between 0 and 1, never 0; small ones keep their precision, none exceeds 1 - 2^-24."""
    numbers = words.astype(jnp.float32) * jnp.float32(2.0**-32) + HALF_STEP
    return jnp.minimum(numbers, jnp.float32(1 - 2.0**-24))


def gaussian(words: Array) -> Array:
    """As many independent standard normal numbers as words; an even number of them."""
    radius, angle = jnp.split(words, 2)
    length = jnp.sqrt(-2 * jnp.log(radius.astype(jnp.float32) * jnp.float32(2.0**-32) + HALF_STEP))
    # The two high bits choose a quarter of the circle; within it, short series are exact to float32.
    quarter = angle >> jnp.uint32(30)
    within = (angle & jnp.uint32(2**30 - 1)).astype(jnp.float32) * jnp.float32(2.0**-30) - jnp.float32(0.5)
    x = within * jnp.float32(np.pi / 2)
    square = x * x
    sine = x * (1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square / 362880))))
    cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40320)))
    across = (quarter & jnp.uint32(1)) > 0
    sign = jnp.where((quarter & jnp.uint32(2)) > 0, -1.0, 1.0) * length
    return jnp.concatenate([sign * jnp.where(across, -sine, cosine), sign * jnp.where(across, cosine, sine)])


def noise_like(tree: Tree, key: Array, nonce: Array, first: int = 0) -> Tree:
    """A standard normal number for every number of the tree, from block `first` of the stream on."""
    leaves, structure = jax.tree.flatten(tree)
    sizes = [int(np.prod(jnp.shape(leaf))) for leaf in leaves]
    total = sum(sizes)
    numbers = gaussian(stream(key, nonce, first, total + total % 2))
    parts = jnp.split(numbers[:total], np.cumsum(sizes)[:-1])
    shaped = [part.reshape(jnp.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)
