"""How a site takes its steps: mini-batch descent over its own rows, shared by all algorithms.

Steps past the end of a site (it was batched with a longer one) leave model and optimizer state alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from wardround.core import trees
from wardround.core.contracts import Array, Batch, Key, Params, Shard

Gradient = Callable[[Params, Batch, Key], Params]

Carry = tuple[Params, optax.OptState]

CHUNK = 64
"""Rows a time when a gradient over all rows is summed up."""


def batches(rows: Array | int, size: int) -> Array | int:
    """How many batches of `size` it takes to see all rows."""
    return (rows + size - 1) // size


def steps(shard: Shard, batch_size: int | None, passes: int) -> Array | int:
    """Steps this very site takes in a round; `batch_size=None` means all rows at once."""
    per_pass = jnp.minimum(shard.rows, 1) if batch_size is None else batches(shard.rows, batch_size)
    return per_pass * passes


def full_gradient(gradient: Gradient, params: Params, shard: Shard, key: Key) -> Params:
    """The mean gradient over all rows of the site, summed up in chunks so that its shape does not matter."""

    def body(index: Array, total: Params) -> Params:
        batch = shard.batch(0, index, CHUNK)
        part = gradient(params, batch, jax.random.fold_in(key, index))
        return trees.add(total, trees.scale(part, jnp.sum(batch.mask)))

    total = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, trees.zeros(params))
    return trees.divide_or_zero(total, shard.rows.astype(jnp.float32))


def descend(
    gradient: Gradient,
    optimizer: optax.GradientTransformation,
    params: Params,
    shard: Shard,
    key: Key,
    *,
    batch_size: int | None,
    passes: int,
) -> Params:
    """The model after `passes` passes over the site's rows, one optimizer step a batch."""
    start = (params, optimizer.init(params))
    return descend_on(gradient, optimizer, start, shard, key, batch_size=batch_size, passes=passes)[0]


def descend_on(
    gradient: Gradient,
    optimizer: optax.GradientTransformation,
    start: Carry,
    shard: Shard,
    key: Key,
    *,
    batch_size: int | None,
    passes: int,
) -> Carry:
    """The same from a model and an optimizer's state, as a site keeps them from round to round, to both."""
    per_pass = 1 if batch_size is None else batches(shard.longest, batch_size)

    def step(visit: Array | int, within: Array, carry: Carry) -> Carry:
        params, memory = carry
        # Numbered by the site's own steps, so that its draws do not depend on the site it was batched with.
        own = 1 if batch_size is None else batches(shard.rows, batch_size)
        step_key = jax.random.fold_in(key, visit * own + within)
        if batch_size is None:
            active = shard.rows > 0
            slope = full_gradient(gradient, params, shard, step_key)
        else:
            active = within * batch_size < shard.rows
            slope = gradient(params, shard.batch(visit, within, batch_size), step_key)
        updates, moved = optimizer.update(slope, memory, params)
        return trees.choose(active, (optax.apply_updates(params, updates), moved), (params, memory))

    def one_pass(visit: Array | int, carry: Carry) -> Carry:
        return jax.lax.fori_loop(0, per_pass, partial(step, visit), carry)

    if passes == 1:
        return one_pass(0, start)
    return jax.lax.fori_loop(0, passes, one_pass, start)


def local_optimizer(learning_rate: float, momentum: float) -> optax.GradientTransformation:
    """Descent, with momentum for all but running statistics.

    A mean that follows its batches with momentum swings past them, and a variance below zero.
    """
    plain = optax.sgd(learning_rate, momentum=momentum or None)
    if not momentum:
        return plain

    def update(slope: Any, memory: optax.OptState, params: Any = None) -> tuple[Any, optax.OptState]:
        moved, memory = plain.update(slope, memory, params)
        return {**moved, **{name: -learning_rate * slope[name] for name in running_statistics(slope)}}, memory

    return optax.GradientTransformation(plain.init, update)


def running_statistics(params: Params) -> list[str]:
    """The arrays `mean` and `var` of every layer that has both, as those of batch normalization are named."""
    layers = [name.removesuffix("/mean") for name in params if name.endswith("/mean")]
    return [f"{layer}/{part}" for layer in layers if f"{layer}/var" in params for part in ("mean", "var")]
