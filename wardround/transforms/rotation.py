"""The randomized Hadamard transform in blocks: spreads what a vector says evenly over its entries.

Every entry gets a random sign, then each block of 2^k entries goes through the fast Walsh-Hadamard transform, divided
by the root of its length: a rotation, which leaves lengths and angles as they are. Blocks instead of the whole vector
keep the numbers in the processor's cache and need hardly any padding. Additions and subtractions of pairs in a fixed
order, so every processor finds the same bits.
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np

from wardround.core.bounds import Bound
from wardround.core.contracts import Array
from wardround.transforms.random_bits import mix, random_words

BLOCK = 4096
LEAST_BLOCK, LEAST_BLOCKS = 64, 8
Block = Annotated[int, Bound(low=0, high=2**24)]
"""Entries of a block, rounded up to a power of two; 0 leaves the choice to the rule in `frame_for`."""


class BlockFrame(NamedTuple):
    """How a vector is laid into blocks: `filled` of the `block` slots of each of `blocks` blocks hold an entry."""

    entries: int
    block: int
    blocks: int
    filled: int

    @property
    def slots(self) -> int:
        return self.block * self.blocks


def frame_for(entries: int, block: int = 0, spread: float = 1.0) -> BlockFrame:
    """The frame with at least `spread` slots for each entry.

    Left to itself a block has 4,096 slots, or fewer where the vector would not fill eight of them; never below 64.
    """
    wanted = int(np.ceil(entries * spread))
    size = 1 << max(0, (block or BLOCK) - 1).bit_length()
    if not block:
        size = max(LEAST_BLOCK, min(size, 1 << max(0, (wanted // LEAST_BLOCKS).bit_length() - 1)))
    size = min(size, 1 << max(0, wanted - 1).bit_length())
    blocks = -(-wanted // size)
    return BlockFrame(entries, size, blocks, size if spread == 1 else -(-entries // blocks))


def slots_of(frame: BlockFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Which slots of a block hold an entry: scattered, since zeros at the end would only repeat the transform."""
    if frame.filled == frame.block:
        return np.arange(frame.block)
    order = np.argsort(np.asarray(mix(np.arange(frame.block, dtype=np.uint32))), kind="stable")
    return np.sort(order[: frame.filled])


def lay(vector: Array, frame: BlockFrame) -> Array:
    """The entries in their slots, zeros in the others: an array of (slots of a block, blocks)."""
    rows = jnp.pad(vector, (0, frame.filled * frame.blocks - frame.entries)).reshape(frame.filled, frame.blocks)
    if frame.filled == frame.block:
        return rows
    from_row = np.full(frame.block, frame.filled)
    from_row[slots_of(frame)] = np.arange(frame.filled)
    return jnp.pad(rows, ((0, 1), (0, 0)))[from_row]


def is_filled(frame: BlockFrame) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """1 for the slots of a block that hold an entry, 0 for the others, in a column."""
    found = np.zeros((frame.block, 1), np.float32)
    found[slots_of(frame)] = 1
    return found


def pick(laid: Array, frame: BlockFrame) -> Array:
    """The entries out of their slots."""
    rows = laid if frame.filled == frame.block else laid[slots_of(frame)]
    return rows.reshape(-1)[: frame.entries]


def random_signs(words: Array, frame: BlockFrame) -> Array:
    """1 or -1 for every slot."""
    bits = random_words(words, frame.slots).reshape(frame.block, frame.blocks)
    return jnp.where(bits >> 31 == 1, -1.0, 1.0).astype(jnp.float32)


def rotate(laid: Array, signs: Array) -> Array:
    """Signs, then the transform of every block."""
    return transform_blocks(laid * signs) * jnp.float32(laid.shape[0] ** -0.5)


def rotate_back(laid: Array, signs: Array) -> Array:
    return transform_blocks(laid) * jnp.float32(laid.shape[0] ** -0.5) * signs


def transform_blocks(laid: Array) -> Array:
    """The Walsh-Hadamard transform along the first axis, two steps at a time: half as many ways through memory."""
    size, step, values = laid.shape[0], 1, laid
    while 4 * step <= size:
        a, b, c, d = (values.reshape(size // (4 * step), 4, step, -1)[:, place] for place in range(4))
        sums = a + b, a - b, c + d, c - d
        pairs = [sums[0] + sums[2], sums[1] + sums[3], sums[0] - sums[2], sums[1] - sums[3]]
        values = jnp.stack(pairs, axis=1).reshape(size, -1)
        step *= 4
    if step < size:
        a, b = (values.reshape(size // (2 * step), 2, step, -1)[:, place] for place in range(2))
        values = jnp.stack([a + b, a - b], axis=1).reshape(size, -1)
    return values


def block_sums(laid: Array) -> Array:
    """The sum of every block, in an order that is the same on every processor; the slots are a power of two."""
    values = laid
    while values.shape[0] > 1:
        half = values.shape[0] // 2
        values = values[:half] + values[half:]
    return values[0]
