"""Model interpolation: each site mixes the predictions of the common model with those of a model of its own.

Mansour et al., "Three Approaches for Personalization with Applications to Federated Learning", 2020, section 5
(MAPPER): a site predicts with share * own + (1 - share) * common, and chooses its share from a grid. Here the common
model learns as in FedAvg and the own one as in training alone, not through the mixture as in the paper: all that leaves
a site then comes from the model's own gradient, which is where a private model adds its noise. The share is chosen by
cross-validation: `folds` further models learn at the site, each without a part of its rows, which it then predicts.
The common model has seen these rows among everybody's, so the choice leans a little towards it. With `caution` above 0
the share is the smallest that is not worse than the best by more than so many standard errors. Measured (made-up triage
at six hospitals of 120 patients, mean AUC): where all are alike, caution 1 gains 0.002 and saves the rare bad choice
that costs 0.02; where they are of two kinds it loses 0.004 to 0.01. So the best share is the default, as in the paper.
It is the best by log loss: the area under the ROC curve can be better with the common model alone.
Costs no traffic beyond FedAvg's, but folds + 2 times its work and room for folds + 1 models at each site; none of them
leaves it, nor does the share.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights
from wardround.core.bounds import Bound, Count, CountOrAll, Momentum, NotNegative, Positive, Share
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
from wardround.core.descent import CHUNK, Gradient, batches, descend, local_optimizer
from wardround.core.errors import Refusal
from wardround.core.order import mix_bits
from wardround.core.overlap import pixel_losses
from wardround.core.quality import right_probability

LABEL = "Common and own model mixed"
TINY = 1e-7
"""Smallest probability of which a logarithm is taken."""


def model_interpolation(
    model: Model,
    aggregator: Aggregator,
    *,
    grid: tuple[Share, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    folds: Annotated[int, Bound(low=2)] = 4,
    caution: NotNegative = 0.0,
    own_learning_rate: Positive = 0.1,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """A site mixes the common model's predictions with its own model's, in a share it finds by cross-validation."""
    if not grid:
        raise Refusal("the list of shares is empty", where="grid", remedy="give at least one, such as [0.5]")
    shares = np.sort(np.asarray(grid, np.float32))  # from the common model up: of equals the first is taken
    optimizer = local_optimizer(own_learning_rate, momentum)
    plain = fed_avg(
        model,
        aggregator,
        learning_rate=learning_rate,
        local_epochs=local_epochs,
        batch_size=batch_size,
        momentum=momentum,
        weights=weights,
    )

    def init_client(params: Params) -> Tree:
        many = jax.tree.map(lambda a: jnp.broadcast_to(a, (folds, *jnp.shape(a))), params)
        return {"own": params, "without": many}

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        size = batch_size or None
        said, _ = plain.client(message, (), shard, key)
        here = jax.random.fold_in(key, 1)
        own = descend(model.gradient, optimizer, kept["own"], shard, here, batch_size=size, passes=local_epochs)

        def without(fold: Array, params: Params) -> Params:
            """One more pass of the model that never sees this fold."""
            gradient = gradient_without(model.gradient, shard, fold, folds, size)
            return descend(gradient, optimizer, params, shard, here, batch_size=size, passes=local_epochs)

        return said, {"own": own, "without": jax.vmap(without)(jnp.arange(folds), kept["without"])}

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        """Both models, and the share of the grid that does best, with caution, on rows the own side did not see."""
        common: Params = message.arrays["params"]

        def body(index: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            batch = shard.batch(0, index, CHUNK)
            fold, rows = fold_of(batch.x, folds), jnp.arange(CHUNK)
            without = jax.tree.map(jnp.asarray, kept["without"])
            unseen = jax.vmap(lambda params: model.predict(params, batch.x))(without)[fold, rows]
            theirs = model.predict(common, batch.x)
            losses = jax.vmap(lambda share: row_losses(interpolate(unseen, theirs, share), batch.y))(
                jnp.asarray(shares)
            )
            # Against the first share: differences are small, and so are the rounding errors of their squares.
            apart = jnp.where(batch.mask > 0, losses - losses[0], 0.0)
            return so_far[0] + jnp.sum(apart, axis=1), so_far[1] + apart @ apart.T

        nothing = (jnp.zeros(len(shares)), jnp.zeros((len(shares), len(shares))))
        sums, products = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, nothing)
        chosen = first_adequate(sums, products, shard.rows, caution)
        return {"common": common, "own": kept["own"], "share": jnp.asarray(shares)[chosen]}

    def predict(params: Params, x: Array) -> Array:
        if set(params) != {"common", "own", "share"}:
            return model.predict(params, x)
        return interpolate(model.predict(params["own"], x), model.predict(params["common"], x), params["share"])

    return plain._replace(init_client=init_client, client=client, predict=predict, personal=Personal(fit))


def first_adequate(sums: Array, products: Array, rows: Array | int, caution: float) -> Array:
    """The first share whose mean loss is within `caution` standard errors of the smallest.

    From the sums over rows of the losses with every share, and of their products in pairs: the error is that of the
    mean difference between two shares over the same rows.
    """
    best, count = jnp.argmin(sums), jnp.maximum(1, rows)
    mean = (sums - sums[best]) / count
    squares = (jnp.diagonal(products) - 2 * products[best] + products[best, best]) / count
    error = jnp.sqrt(jnp.maximum(0.0, squares - jnp.square(mean)) / jnp.maximum(1, rows - 1))
    return jnp.argmax(mean <= caution * error)


def interpolate(own: Array, common: Array, share: Array) -> Array:
    return share * own + (1 - share) * common


def row_losses(predicted: Array, y: Array) -> Array:
    """Minus the logarithm of the right class's probability, or the squared error of a regression; one a row."""
    if predicted.ndim == 1:
        return jnp.square(predicted - y)
    if predicted.ndim == 3:
        return jnp.asarray(pixel_losses(predicted, y))
    right = right_probability(jnp, predicted, y.astype(jnp.int32))
    return -jnp.log(jnp.maximum(right, TINY))


def gradient_without(gradient: Gradient, shard: Shard, fold: Array | int, folds: int, size: int | None) -> Gradient:
    """The mean gradient over the rows outside one fold; `size` is that of the batches (none: all rows at once)."""
    left = rows_outside_fold(shard, fold, folds) if size is None else None

    def without(params: Params, batch: Batch, key: Key) -> Params:
        less = batch._replace(mask=batch.mask * (fold_of(batch.x, folds) != fold))
        slope = gradient(params, less, key)
        if left is None:
            return slope
        # A gradient over all rows adds up chunks by all their rows and divides by all rows: count only these.
        part = trees.divide_or_zero(jnp.sum(less.mask), jnp.sum(batch.mask))
        whole: Params = trees.scale(slope, part * trees.divide_or_zero(shard.rows.astype(jnp.float32), left))
        return whole

    return without


def rows_outside_fold(shard: Shard, fold: Array | int, folds: int) -> Array:
    """How many rows the site has outside this fold."""

    def body(index: Array, count: Array) -> Array:
        batch = shard.batch(0, index, CHUNK)
        return count + jnp.sum(batch.mask * (fold_of(batch.x, folds) != fold))

    return jax.lax.fori_loop(0, batches(shard.longest, CHUNK), body, jnp.zeros(()))


def fold_of(x: Array, folds: int) -> Array:
    """The fold of every row, from what stands in it.

    A site sees its rows in another order each round, so that a place in the order would not do; and equal rows, such as
    a patient entered twice, must not stand on both sides.
    """
    flat = jnp.asarray(x).reshape(x.shape[0], -1)
    if jnp.issubdtype(flat.dtype, jnp.floating):
        bits = jax.lax.bitcast_convert_type(flat.astype(jnp.float32), jnp.uint32)
    else:
        bits = flat.astype(jnp.uint32)
    place = jnp.arange(flat.shape[1], dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    number = mix_bits(jnp.sum(mix_bits(bits + place), axis=1, dtype=jnp.uint32))
    return (number % folds).astype(jnp.int32)
