"""SCAFFOLD: sites correct their steps by how their gradients differ from everybody's, so they do not drift apart.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, algorithm 1.
Averages with plain 1/|S| as printed; all control variates start at 0. Every site keeps a control variate of the
model's size, and twice the traffic of FedAvg flows each way. Option I takes the full gradient at the received model as
the new control variate (one more pass over the rows), option II reuses the steps taken.
"""

from typing import Literal

import jax.numpy as jnp

from wardround.core import trees
from wardround.core.answers import answer
from wardround.core.bounds import Count, CountOrAll, Positive
from wardround.core.contracts import Aggregator, Algorithm, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, descend, full_gradient, local_optimizer, steps

LABEL = "Common model (SCAFFOLD)"


def scaffold(
    model: Model,
    aggregator: Aggregator,
    *,
    option: Literal["I", "II"] = "II",
    learning_rate: Positive = 0.1,
    server_learning_rate: Positive = 1.0,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
) -> Algorithm:
    """Averaging with control variates that cancel the drift of sites whose patients differ (options I and II)."""
    optimizer = local_optimizer(learning_rate, 0.0)
    size = batch_size or None

    def init(params: Params, sites: int) -> Tree:
        return {"params": params, "control": trees.zeros(params), "sites": jnp.float32(sites)}

    def client(message: Message, own_control: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common, control = message.arrays["params"], message.arrays["control"]
        correction = trees.subtract(control, own_control)

        def gradient(params: Params, batch: Batch, key: Key) -> Params:
            corrected: Params = trees.add(model.gradient(params, batch, key), correction)
            return corrected

        own = descend(gradient, optimizer, common, shard, key, batch_size=size, passes=local_epochs)
        moved = trees.subtract(own, common)
        if option == "I":
            new_control = full_gradient(model.gradient, common, shard, key)
        else:
            taken = jnp.maximum(1, steps(shard, size, local_epochs))
            new_control = trees.subtract(trees.scale(moved, -1.0 / (taken * learning_rate)), correction)
        change = trees.subtract(new_control, own_control)
        said = answer(model, aggregator, common, shard, "uniform", {"update": moved, "control": change})
        return said, new_control

    def server(state: Tree, combined: Message) -> Tree:
        present = combined.arrays["weight"] / state["sites"]
        return {
            "params": trees.add(state["params"], trees.scale(combined.arrays["update"], server_learning_rate)),
            "control": trees.add(state["control"], trees.scale(combined.arrays["control"], present)),
            "sites": state["sites"],
        }

    return Algorithm(
        init=init,
        init_client=trees.zeros,
        broadcast=lambda state: Message({"params": state["params"], "control": state["control"]}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda state: state["params"],
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
        passes=local_epochs,
    )
