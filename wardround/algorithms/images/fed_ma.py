"""FedMA: sites' units are matched before they are averaged, layer by layer, a layer a round.

Wang et al., "Federated Learning with Matched Averaging", ICLR 2020. The units of a hidden layer may stand in any order,
so that the average of two good networks may be a bad one. In the round of a layer every site trains it and all layers
above it, those below being frozen as they were matched, and sends this one layer. The server lays the sites' units on
one another (`unit_assignment`) and averages; every site learns in which order its units were taken, and reorders what
the next layer reads. The last layer is averaged as it is. After as many rounds as layers a sweep ends and the next
begins; within a sweep the common model is half new and half old, so it is judged at the end of one.

Dense, convolutional and recurrent (LSTM) layers in a chain, normalization belonging to the layer before it. `growth`:
the common network may have so many times as many units more, where a site's units are unlike all others (`new_unit`: at
what distance, in squared lengths of a unit). Sites keep networks of their own size, made of the units that theirs were
matched with. Simplified: the last layer is weighted by patients, not by classes, and a new unit has a price of its own
in place of the paper's Beta-Bernoulli process. With `own_start` every site begins its first sweep with random weights
of its own, where plain averaging fails.

Costs a message up of the largest layer and a model down each round. Needs each site's answer by itself, so a secure sum
cannot hide it. A site that missed the round before takes the common model and goes on from there.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from wardround.algorithms.images.matched_layers import (
    cut,
    grow,
    layers_of,
    pack_layer,
    read_matched,
    unpack_layer,
)
from wardround.algorithms.images.unit_assignment import match_layer
from wardround.core import trees
from wardround.core.answers import Weights, answer, side_by_side
from wardround.core.bounds import Count, CountOrAll, Momentum, NotNegative, Positive
from wardround.core.contracts import Algorithm, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, descend, local_optimizer

LABEL = "Common model, units matched"


def fed_ma(
    model: Model,
    *,
    own_start: bool = False,
    growth: NotNegative = 0.0,
    new_unit: Positive = 1.0,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """Units are matched before they are averaged, one layer a round (own_start: sites begin with own weights)."""
    optimizer, aggregator = local_optimizer(learning_rate, momentum), side_by_side()
    layers = layers_of(model, growth)
    count = len(layers.arrays)

    def init(params: Params, sites: int) -> Tree:
        # Before the first matching a site's units stand in the first places of every layer.
        first = [np.where(np.arange(layers.widest) < layers.own[name], np.arange(layers.widest), -1)
                 for name in layers.names]  # fmt: skip
        order = jnp.asarray(np.reshape(first, (count - 1, layers.widest)), jnp.int32)
        return {
            "params": grow(layers, params),
            "step": jnp.zeros((), jnp.int32),
            "order": jnp.tile(order, (sites, 1, 1)),
        }

    def broadcast(state: Tree) -> Message:
        return Message({"params": state["params"], "step": state["step"], "order": state["order"]})

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common, step = message.arrays["params"], message.arrays["step"]
        phase = step % count
        order = message.arrays["order"][jnp.minimum(shard.site, len(message.arrays["order"]) - 1)]
        start = cut(layers, common, order)
        if own_start:
            # Not from the round's key, which all methods share: a start of the site's own, the same in every run.
            own = model.init(jax.random.fold_in(jax.random.key(17), shard.site))
            start = trees.choose(step == 0, grow(layers, own), start)
        goes_on = (phase > 0) & (kept["step"] == step - 1)
        begun = read_matched(layers, trees.choose(goes_on, kept["params"], start), phase, order)
        learns = {name: (layers.place(name) >= phase).astype(jnp.float32) for name in common}
        # What lies below is the common model's, as it was matched.
        begun = {name: jnp.where(learns[name] > 0, begun[name], common[name]) for name in common}

        def gradient(params: Params, batch: Batch, key: Key) -> Params:
            slope = model.gradient(params, batch, key)
            return {name: slope[name] * learns[name] for name in slope}

        end = descend(gradient, optimizer, begun, shard, key, batch_size=batch_size or None, passes=local_epochs)
        sent = pack_layer(layers, end, phase)
        return answer(model, aggregator, end, shard, weights, {"layer": sent}), {"params": end, "step": step}

    def fill(context: Any, out: Any, *given: Any) -> None:
        # Not `pure_callback`, which needs a thread of the pool whose threads wait here: it hung with large layers.
        phase, rows, weight, site = (np.asarray(one) for one in given)
        found = match_layer(layers, int(phase), rows, weight, site, np.asarray(out[1]).shape[0], new_unit)
        for slot, value in zip(out, found, strict=True):
            np.copyto(np.asarray(slot), value)

    def server(state: Tree, stack: Message) -> Tree:
        phase, before = state["step"] % count, state["order"]
        shapes = (
            jax.ShapeDtypeStruct((layers.longest,), jnp.float32),
            jax.ShapeDtypeStruct((before.shape[0], layers.widest), jnp.int32),
        )
        rows = jax.vmap(trees.divide_or_zero)(stack.arrays["layer"], stack.arrays["weight"])
        given = (phase, rows, stack.arrays["weight"], stack.arrays["site"])
        mean, order = buffer_callback(fill, shapes, vmap_method="sequential")(*given)
        heard = jnp.sum(stack.arrays["weight"]) > 0
        params = trees.choose(heard, unpack_layer(layers, state["params"], phase, mean), state["params"])
        matched = (jnp.arange(count - 1) == phase)[None, :, None] & heard
        return {"params": params, "step": state["step"] + 1, "order": jnp.where(matched, order[:, None], before)}

    def init_client(params: Params) -> Tree:
        return {"params": grow(layers, params), "step": jnp.full((), -1, jnp.int32)}

    return Algorithm(
        init=init,
        init_client=init_client,
        broadcast=broadcast,
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: state["params"],
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
        passes=local_epochs,
    )
