"""FedBN: FedAvg in which every site keeps its own normalization layers.

Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021. Where sites' images
look different (other scanners, stains, light), averaged statistics fit none of them. A site's normalization layers, of
scale, bias and running statistics, are never sent; all other layers are averaged. The site uses the common layers with
its own normalization. `local` names the layers that stay; by default those whose name holds "norm".

Costs FedAvg's traffic less the kept layers. Whoever has no normalization of its own, such as a new site, uses the first
model's; of a model without such layers nothing stays, which is FedAvg. A site keeps numbers that describe its images,
and sends none of them.
"""

import jax

from wardround.algorithms.layer_split import shared_arrays
from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import (
    Aggregator,
    Algorithm,
    Key,
    Message,
    Model,
    Params,
    Personal,
    Shard,
    Tree,
)
from wardround.core.descent import CHUNK, descend, local_optimizer

LABEL = "Common model, own normalization"


def fed_bn(
    model: Model,
    aggregator: Aggregator,
    *,
    local: tuple[str, ...] = (),
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """FedAvg in which every site keeps its own normalization layers (local: which layers stay)."""
    optimizer = local_optimizer(learning_rate, momentum)
    kept_names = kept_arrays(model, local)

    def common_of(params: Params) -> Params:
        return {name: array for name, array in params.items() if name not in kept_names}

    def own_of(params: Params) -> Params:
        return {name: array for name, array in params.items() if name in kept_names}

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        start = {**common, **kept}
        end = descend(model.gradient, optimizer, start, shard, key, batch_size=batch_size or None, passes=local_epochs)
        update = trees.subtract(common_of(end), common)
        return answer(model, aggregator, end, shard, weights, {"update": update}), own_of(end)

    def server(params: Tree, combined: Message) -> Tree:
        return {**params, **trees.add(common_of(params), combined.arrays["update"])}

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        return {**message.arrays["params"], **kept}

    return Algorithm(
        init=lambda params, sites: params,
        init_client=own_of,
        broadcast=lambda params: Message({"params": common_of(params)}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda params: params,
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
        passes=local_epochs,
        personal=Personal(fit) if kept_names else None,
    )


def kept_arrays(model: Model, local: tuple[str, ...]) -> frozenset[str]:
    """The arrays that stay at the site; refuses layers that the model does not have."""
    if local:
        return shared_arrays(model, local)
    names: list[str] = []
    jax.eval_shape(lambda: names.extend(model.init(jax.random.key(0))))
    return frozenset(name for name in names if "norm" in name.rpartition("/")[0].lower())
