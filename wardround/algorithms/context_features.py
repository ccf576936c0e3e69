"""Context features: one common model that is also shown what kind of site a patient comes from.

Kairouz et al., "Advances and Open Problems in Federated Learning", 2019, section 3.3 (featurization); Mansour et al.,
"Three Approaches for Personalization with Applications to Federated Learning", 2020. Means of the site as features are
Mundlak's ("On the Pooling of Time Series and Cross Section Data", 1978). The context c of a site is the mean of every
input over its own training rows; the model is given x + cA instead of x, and the matrix A ("context/kernel") is learned
and averaged like all other parameters. It starts at 0, where the model is FedAvg's. For a linear model this equals one
more column for each input that holds the site's mean. A site that never took part uses the model with its own context;
it needs patients for that, but no outcomes.

Works with any model that gives derivatives by its inputs, so not with PyTorch modules. The size of a row is told from
the model's arrays; where it cannot be (convolutions), say `shape`. Images are flattened for their context. A has
inputs x inputs numbers; past `rank` inputs it is a product of two thin matrices, inputs x rank and rank x inputs, of
which the first starts at random and the second at 0. Costs this much more traffic than FedAvg, and one more pass over
the rows to find the mean. With fewer sites than inputs the contexts tell the sites apart: their baseline risks are
then fitted one by one, and say little about a new site.

The context never leaves its site, but a site's update of A is a multiple of it: who sees that update alone learns the
context up to a factor (use a secure sum). A's gradient is that of the loss, so a private model's noise does not cover
it. Inputs should be scaled: with means far from 0 the steps along A are large.
"""

from math import prod

import jax
import jax.numpy as jnp

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import (
    Aggregator,
    Algorithm,
    Array,
    Batch,
    Key,
    Message,
    Model,
    Params,
    Personal,
    Shard,
    Tree,
)
from wardround.core.descent import CHUNK, batches, descend, local_optimizer
from wardround.core.errors import Refusal

LABEL = "Common model that knows the site"
FULL, THIN, BACK, SHIFT = "context/kernel", "context/thin", "context/back", "context/shift"


def context_features(
    model: Model,
    aggregator: Aggregator,
    *,
    rank: Count = 64,
    shape: tuple[Count, ...] = (),
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """A common model that also sees the site's mean of every input (shape: of a row, where the model hides it)."""
    optimizer = local_optimizer(learning_rate, momentum)
    plain = fed_avg(model, aggregator, local_epochs=local_epochs, batch_size=batch_size)

    def init(params: Params, sites: int) -> Tree:
        if any(name.startswith("context/") for name in params):
            raise Refusal(
                "the model has a layer called 'context', a name that this algorithm uses itself",
                where="algorithm context_features",
                remedy="give the layer another name",
            )
        inputs = prod(shape) if shape else inputs_of(model, params)
        if inputs <= rank:
            return {**params, FULL: jnp.zeros((inputs, inputs))}
        # The same draw in every study: any directions will do, as long as all sites have the same.
        directions = jax.random.normal(jax.random.key(0), (inputs, rank)) / jnp.sqrt(inputs)
        return {**params, THIN: directions, BACK: jnp.zeros((rank, inputs))}

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        refuse_other_rows(common, shard)
        context = context_of(shard)

        def gradient(params: Params, batch: Batch, key: Key) -> Params:
            shift, back = jax.vjp(lambda own: shift_for(own, context), own_of(params))

            def loss(shift: Array) -> Array:
                return model.loss(inner_of(params), batch._replace(x=shift_inputs(batch.x, shift)), key)

            slope = model.gradient(inner_of(params), batch._replace(x=shift_inputs(batch.x, shift)), key)
            return {**slope, **back(jax.grad(loss)(shift))[0]}

        own = descend(gradient, optimizer, common, shard, key, batch_size=batch_size or None, passes=local_epochs)
        update = {"update": trees.subtract(own, common)}
        return answer(model, aggregator, inner_of(common), shard, weights, update), kept

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        """The common model, and by how much the site moves its inputs."""
        common: Params = message.arrays["params"]
        return {**inner_of(common), SHIFT: shift_for(own_of(common), context_of(shard))}

    def predict(params: Params, x: Array) -> Array:
        return model.predict(inner_of(params), shift_inputs(x, params[SHIFT]) if SHIFT in params else x)

    return plain._replace(init=init, client=client, predict=predict, personal=Personal(fit))


def own_of(params: Params) -> Params:
    """The arrays that make a shift of a context."""
    return {name: array for name, array in params.items() if name in (FULL, THIN, BACK)}


def inner_of(params: Params) -> Params:
    """The arrays of the model itself."""
    return {name: array for name, array in params.items() if name not in (FULL, THIN, BACK, SHIFT)}


def shift_for(own: Params, context: Array) -> Array:
    return context @ own[FULL] if FULL in own else context @ own[THIN] @ own[BACK]


def shift_inputs(x: Array, shift: Array) -> Array:
    return x + shift.reshape(x.shape[1:])


def context_of(shard: Shard) -> Array:
    """The mean of every input over the site's rows; 0 where it has none."""

    def body(index: Array, total: Array) -> Array:
        batch = shard.batch(0, index, CHUNK)
        x = jnp.asarray(batch.x, jnp.float32).reshape(CHUNK, -1)
        # What stands in padded rows belongs to other sites, and may be no number.
        return total + jnp.sum(jnp.where(batch.mask[:, None] > 0, x, 0.0), axis=0)

    inputs = prod(shard.x.shape[1:])
    total = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, jnp.zeros(inputs))
    mean: Array = trees.divide_or_zero(total, jnp.asarray(shard.rows).astype(jnp.float32))
    return mean


def inputs_of(model: Model, params: Params) -> int:
    """How many numbers a row has: the one size among those of the model's arrays that the model takes."""

    def taken(size: int) -> bool:
        try:
            jax.eval_shape(model.predict, params, jax.ShapeDtypeStruct((1, size), jnp.float32))
        except Exception:  # whatever a model does with rows it was not made for
            return False
        return True

    sizes = sorted({size for array in params.values() for size in jnp.shape(array)})
    fitting = [size for size in sizes if taken(size)]
    if len(fitting) != 1:
        raise Refusal(
            "the model does not show how many numbers a row has",
            where="algorithm context_features",
            remedy="say the shape of a row, such as shape = [28, 28]",
        )
    return fitting[0]


def refuse_other_rows(params: Params, shard: Shard) -> None:
    known = len(params[FULL] if FULL in params else params[THIN])
    rows = tuple(shard.x.shape[1:])
    if prod(rows) != known:
        raise Refusal(
            f"the context was made for rows of {known} numbers, and a row has the shape {list(rows)}",
            where="algorithm context_features",
            remedy=f"say shape = {list(rows)}",
        )
