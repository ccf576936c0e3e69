"""FedProx: FedAvg with a spring that holds each site's model near the common one.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.
Sites take their steps on F(w) + mu/2 |w - w_t|^2, intercept included. Costs what FedAvg costs; mu = 0 is FedAvg.
"""

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights, answer
from wardround.core.bounds import Count, CountOrAll, Momentum, NotNegative, Positive
from wardround.core.contracts import Aggregator, Algorithm, Batch, Key, Message, Model, Params, Shard, Tree
from wardround.core.descent import descend, local_optimizer

LABEL = "Common model (FedProx)"


def fed_prox(
    model: Model,
    aggregator: Aggregator,
    *,
    mu: NotNegative = 0.1,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """FedAvg whose sites are pulled back towards the common model (mu), for sites that differ much."""
    optimizer = local_optimizer(learning_rate, momentum)

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]

        def gradient(params: Params, batch: Batch, key: Key) -> Params:
            spring = trees.scale(trees.subtract(params, common), mu)
            slope: Params = trees.add(model.gradient(params, batch, key), spring)
            return slope

        own = descend(gradient, optimizer, common, shard, key, batch_size=batch_size or None, passes=local_epochs)
        return answer(model, aggregator, common, shard, weights, {"update": trees.subtract(own, common)}), kept

    plain = fed_avg(model, aggregator, local_epochs=local_epochs, batch_size=batch_size)
    return plain._replace(client=client)
