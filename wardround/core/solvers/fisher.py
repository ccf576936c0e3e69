"""What rows say about a model: which way they would change it, and how surely (their score and Fisher information).

The information is the expected one: each row's gradient for every outcome, weighted by how likely the model holds that
outcome to be. So it depends on the features and on the model, not on the outcomes, and is never negative. Under the
model's own risks the mean gradient of the data is 0, so what is left of it is that of a penalty (l2), told apart.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.contracts import Array, Batch, Key, Model, Params, Shard
from wardround.core.descent import CHUNK, batches

Flatten = Callable[[Params], Array]


class MeanInformation(NamedTuple):
    """Means over a site's rows, in the numbers that a flattened gradient has.

    Of a regression, all but the spread are in units of a residual: divided by the variance of the outcome around its
    prediction they are those of the likelihood (once, and the slope and the penalty too). Of classes they are already.
    """

    slope: Array
    """The gradient of the loss of the data alone; minus the score."""
    penalty: Array
    bend: Array
    spread: Array
    """The mean squared residual of a regression; 1 for classes."""
    behind: Array
    """How many patients are behind the slope and behind the bend (Kish's number: the square of the sum of what each
    adds, in length, by the sum of the squares). A model that is sure of all patients but one makes it 1."""


def mean_information(
    model: Model, params: Params, shard: Shard, key: Key, flatten: Flatten, *, size: int = CHUNK
) -> MeanInformation:
    """Of the site's rows at this model, in chunks of `size` rows; all 0 for an empty site."""

    def gradient(x: Array, y: Array) -> Array:
        return flatten(model.gradient(params, Batch(x[None], y[None], jnp.ones(1)), key))

    def of_classes(x: Array, y: Array, predicted: Array) -> tuple[Array, Array, Array, Array]:
        each = jax.vmap(lambda outcome: gradient(x, outcome))(jnp.arange(predicted.shape[0], dtype=y.dtype))
        penalty = predicted @ each
        return gradient(x, y) - penalty, penalty, jnp.sqrt(predicted)[:, None] * (each - penalty), jnp.ones(())

    def of_value(x: Array, y: Array, predicted: Array) -> tuple[Array, Array, Array, Array]:
        penalty = gradient(x, predicted)
        # The gradient of a squared error is linear in the residual: this is that of the prediction itself.
        unit = (penalty - gradient(x, predicted + 1)) / 2
        return (predicted - y) * unit, penalty / 2, unit[None], jnp.square(predicted - y)

    def body(index: Array, total: MeanInformation) -> MeanInformation:
        batch = shard.batch(0, index, size)
        predicted = model.predict(params, batch.x)
        one = of_value if predicted.ndim == 1 else of_classes
        slope, penalty, roots, spread = jax.vmap(one)(jnp.asarray(batch.x), jnp.asarray(batch.y), predicted)
        there = batch.mask > 0
        rows = jnp.where(there[:, None, None], roots, 0.0).reshape(-1, roots.shape[-1])
        adds = jnp.stack([jnp.sum(jnp.square(slope), axis=1), jnp.sum(jnp.square(roots), axis=(1, 2)) ** 2])
        lengths = jnp.where(there, jnp.sqrt(adds), 0.0)
        found = MeanInformation(
            jnp.sum(jnp.where(there[:, None], slope, 0.0), axis=0),
            jnp.sum(jnp.where(there[:, None], penalty, 0.0), axis=0),
            rows.T @ rows,
            jnp.sum(jnp.where(there, spread, 0.0)),
            jnp.stack([jnp.sum(lengths, axis=1), jnp.sum(jnp.square(lengths), axis=1)]),
        )
        return MeanInformation(*trees.add(tuple(total), tuple(found)))

    wide = jax.eval_shape(flatten, params).shape[0]
    start = MeanInformation(jnp.zeros(wide), jnp.zeros(wide), jnp.zeros((wide, wide)), jnp.zeros(()), jnp.zeros((2, 2)))
    sums = jax.lax.fori_loop(0, batches(shard.longest, size), body, start)
    length, square = sums.behind
    rows = jnp.asarray(shard.rows).astype(jnp.float32)
    slope, penalty, bend, spread = trees.divide_or_zero(tuple(sums[:-1]), rows)
    behind = jnp.where(square > 0, jnp.square(length) / jnp.where(square > 0, square, 1.0), 0.0)
    return MeanInformation(slope, penalty, bend, spread, behind)


def flat(params: Params) -> Array:
    """All numbers of a model, or of its gradient, one after the other."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])


def like(template: Params, numbers: Array) -> Params:
    """The model whose `flat` these numbers are."""
    leaves, form = jax.tree.flatten(template)
    parts, at = [], 0
    for leaf in leaves:
        size = 1
        for length in jnp.shape(leaf):
            size *= length
        parts.append(jnp.reshape(numbers[at : at + size], jnp.shape(leaf)))
        at += size
    found: Params = jax.tree.unflatten(form, parts)
    return found
