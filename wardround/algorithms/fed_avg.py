"""FedAvg: every site trains on from the common model, and the server averages what they learned.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
Sends the model down and an update of the same size up. Many local passes save traffic, but pull the common model
towards sites that differ (client drift).
"""

from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import Aggregator, Algorithm, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import CHUNK, descend, local_optimizer

LABEL = "Common model"


def fed_avg(
    model: Model,
    aggregator: Aggregator,
    *,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
    server_learning_rate: Positive = 1.0,
) -> Algorithm:
    """Federated averaging: sites train on from the common model, the server averages (batch_size 0: all rows)."""
    optimizer = local_optimizer(learning_rate, momentum)

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        own = descend(model.gradient, optimizer, common, shard, key, batch_size=batch_size or None, passes=local_epochs)
        return answer(model, aggregator, common, shard, weights, {"update": trees.subtract(own, common)}), kept

    def server(params: Tree, combined: Message) -> Tree:
        return trees.add(params, trees.scale(combined.arrays["update"], server_learning_rate))

    return Algorithm(
        init=lambda params, sites: params,
        init_client=lambda params: (),
        broadcast=lambda params: Message({"params": params}),
        client=client,
        aggregator=aggregator,
        server=server,
        params=lambda params: params,
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
        passes=local_epochs,
    )
