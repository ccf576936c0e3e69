"""The largest entries only, with error feedback: what a site did not send is added to its next answer.

Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018; Karimireddy et al., "Error Feedback Fixes
SignSGD", ICML 2019. Of every large array the `fraction` of entries with the greatest size is sent, each with its place
in as few bits as places need. The rest stays with the site, across rounds and crashes, and is sent sooner or later;
`feedback` = false forgets it, and the mean is then wrong. Answers only: a model without its small entries is no model.
Put quantize behind it to round what is sent. Costs 4 bytes and a place for each entry that is sent, and at the site the
memory of one more model.
"""

from collections.abc import Sequence
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.bounds import Bound
from wardround.core.contracts import Array, Key, Message, Transform, Tree
from wardround.transforms.codec import SMALLEST, Codec, Smallest, coded, decode_tree, encode_tree, is_large
from wardround.transforms.random_bits import pack_bits, unpack_bits

TopFraction = Annotated[float, Bound(low=0, high=1, open_low=True)]


def top_k(*, fraction: TopFraction = 0.01, feedback: bool = True, smallest: Smallest = SMALLEST) -> Transform:
    """Sends the largest entries of large arrays; the rest is kept at the site and added to its next answer."""

    def encode(vector: Array, words: Array) -> dict[str, Array]:
        sizes = jnp.where(jnp.isnan(vector), jnp.inf, jnp.abs(vector))  # what is no number is sent, and noticed
        _, places = jax.lax.top_k(sizes, sent_entries(vector.shape[0], fraction))
        return {"values": vector[places], "places": pack_bits(places, place_bits(vector.shape[0]))}

    def decode(parts: dict[str, Array], words: Array, entries: int) -> Array:
        sent = sent_entries(entries, fraction)
        places = unpack_bits(parts["places"], place_bits(entries), sent)
        return jnp.zeros(entries, jnp.float32).at[places].set(parts["values"], mode="drop")

    codec = Codec(encode, decode)
    share = f"Of every large array only the largest {100 * fraction:.3g} % of the entries leave the site"
    words = f"{share}; the rest is kept there and added to its next answer." if feedback else f"{share}."
    plain = coded("top_k", codec, smallest=smallest, direction="up", words=words)
    if not feedback:
        return plain

    def init_carried(template: Message) -> Tree:
        large = [leaf for leaf in jax.tree.leaves(template.arrays) if is_large(leaf, smallest)]
        return tuple(jnp.zeros(leaf.shape, jnp.float32) for leaf in large)

    def up_carried(received: Message, answer: Message, carried: Tree, key: Key) -> tuple[Message, Tree]:
        leaves, structure = jax.tree.flatten(answer.arrays)
        large = [place for place, leaf in enumerate(leaves) if is_large(leaf, smallest)]
        wanted = trees.add(tuple(leaves[place] for place in large), tuple(carried))
        whole = jax.tree.unflatten(structure, replaced(leaves, large, wanted))
        code = encode_tree("top_k", codec, whole, key, smallest)
        heard = jax.tree.leaves(decode_tree("top_k", codec, code))
        return Message(code, answer.meta), trees.subtract(wanted, tuple(heard[place] for place in large))

    return plain._replace(init_carried=init_carried, up_carried=up_carried)


def replaced(leaves: list[Array], at: list[int], by: Sequence[Array]) -> list[Array]:
    found = list(leaves)
    for place, leaf in zip(at, by, strict=True):
        found[place] = leaf
    return found


def sent_entries(entries: int, fraction: float) -> int:
    return max(1, int(np.ceil(entries * fraction)))


def place_bits(entries: int) -> int:
    return max(1, (entries - 1).bit_length())
