"""The stacked answers of a round as one matrix with a row a site, and back: what every robust aggregator works on.

Shapes are fixed when the round is compiled, so empty seats stay in the matrix: `present` tells who counts. A seat whose
weight is not a positive number, or whose answer holds NaN or infinity, does not count, whatever else it holds.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array, Message

BLOCK = 1024
"""Columns worked on at a time: with a hundred sites such a block stays in the processor's cache."""
FAR = 1e12
"""Larger entries are cut to this, so that squares and their sums stay finite in single precision."""


class Stack(NamedTuple):
    """Answers without their weights. `values` has the shape (slots, columns); rows that do not count are 0."""

    values: jax.Array
    weights: jax.Array
    """0 where the row does not count."""
    present: jax.Array

    @property
    def sites(self) -> jax.Array:
        """How many sites count; known only when the round runs."""
        return jnp.sum(self.present, dtype=jnp.int32)

    @property
    def width(self) -> int:
        """Columns of one block; the number of columns is a multiple of it."""
        return min(BLOCK, self.values.shape[1])


def content(message: Message) -> dict[str, Any]:
    """All arrays of an answer but its weight."""
    return {name: tree for name, tree in message.arrays.items() if name != "weight"}


def as_matrix(arrays: dict[str, Any], slots: int) -> jax.Array:
    """Arrays stacked along the first axis as (slots, columns), filled up with zeros to whole blocks."""
    parts = [jnp.reshape(leaf, (slots, -1)).astype(jnp.float32) for leaf in jax.tree.leaves(arrays)]
    columns = sum(part.shape[1] for part in parts)
    fill = max(1 - columns, 0) if columns <= BLOCK else -columns % BLOCK
    return jnp.concatenate([*parts, jnp.zeros((slots, fill), jnp.float32)], axis=1)


def as_arrays(row: Array, like: dict[str, Any]) -> dict[str, Any]:
    """A row of the matrix in the shapes of `like`, which is given without the axis of sites."""
    leaves, structure = jax.tree.flatten(like)
    result, start = [], 0
    for leaf in leaves:
        dtype = leaf.dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.float32
        result.append(jnp.reshape(row[start : start + leaf.size], leaf.shape).astype(dtype))
        start += leaf.size
    return jax.tree.unflatten(structure, result)


def open_stack(message: Message) -> Stack:
    """Answers of one round, each divided by its weight."""
    weights = jnp.asarray(message.arrays["weight"], jnp.float32)
    matrix = as_matrix(content(message), weights.shape[0])
    present = (weights > 0) & jnp.isfinite(weights) & jnp.all(jnp.isfinite(matrix), axis=1)
    divisor = jnp.where(present, weights, 1.0)[:, None]
    values = jnp.where(present[:, None], jnp.clip(matrix / divisor, -FAR, FAR), 0.0)
    return Stack(values, jnp.where(present, weights, 0.0), present)


def close_stack(message: Message, stack: Stack, row: Array, fewest: int = 1) -> Message:
    """The combined answer; zeros and weight 0, as if nobody had answered, when fewer than `fewest` sites count."""
    enough = stack.sites >= fewest
    like = jax.eval_shape(lambda arrays: jax.tree.map(lambda leaf: leaf[0], arrays), content(message))
    arrays = as_arrays(jnp.where(enough, row, 0.0), like)
    return Message({**arrays, "weight": jnp.where(enough, jnp.sum(stack.weights), 0.0)})


def combine(stack: Stack, coefficients: Array) -> jax.Array:
    """The sum of the rows, each times its coefficient."""
    return jnp.matmul(coefficients, stack.values, precision=jax.lax.Precision.HIGHEST)


def distances_to(stack: Stack, point: Array) -> jax.Array:
    """How far each row lies from a point; summed block by block, which keeps the digits of long rows."""
    squares = jnp.square(stack.values - point).reshape(len(stack.values), -1, stack.width)
    return jnp.sqrt(jnp.sum(jnp.sum(squares, axis=2), axis=1))
