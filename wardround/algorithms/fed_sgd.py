"""FedSGD: every site sends one gradient, the server takes one step along their mean.

The baseline of McMahan et al., AISTATS 2017: large-batch gradient descent on all patients, without moving them.
A round costs as much traffic as one of FedAvg and makes one step, so it needs many rounds; it never drifts.
"""

from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import CountOrAll, Positive
from wardround.core.contracts import Aggregator, Algorithm, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, full_gradient

LABEL = "Common model (FedSGD)"


def fed_sgd(
    model: Model,
    aggregator: Aggregator,
    *,
    learning_rate: Positive = 0.1,
    batch_size: CountOrAll = 0,
    weights: Weights = "samples",
) -> Algorithm:
    """One gradient per site and round, over all rows or one batch; the common model takes one step along their mean."""

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        if batch_size:
            slope = model.gradient(common, shard.batch(0, 0, batch_size), key)
        else:
            slope = full_gradient(model.gradient, common, shard, key)
        return answer(model, aggregator, common, shard, weights, {"update": trees.scale(slope, -learning_rate)}), kept

    return Algorithm(
        init=lambda params, sites: params,
        init_client=lambda params: (),
        broadcast=lambda params: Message({"params": params}),
        client=client,
        aggregator=aggregator,
        server=lambda params, combined: trees.add(params, combined.arrays["update"]),
        params=lambda params: params,
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
    )
