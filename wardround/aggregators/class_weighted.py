"""Class-weighted mean: a site counts by how much of each class it holds, so that rare classes are heard.

After Ma, Zhao, Cai, Jia, "Fast-convergent federated learning with class-weighted aggregation", J. Systems Architecture
117, 2021, 102125. The text of the paper was not to be had; its abstract says that the weights of local models are
reallocated by their contributions to each class, in two strategies. The formulas are ours: with n_ic the patients of
class c at site i, a_ic = n_ic / sum_j n_jc, and a_i the mean of a_ic over the classes that occur.
"model": the mean of the answers with weights a_i. "layer": the same, but what belongs to class c in the last layer has
weights a_ic. With the same mix of classes at every site both are the weighted mean. Needs the class shares of every
site (which says more of a site than its size does) and all answers at once. Not robust.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from wardround.aggregators.stacks import content
from wardround.core import trees
from wardround.core.contracts import Aggregator, Message, Tree
from wardround.core.errors import Refusal

Strategy = Literal["model", "layer"]
SHARES = "class_shares"


def contributions(weights: jax.Array, shares: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(a_i, a_ic) of the sites; each sums to 1 over the sites. `shares` may be scaled by any factor a site."""
    sizes = jnp.sum(shares, axis=1, keepdims=True)
    counts = weights[:, None] * shares / jnp.where(sizes > 0, sizes, 1.0)
    totals = jnp.sum(counts, axis=0)
    by_class = counts / jnp.where(totals > 0, totals, 1.0)
    by_site = jnp.sum(by_class, axis=1) / jnp.maximum(jnp.sum(totals > 0), 1)
    # A class that nobody holds in this round says nothing about who should count.
    return by_site, jnp.where(totals > 0, by_class, by_site[:, None])


def layer_of(name: str) -> str:
    """ "dense_1" of "dense_1/kernel"; dots part names as well."""
    return name[: max(name.rfind("/"), name.rfind("."), 0)]


def class_axis(name: str, shape: tuple[int, ...], classes: int) -> int | None:
    """Which axis counts the classes: the last, or the first in the layout (classes, inputs) that has "weight"."""
    first_is = bool(shape) and shape[0] == classes
    if first_is and name.endswith("weight"):
        return 0
    if shape and shape[-1] == classes:
        return len(shape) - 1
    return 0 if first_is else None


def find_last_layer(shapes: dict[str, tuple[int, ...]], classes: int, last_layer: str) -> dict[str, int]:
    """Names of the last layer's arrays, each with its axis of classes; refuses rather than to guess."""
    layers: dict[str, dict[str, int | None]] = {}
    for name, shape in shapes.items():
        layers.setdefault(layer_of(name), {})[name] = class_axis(name, shape, classes)
    fit = {layer: axes for layer, axes in layers.items() if all(axis is not None for axis in axes.values())}
    if last_layer:
        fit = {layer: axes for layer, axes in fit.items() if layer == last_layer}
    if len(fit) != 1:
        found = "none" if not fit else "several: " + ", ".join(sorted(fit))
        raise Refusal(
            f"the layer that gives one number for each of the {classes} classes could not be identified; found {found}",
            where=f"aggregator class_weighted, strategy 'layer', last_layer '{last_layer}'",
            remedy=f"name one of the layers {', '.join(sorted(layers))} as last_layer, or use strategy 'model'",
        )
    return {name: axis for axes in fit.values() for name, axis in axes.items() if axis is not None}


def class_weighted(*, strategy: Strategy = "model", last_layer: str = "") -> Aggregator:
    """Mean of the sites' answers, weighted by how much of each class a site holds, so that rare classes are heard."""

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        arrays = content(answers)
        if SHARES not in arrays:
            raise Refusal(
                "the sites' answers do not contain their class shares",
                where="aggregator class_weighted",
                remedy="use an algorithm that sends them, such as fed_avg, on a classification, or another aggregator",
            )
        weights = jnp.asarray(answers.arrays["weight"], jnp.float32)
        present = weights > 0
        weights = jnp.where(present, weights, 0.0)
        divisor = jnp.where(present, weights, 1.0)

        def per_site(factors: jax.Array, leaf: jax.Array) -> jax.Array:
            return factors.reshape(factors.shape + (1,) * (leaf.ndim - factors.ndim))

        def unweighted(leaf: jax.Array) -> jax.Array:
            return jnp.where(per_site(present, leaf), leaf / per_site(divisor, leaf), 0.0)

        values = jax.tree.map(unweighted, arrays)
        by_site, by_class = contributions(weights, values[SHARES])

        def mean(leaf: jax.Array) -> jax.Array:
            return jnp.sum(per_site(by_site, leaf) * leaf, axis=0)

        def mean_by_class(leaf: jax.Array, axis: int) -> jax.Array:
            shape = [1] * leaf.ndim
            shape[0], shape[axis + 1] = by_class.shape
            return jnp.sum(by_class.reshape(shape) * leaf, axis=0)

        combined: dict[str, Any] = jax.tree.map(mean, values)
        combined[SHARES] = trees.divide_or_zero(jnp.tensordot(weights, values[SHARES], axes=1), jnp.sum(weights))
        if strategy == "layer":
            named = {key: tree for key, tree in values.items() if isinstance(tree, dict)}
            shapes = {name: leaf.shape[1:] for tree in named.values() for name, leaf in tree.items()}
            for name, axis in find_last_layer(shapes, by_class.shape[1], last_layer).items():
                for key, tree in named.items():
                    if name in tree:
                        combined[key][name] = mean_by_class(tree[name], axis)
        return Message({**combined, "weight": jnp.sum(weights)}), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False, needs=(SHARES,))
