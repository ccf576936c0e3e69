"""What a site answers: its weight, and everything else already multiplied by it."""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.contracts import Aggregator, Array, Message, Model, Params, Shard
from wardround.core.descent import CHUNK, batches
from wardround.core.errors import Refusal

Weights = Literal["samples", "uniform"]


def weight_of(shard: Shard, weights: Weights) -> Array:
    """How much a site counts: its patients, or one vote each; an empty site counts nothing."""
    rows = jnp.asarray(shard.rows).astype(jnp.float32)
    return rows if weights == "samples" else jnp.minimum(rows, 1.0)


def class_shares(shard: Shard, classes: int) -> Array:
    """The share of each class among the site's rows."""

    def body(index: Array, total: Array) -> Array:
        batch = shard.batch(0, index, CHUNK)
        return total + jnp.sum(jax.nn.one_hot(batch.y, classes) * batch.mask[:, None], axis=0)

    counts = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, jnp.zeros(classes))
    return counts / jnp.maximum(1, shard.rows)


def answer(
    model: Model, aggregator: Aggregator, params: Params, shard: Shard, weights: Weights, arrays: dict[str, Any]
) -> Message:
    """The message with these arrays, weighted, and with whatever else the aggregator needs to know."""
    if "class_shares" in aggregator.needs:
        outputs = jax.eval_shape(model.predict, params, shard.batch(0, 0, 1).x)
        if outputs.ndim != 2:
            raise Refusal(
                "this aggregator weighs sites by the classes that they hold, and the task has no classes",
                where="[aggregator]",
                remedy="choose another, such as weighted_mean",
            )
        arrays = {**arrays, "class_shares": class_shares(shard, outputs.shape[-1])}
    weight = weight_of(shard, weights)
    return Message({**trees.scale(arrays, weight), "weight": weight})


def side_by_side() -> Aggregator:
    """Hands the answers to the algorithm's server as they are, one row a site, and says which site each row is of."""
    return Aggregator(
        init=lambda template: (), reduce=lambda state, stack: (stack, state), linear=False, needs=("site",)
    )
