"""FedOpt: the server treats the mean update as a gradient and feeds it to an adaptive optimizer.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, algorithm 2: v starts at tau^2, no bias correction; Adagrad
has no momentum, as in the paper's experiments. `avgm` is Hsu et al. 2019: m <- beta1 m + update. Sites do what they do
in FedAvg; the server keeps one or two copies of the model more.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import Aggregator, Algorithm, Array, Message, Model, Params, Tree

LABEL = "Common model (FedOpt)"


def fed_opt(
    model: Model,
    aggregator: Aggregator,
    *,
    optimizer: Literal["avgm", "adagrad", "adam", "yogi"] = "adam",
    server_learning_rate: Positive = 0.1,
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.99,
    tau: Positive = 1e-3,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    weights: Weights = "samples",
) -> Algorithm:
    """FedAvg whose server steps with momentum, Adagrad, Adam or Yogi; steadier when few sites answer in a round."""
    plain = fed_avg(
        model,
        aggregator,
        learning_rate=learning_rate,
        local_epochs=local_epochs,
        batch_size=batch_size,
        weights=weights,
    )

    def init(params: Params, sites: int) -> Tree:
        return {
            "params": params,
            "m": trees.zeros(params),
            "v": jax.tree.map(lambda p: jnp.full_like(p, tau**2), params),
        }

    def second_moment(v: Array, update: Array) -> Array:
        square = jnp.square(update)
        if optimizer == "adagrad":
            return v + square
        if optimizer == "yogi":
            return v - (1 - beta2) * square * jnp.sign(v - square)
        return beta2 * v + (1 - beta2) * square

    def server(state: Tree, combined: Message) -> Tree:
        update = combined.arrays["update"]
        if optimizer == "avgm":
            m = jax.tree.map(lambda m, u: beta1 * m + u, state["m"], update)
            step, v = m, state["v"]
        else:
            first = 0.0 if optimizer == "adagrad" else beta1
            m = jax.tree.map(lambda m, u: first * m + (1 - first) * u, state["m"], update)
            v = jax.tree.map(second_moment, state["v"], update)
            step = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), m, v)
        # A round in which nobody answered is no evidence: the server stays where it is, momentum included.
        moved = {"params": trees.add(state["params"], trees.scale(step, server_learning_rate)), "m": m, "v": v}
        return trees.choose(combined.arrays["weight"] > 0, moved, state)

    return plain._replace(
        init=init,
        broadcast=lambda state: Message({"params": state["params"]}),
        server=server,
        params=lambda state: state["params"],
    )
