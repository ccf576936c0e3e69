"""Kashin's representation: spreads large arrays over somewhat more numbers, all of nearly the same size.

Lyubarskii and Vershynin, "Uncertainty principles and vector quantization", IEEE Transactions on Information Theory
2010; Caldas et al., "Expanding the Reach of Federated Learning by Reducing Client Resource Requirements", 2018. The
frame is the randomized Hadamard transform of the entries scattered over more slots. Each of `iterations` steps but the
last cuts the coefficients of what is left of x at |x| / sqrt(delta N), N the slots; the last one is not cut, so the
representation is exact. `spread` slots an entry, at least; these are sent, so spread also multiplies the bytes.
Loses nothing by itself: put quantize behind it. Costs about three times a Hadamard transform.
"""

from typing import Annotated

import jax.numpy as jnp

from wardround.core.bounds import Bound, Positive
from wardround.core.contracts import Array, Transform
from wardround.transforms.codec import SMALLEST, Codec, Direction, Smallest, coded
from wardround.transforms.rotation import (
    Block,
    block_sums,
    frame_for,
    is_filled,
    lay,
    pick,
    random_signs,
    rotate,
    rotate_back,
)

Spread = Annotated[float, Bound(low=1, high=4, open_low=True)]
Iterations = Annotated[int, Bound(low=1, high=20)]


def kashin(
    *,
    iterations: Iterations = 2,
    delta: Positive = 1.0,
    spread: Spread = 1.125,
    block: Block = 0,
    direction: Direction = "both",
    smallest: Smallest = SMALLEST,
) -> Transform:
    """Spreads large arrays evenly over more numbers before they are rounded (put quantize behind it)."""

    def encode(vector: Array, words: Array) -> dict[str, Array]:
        frame = frame_for(vector.shape[0], block, spread)
        signs = random_signs(words, frame)
        left, filled = lay(vector, frame), is_filled(frame)
        found = jnp.zeros((frame.block, frame.blocks), jnp.float32)
        for _ in range(iterations - 1):
            level = jnp.sqrt(block_sums(jnp.square(left)) / jnp.float32(delta * frame.block))
            cut = jnp.clip(rotate(left, signs), -level, level)
            found = found + cut
            left = left - filled * rotate_back(cut, signs)
        return {"spread": (found + rotate(left, signs)).reshape(-1)}

    def decode(parts: dict[str, Array], words: Array, entries: int) -> Array:
        frame = frame_for(entries, block, spread)
        laid = parts["spread"].reshape(frame.block, frame.blocks)
        return pick(rotate_back(laid, random_signs(words, frame)), frame)

    return coded("kashin", Codec(encode, decode), smallest=smallest, direction=direction, words="")
