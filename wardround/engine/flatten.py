"""Many small arrays as one: handing an array to several devices costs the same however large it is."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array, Tree


class Form(NamedTuple):
    """How to take a packed nest apart again; can be looked up in a cache."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], str], ...]


def form_of(tree: Tree) -> Form:
    """The form of a nest of arrays, also of abstract ones."""
    leaves, structure = jax.tree.flatten(tree)
    return Form(structure, tuple((tuple(np.shape(leaf)), str(leaf.dtype)) for leaf in leaves))


def pack(tree: Tree) -> dict[str, Array]:
    """One vector for every kind of number in the nest."""
    kinds: dict[str, list[Array]] = {}
    for leaf in jax.tree.leaves(tree):
        kinds.setdefault(str(leaf.dtype), []).append(jnp.ravel(leaf))
    return {kind: jnp.concatenate(parts) for kind, parts in kinds.items()}


def unpack(packed: dict[str, Array], form: Form) -> Tree:
    """The nest again; the last axis of the packed vectors is taken apart, others stay in front."""
    places = dict.fromkeys(packed, 0)
    leaves = []
    for shape, kind in form.leaves:
        size = int(np.prod(shape))
        vector = packed[kind][..., places[kind] : places[kind] + size]
        leaves.append(vector.reshape(*vector.shape[:-1], *shape))
        places[kind] += size
    return jax.tree.unflatten(form.structure, leaves)
