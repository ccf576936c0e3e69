"""Arithmetic on nests of arrays, so that an algorithm reads like its paper."""

from typing import Any

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array, Tree


def add(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(lambda p, q: p + q, a, b)


def subtract(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(lambda p, q: p - q, a, b)


def scale(a: Tree, factor: Array | float) -> Tree:
    return jax.tree.map(lambda p: p * factor, a)


def zeros(a: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, a)


def choose(condition: Array, a: Tree, b: Tree) -> Tree:
    """a where the scalar condition holds, else b; NaN in the one not chosen does no harm."""
    return jax.tree.map(lambda p, q: jnp.where(condition, p, q), a, b)


def squared_norm(a: Tree) -> Array:
    return sum((jnp.sum(jnp.square(p)) for p in jax.tree.leaves(a)), jnp.zeros(()))


def divide_or_zero(a: Tree, by: Array) -> Tree:
    """a / by, and 0 where by is 0 (a round in which nobody answered moves nothing)."""
    safe = jnp.where(by == 0, 1.0, by)
    return jax.tree.map(lambda p: jnp.where(by == 0, jnp.zeros_like(p), p / safe), a)


def copy(a: Tree) -> Tree:
    return jax.tree.map(jnp.array, a)


def repeat(a: Tree, times: int) -> Tree:
    """a as often as said, along a first axis."""
    return jax.tree.map(lambda p: jnp.broadcast_to(p, (times, *jnp.shape(p))), a)


def nbytes(a: Tree) -> int:
    """Bytes of the arrays, also of abstract ones (`jax.eval_shape`)."""
    return sum(int(p.size) * p.dtype.itemsize for p in jax.tree.leaves(a))


def all_finite(a: Tree) -> Array:
    """Whether there is no NaN and no infinity; one pass of sums, since both survive a sum."""
    total: Any = sum((jnp.sum(p.astype(jnp.float32)) for p in jax.tree.leaves(a)), jnp.zeros(()))
    return jnp.isfinite(total)


def finite_or_zero(a: Tree) -> Tree:
    """a, with 0 in place of every NaN and infinity."""
    return jax.tree.map(lambda p: jnp.where(jnp.isfinite(p), p, jnp.zeros_like(p)), a)
