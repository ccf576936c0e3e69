"""Subsampling: of 1/fraction neighbouring numbers one is sent; the seed of the draw travels instead of its place.

Konečný et al., "Federated Learning: Strategies for Improving Communication Efficiency", 2016. The receiver draws the
same places again, multiplies what came by the size of its group and fills the others with 0, so the mean is right: the
squared error is 1/fraction - 1 times the vector's square on average (somewhat more where 1/fraction is not whole: 1.6
at 0.4). Put hadamard or kashin before it, so that no
single large number can be lost, and quantize behind it. Thins updates well and models badly: the default direction is
"up".
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.bounds import Bound
from wardround.core.contracts import Array, Transform
from wardround.transforms.codec import SMALLEST, Codec, Direction, Smallest, coded
from wardround.transforms.random_bits import random_words

Fraction = Annotated[float, Bound(low=0, high=1, open_low=True)]


def subsample(*, fraction: Fraction = 0.5, direction: Direction = "up", smallest: Smallest = SMALLEST) -> Transform:
    """Sends a fraction of the numbers of large arrays, chosen by a seed; the mean stays right."""

    def encode(vector: Array, words: Array) -> dict[str, Array]:
        if not vector.shape[0]:
            return {"kept": vector}
        place, size = chosen_places(vector.shape[0], fraction, words)
        return {"kept": vector[place] * size}

    def decode(parts: dict[str, Array], words: Array, entries: int) -> Array:
        if not entries:
            return parts["kept"]
        place, _ = chosen_places(entries, fraction, words)
        blank = jnp.zeros(entries, jnp.float32)
        return blank.at[place].set(parts["kept"], indices_are_sorted=True, unique_indices=True)

    told = f"Of the numbers of large arrays {100 * fraction:.3g} % are sent, drawn anew each round."
    words = told if direction != "down" else ""
    return coded("subsample", Codec(encode, decode), smallest=smallest, direction=direction, words=words)


def kept_entries(entries: int, fraction: float) -> int:
    return max(1, int(np.ceil(entries * fraction)))


def chosen_places(entries: int, fraction: float, words: Array) -> tuple[Array, Array]:
    """One place of each group, and how many places the group has; groups differ by one at most."""
    kept = kept_entries(entries, fraction)
    size, larger = divmod(entries, kept)
    group = jax.lax.iota(jnp.int32, kept)
    first = group * size + jnp.minimum(group, larger)
    sizes = jnp.where(group < larger, size + 1, size)
    # A remainder favours the first places by less than a group's size in 2^32.
    inside = (random_words(words, kept) % sizes.astype(jnp.uint32)).astype(jnp.int32)
    return first + inside, sizes.astype(jnp.float32)
