"""Large arrays in a code of few bytes, and back: what every transform that compresses is made of.

An array of at least `smallest` floats is replaced by a small dictionary: the parts of its code, each under the name of
the transform ("quantize/codes"), the seed of what was drawn for it, and "form", an array without entries whose shape
tells the shape of what was coded. So a message says by itself how it is read, in a compiled program too, and whoever
receives it compares all shapes with those of the approved study before anything is allocated. Smaller arrays (biases,
weights of sites) are left alone: they would gain little, and cost accuracy.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.bounds import Bound
from wardround.core.chain import identity
from wardround.core.contracts import Array, Key, Message, Transform, Tree
from wardround.core.errors import Refusal

Direction = Literal["both", "down", "up"]
Smallest = Annotated[int, Bound(low=1)]
SMALLEST = 1024
"""Entries from which an array is worth a code of its own."""
FORM, SEED = "form", "seed"


class Codec(NamedTuple):
    """How one vector of floats becomes arrays with names, and those a vector of so many entries again."""

    encode: Callable[[Array, Array], dict[str, Array]]
    """(the vector, two random words) to the parts of the code; NaN among their floats where an entry is not finite."""
    decode: Callable[[dict[str, Array], Array, int], Array]
    """(the parts, the same words, the number of entries) to the vector."""


def coded(name: str, codec: Codec, *, smallest: int, direction: Direction, words: str) -> Transform:
    """A transform that sends large arrays in this code, in one direction or in both."""
    plain, down, up = identity(), direction != "up", direction != "down"

    def encode(message: Message, key: Key) -> Message:
        return Message(encode_tree(name, codec, message.arrays, key, smallest), message.meta)

    def decode(message: Message) -> Message:
        return Message(decode_tree(name, codec, message.arrays), message.meta)

    return plain._replace(
        down=(lambda state, message, key: encode(message, key)) if down else plain.down,
        receive=decode if down else plain.receive,
        up=(lambda received, answer, key: encode(answer, key)) if up else plain.up,
        release=(lambda state, message: decode(message)) if up else plain.release,
        coded=up,
        codes=frozenset(f"{way} {name}" for way, is_so in (("down", down), ("up", up)) if is_so),
        words=words,
    )


def is_large(leaf: Array, smallest: int) -> bool:
    """A single number, such as an answer's weight, never is: whoever adds the answers must be able to check it."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating)) and leaf.ndim > 0 and int(np.prod(leaf.shape)) >= smallest


def encode_tree(name: str, codec: Codec, tree: Tree, key: Key, smallest: int) -> Tree:
    """The nest with every large array in its code."""
    leaves, structure = jax.tree.flatten(tree)
    found = [
        encode_leaf(name, codec, leaf, jax.random.fold_in(key, index)) if is_large(leaf, smallest) else leaf
        for index, leaf in enumerate(map(jnp.asarray, leaves))
    ]
    return jax.tree.unflatten(structure, found)


def encode_leaf(name: str, codec: Codec, leaf: Array, key: Key) -> dict[str, Array]:
    words = jax.random.bits(key, (2,))
    parts = codec.encode(jnp.ravel(leaf).astype(jnp.float32), words)
    form = jnp.zeros((0, *leaf.shape), leaf.dtype)
    return {f"{name}/{part}": value for part, value in {**parts, SEED: words, FORM: form}.items()}


def decode_tree(name: str, codec: Codec, tree: Tree) -> Tree:
    """The nest with every array that has such a code as it was, up to what the code loses."""

    def is_code(node: Any) -> bool:
        return isinstance(node, dict) and f"{name}/{FORM}" in node

    def read(node: Any) -> Any:
        return decode_leaf(name, codec, node) if is_code(node) else node

    return jax.tree.map(read, tree, is_leaf=is_code)


def decode_leaf(name: str, codec: Codec, node: dict[str, Any]) -> Array:
    parts: dict[str, Array] = {key.removeprefix(f"{name}/"): jnp.asarray(value) for key, value in node.items()}
    form, words = parts.pop(FORM), parts.pop(SEED)
    entries = int(np.prod(form.shape[1:]))
    refuse_other_parts(name, codec, parts, entries)
    return codec.decode(parts, words, entries).reshape(form.shape[1:]).astype(form.dtype)


def refuse_other_parts(name: str, codec: Codec, parts: dict[str, Array], entries: int) -> None:
    """Refuse a code that is too short, too long or not of this kind; by shapes alone, nothing is computed."""
    vector, words = jax.ShapeDtypeStruct((entries,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.uint32)
    expected = jax.eval_shape(codec.encode, vector, words)
    if {part: (value.shape, value.dtype) for part, value in parts.items()} != {
        part: (value.shape, value.dtype) for part, value in expected.items()
    }:
        raise Refusal(
            f"a message packed by {name} does not have the bytes of {entries} numbers",
            where=f"transform {name}",
            remedy="compare the versions of wardround and the transforms on both sides",
        )


def lengths(entries: int, most: int) -> tuple[int, int]:
    """A vector cut into runs of at most so many entries: how many runs, and how long each is."""
    runs = max(1, -(-entries // most))
    return runs, -(-entries // runs)
