"""Fits a model to all rows of a site until nothing is left to gain: L-BFGS over full passes.

Liu & Nocedal, "On the limited memory BFGS method for large scale optimization", 1989, with the line search of optax.
For models whose loss is convex (a linear predictor), where the end does not depend on the start. A pull of the weights
towards 0, worth `ridge` patients, keeps the end finite where the rows are separable: scikit-learn's C is 1 / ridge.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from wardround.core import trees
from wardround.core.contracts import Array, Key, Model, Params, Shard
from wardround.core.descent import batches

PORTION = 1024
"""Rows a time; an algorithm that fits declares it as its largest batch."""
ENOUGH = 1e-5
"""Length of the slope of the mean loss below which nothing is left to gain."""


class _Search(NamedTuple):
    params: Params
    memory: Any
    slope: Array
    step: Array


def is_linear(params: Params) -> bool:
    """Whether the model is one layer of weights and biases, so that its loss is convex."""
    return set(params) <= {"dense_0/kernel", "dense_0/bias"}


def fit_fully(model: Model, params: Params, shard: Shard, key: Key, *, ridge: float, most_steps: int) -> Params:
    """The parameters after at most so many steps, fewer where the slope has vanished."""
    rows = jnp.maximum(shard.rows.astype(jnp.float32), 1.0)
    optimizer = optax.lbfgs()

    def loss(at: Params) -> Array:
        def body(index: Array, total: Array) -> Array:
            batch = shard.batch(0, index, PORTION)
            return total + model.loss(at, batch, key) * jnp.sum(batch.mask)

        weights = {name: array for name, array in at.items() if name.rsplit("/", 1)[-1] != "bias"}
        return jax.lax.fori_loop(0, batches(shard.longest, PORTION), body, jnp.float32(0)) / rows + (
            ridge / 2 / rows
        ) * trees.squared_norm(weights)

    def slope(at: Params) -> Params:
        def body(index: Array, total: Params) -> Params:
            batch = shard.batch(0, index, PORTION)
            return trees.add(total, trees.scale(model.gradient(at, batch, key), jnp.sum(batch.mask)))

        total = jax.lax.fori_loop(0, batches(shard.longest, PORTION), body, trees.zeros(at))
        pull = {
            name: jnp.zeros_like(array) if name.rsplit("/", 1)[-1] == "bias" else ridge * array
            for name, array in at.items()
        }
        return trees.scale(trees.add(total, pull), 1 / rows)

    # A loop of unknown length has no derivative of its own: the slope is summed up like the loss.
    value = jax.custom_vjp(loss)
    value.defvjp(lambda at: (loss(at), at), lambda at, out: (trees.scale(slope(at), out),))
    value_and_slope = optax.value_and_grad_from_state(value)

    def go_on(search: _Search) -> Array:
        return (search.step < most_steps) & (search.slope > ENOUGH)

    def step(search: _Search) -> _Search:
        now, toward = value_and_slope(search.params, state=search.memory)
        updates, memory = optimizer.update(toward, search.memory, search.params, value=now, grad=toward, value_fn=value)
        after: Any = optax.apply_updates(search.params, updates)
        return _Search(after, memory, jnp.sqrt(trees.squared_norm(toward)), search.step + 1)

    begun = _Search(params, optimizer.init(params), jnp.float32(jnp.inf), jnp.int32(0))
    found: Params = jax.lax.while_loop(go_on, step, begun).params
    return trees.choose(shard.rows > 0, found, params)
