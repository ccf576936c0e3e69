"""Every site for itself: the baseline that tells whether joining helps at all.

Each site trains its own model on its own rows, from the same start; nothing is sent.
"""

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core.answers import weight_of
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import Algorithm, Key, Message, Model, Params, Personal, Shard, Tree
from wardround.core.descent import CHUNK, descend, local_optimizer

LABEL = "Own patients only"


def local(
    model: Model,
    *,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
) -> Algorithm:
    """Each site trains alone on its own patients; nothing leaves it (the baseline to beat)."""
    optimizer = local_optimizer(learning_rate, momentum)

    def client(message: Message, own: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        own = descend(model.gradient, optimizer, own, shard, key, batch_size=batch_size or None, passes=local_epochs)
        return Message({"weight": weight_of(shard, "samples")}), own

    def keep(message: Message, own: Tree, shard: Shard, key: Key) -> Params:
        kept: Params = own
        return kept

    return Algorithm(
        init=lambda params, sites: params,
        init_client=lambda params: params,
        broadcast=lambda params: Message({"params": params}),
        client=client,
        aggregator=weighted_mean(),
        server=lambda params, combined: params,
        params=lambda params: params,
        predict=model.predict,
        largest_batch=max(batch_size, CHUNK),
        passes=local_epochs,
        personal=Personal(keep),
        silent=True,
    )
