"""Randomized Hadamard transform: rotates large arrays, so that what is rounded or left out afterwards costs less.

Konečný et al., "Federated Learning: Strategies for Improving Communication Efficiency", 2016; Suresh et al.,
"Distributed Mean Estimation with Limited Communication", ICML 2017. Loses nothing and saves nothing by itself: put
subsample or quantize behind it. A message carries the seed of the signs. Done in blocks of 4,096 entries (smaller ones
for vectors below 32,768 entries), so padding adds an eighth at most; `block` sets another size.
"""

from wardround.core.contracts import Array, Transform
from wardround.transforms.codec import SMALLEST, Codec, Direction, Smallest, coded
from wardround.transforms.rotation import Block, frame_for, lay, pick, random_signs, rotate, rotate_back


def hadamard(*, block: Block = 0, direction: Direction = "both", smallest: Smallest = SMALLEST) -> Transform:
    """Rotates large arrays before they are rounded or thinned (put subsample or quantize behind it)."""

    def encode(vector: Array, words: Array) -> dict[str, Array]:
        frame = frame_for(vector.shape[0], block)
        return {"rotated": rotate(lay(vector, frame), random_signs(words, frame)).reshape(-1)}

    def decode(parts: dict[str, Array], words: Array, entries: int) -> Array:
        frame = frame_for(entries, block)
        laid = parts["rotated"].reshape(frame.block, frame.blocks)
        return pick(rotate_back(laid, random_signs(words, frame)), frame)

    return coded("hadamard", Codec(encode, decode), smallest=smallest, direction=direction, words="")
