"""Layer split: sites share the lower layers of a network and keep the upper ones to themselves.

Federated personalization with shared lower layers. A site that receives the averaged lower layers first
fits its own upper ones to them, the lower ones frozen and the rate divided by `rate_reduction`; then it trains all
layers and sends what it learned in the lower ones. The printed order (train, average, fit) is kept: the fit that ends
a round is done when the site next uses the layers, in its next round or to make its personal model.

`shared` names layers ("conv_0") or arrays ("dense_0/kernel"); by default all layers but the last, and of a model with a
single layer all but its bias (a common slope, and a baseline risk of the site's own). `sample` < 1: each round a site
sends a random choice of its shared layers, and each layer is averaged over those who sent it. `fallback`: a site never
learns from about a tenth of its training rows (chosen by the rows' own values, so the same ones every round), and
replaces the model it uses only by one that predicts them better; a site with fewer than 20 rows takes each new model.

Costs less traffic than FedAvg by the layers kept, and personal_epochs more passes a round. In simulation, layers left
out by `sample` are still counted as traffic: they travel as zeros.
"""

from dataclasses import replace
from typing import Annotated

import jax
import jax.numpy as jnp

from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Bound, Count, CountOrAll, Momentum, Positive
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

LABEL = "Personal upper layers"

Portion = Annotated[float, Bound(low=0, high=1, open_low=True)]
Reduction = Annotated[float, Bound(low=1)]

FEWEST_TO_JUDGE = 20
"""Training rows below which a site has too few to set a tenth of them aside."""


def layer_split(
    model: Model,
    aggregator: Aggregator,
    *,
    shared: tuple[str, ...] = (),
    sample: Portion = 1.0,
    fallback: bool = False,
    personal_epochs: Count = 1,
    rate_reduction: Reduction = 10.0,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """Sites share the lower layers and keep the upper ones (shared: which; sample: how many per round; fallback)."""
    optimizer = local_optimizer(learning_rate, momentum)
    careful = local_optimizer(learning_rate / rate_reduction, momentum)
    size = batch_size or None
    common_names = shared_arrays(model, shared)
    layers = sorted({layer_of(name) for name in common_names})
    sent_layers = max(1, round(sample * len(layers)))
    if sample < 1 and not aggregator.is_plain_sum:
        raise Refusal(
            "random layer sampling averages each layer over those who sent it, which this aggregator cannot do",
            where="algorithm layer_split",
            remedy="choose the aggregator weighted_mean, or sample = 1.0",
        )

    def common_of(params: Params) -> Params:
        return {name: array for name, array in params.items() if name in common_names}

    def own_of(params: Params) -> Params:
        return {name: array for name, array in params.items() if name not in common_names}

    def init_client(params: Params) -> Tree:
        kept = {"own": own_of(params), "joined": jnp.zeros(())}
        return {**kept, "model": params} if fallback else kept

    def reattached(common: Params, own: Params, shard: Shard, key: Key) -> Params:
        """The site's own layers fitted to the common ones, which stay as they are."""
        gradient = gradient_on_learning_rows(model.gradient, shard, size) if fallback else model.gradient

        def own_gradient(own: Params, batch: Batch, key: Key) -> Params:
            return own_of(gradient({**common, **own}, batch, key))

        return descend(own_gradient, careful, own, shard, key, batch_size=size, passes=personal_epochs)

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        fitting_key, learning_key, choice_key = jax.random.split(key, 3)
        # Before its first round a site has nothing of its own that could have come off.
        fitted = reattached(common, kept["own"], shard, fitting_key)
        start = {**common, **trees.choose(kept["joined"] > 0, fitted, kept["own"])}
        gradient = gradient_on_learning_rows(model.gradient, shard, size) if fallback else model.gradient
        later = replace(shard, first=shard.first + personal_epochs * shard.longest)
        end = descend(gradient, optimizer, start, later, learning_key, batch_size=size, passes=local_epochs)
        arrays: dict[str, Tree] = {"update": trees.subtract(common_of(end), common)}
        if sample < 1:
            drawn = jax.random.permutation(choice_key, len(layers)) < sent_layers
            sent = {layer: drawn[place].astype(jnp.float32) for place, layer in enumerate(layers)}
            arrays = {"update": {name: p * sent[layer_of(name)] for name, p in arrays["update"].items()}, "sent": sent}
        keeps = {"own": own_of(end), "joined": jnp.ones(())}
        if fallback:
            keeps["model"] = choose_better(model, start, kept["model"], shard)
        return answer(model, aggregator, end, shard, weights, arrays), keeps

    def server(params: Tree, combined: Message) -> Tree:
        update = combined.arrays["update"]
        if sample < 1:
            heard = combined.arrays["sent"]
            update = {name: trees.divide_or_zero(array, heard[layer_of(name)]) for name, array in update.items()}
        return {**params, **trees.add(common_of(params), update)}

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        common: Params = message.arrays["params"]
        new = {**common, **reattached(common, kept["own"], shard, key)}
        return choose_better(model, new, kept["model"], shard) if fallback else new

    return Algorithm(
        init=lambda params, sites: params,
        init_client=init_client,
        broadcast=lambda params: Message({"params": common_of(params)}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda params: params,
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
        passes=personal_epochs + local_epochs,
        personal=Personal(fit, personal_epochs),
    )


def layer_of(name: str) -> str:
    return name.rsplit("/", 1)[0]


def shared_arrays(model: Model, shared: tuple[str, ...]) -> frozenset[str]:
    """The names of the arrays that are shared; refuses layers that the model does not have."""
    names: list[str] = []
    # Traced, not computed; the names are taken on the way because JAX hands dictionaries back sorted.
    jax.eval_shape(lambda: names.extend(model.init(jax.random.key(0))))
    if shared:
        for layer in shared:
            if not any(name == layer or name.startswith(f"{layer}/") for name in names):
                raise Refusal(
                    f"the model has no layer called '{layer}'",
                    where="shared",
                    remedy=f"its arrays are {', '.join(names)}",
                )
        return frozenset(n for n in names if any(n == layer or n.startswith(f"{layer}/") for layer in shared))
    last = layer_of(names[-1])
    lower = frozenset(name for name in names if layer_of(name) != last)
    weights = frozenset(name for name in names if not name.endswith("bias"))
    if not lower and len(weights) in (0, len(names)):
        raise Refusal(
            "the model has a single layer without a bias, so that there is nothing to split",
            where="algorithm layer_split",
            remedy=f"name the arrays to be shared, of {', '.join(names)}, or choose the algorithm fine_tune",
        )
    return lower or weights


def held_out_mask(shard: Shard, batch: Batch) -> Array:
    """1 for rows that the site judges by and never learns from: a tenth, by a hash of the row's values.

    A shard comes in another order each round and its rows bear no numbers, so only their values tell them apart.
    """
    bits = jax.lax.bitcast_convert_type(jnp.asarray(batch.x, jnp.float32), jnp.uint32).reshape(len(batch.mask), -1)
    place = jnp.arange(bits.shape[1], dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    # Hashed value by value before they are added, so that the order of the columns matters.
    code = mix_bits(jnp.sum(mix_bits(bits + mix_bits(place)), axis=1, dtype=jnp.uint32))
    aside: Array = (code % 10 == 0).astype(jnp.float32) * batch.mask * (shard.rows >= FEWEST_TO_JUDGE)
    return aside


def gradient_on_learning_rows(gradient: Gradient, shard: Shard, batch_size: int | None) -> Gradient:
    """The gradient without the rows that are set aside."""

    def learning(batch: Batch) -> Array:
        return batch.mask - held_out_mask(shard, batch)

    def count(index: Array, total: Array) -> Array:
        return total + jnp.sum(learning(shard.batch(0, index, CHUNK)))

    def part(params: Params, batch: Batch, key: Key) -> Params:
        mask = learning(batch)
        slope = gradient(params, batch._replace(mask=mask), key)
        if batch_size is not None:
            return slope
        # A gradient over all rows counts each chunk by all its rows: turned into the mean over those learned from.
        share = jnp.sum(mask) / jnp.maximum(1.0, jnp.sum(batch.mask))
        scaled: Params = trees.scale(slope, share * shard.rows / jnp.maximum(1.0, total))
        return scaled

    total = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), count, jnp.zeros(())) if batch_size is None else 0.0
    return part


def choose_better(model: Model, new: Params, old: Params, shard: Shard) -> Params:
    """The old model, unless the new one predicts the rows set aside better (or there are none to tell)."""

    def mistakes(params: Params, batch: Batch) -> Array:
        predicted = model.predict(params, batch.x)
        if predicted.ndim == 1:
            return jnp.square(predicted - batch.y)
        if predicted.ndim == 3:
            return jnp.asarray(pixel_losses(predicted, batch.y))
        right = jnp.sum(predicted * jax.nn.one_hot(batch.y, predicted.shape[-1]), axis=-1)
        return -jnp.log(jnp.maximum(right, 1e-7))

    def compare(index: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        batch = shard.batch(0, index, CHUNK)
        aside = held_out_mask(shard, batch)
        gain = jnp.where(aside > 0, mistakes(old, batch) - mistakes(new, batch), 0.0)
        return so_far[0] + jnp.sum(gain), so_far[1] + jnp.sum(aside)

    start = (jnp.zeros(()), jnp.zeros(()))
    gain, rows = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), compare, start)
    chosen: Params = trees.choose((gain > 0) | (rows == 0), new, old)
    return chosen
