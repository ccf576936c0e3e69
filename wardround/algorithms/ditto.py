"""Ditto: beside the common model every site trains its own, held near the common one by a spring.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, algorithm 1: the common model
is FedAvg's; the own one takes its steps on F(v) + pull/2 |v - w|^2, w the common model as received. A site that takes
part for the first time begins where the common model stands (in the first round: at the first model, as printed).

Costs the traffic of FedAvg, twice the steps, and a second model kept at every site. pull = 0 is training alone; the
larger the pull, the nearer the common model. pull times personal_learning_rate must stay below 2, or the spring
overshoots further with every step.
"""

import jax.numpy as jnp

from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import Weights
from wardround.core.bounds import Count, CountOrAll, Momentum, NotNegative, Positive
from wardround.core.contracts import Aggregator, Algorithm, Batch, Key, Message, Model, Params, Personal, Shard, Tree
from wardround.core.descent import descend, local_optimizer
from wardround.core.errors import Refusal

LABEL = "Personal model (Ditto)"


def ditto(
    model: Model,
    aggregator: Aggregator,
    *,
    pull: NotNegative = 1.0,
    personal_epochs: Count = 1,
    personal_learning_rate: Positive = 0.1,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """A personal model for each site, trained on its own patients and pulled towards the common one (pull 0: alone)."""
    if pull * personal_learning_rate >= 2:
        raise Refusal(
            f"a pull of {pull:g} with steps of {personal_learning_rate:g} makes the personal models diverge",
            where="algorithm ditto",
            remedy=f"choose personal_learning_rate below {2 / pull:g}, or a smaller pull",
        )
    plain = fed_avg(
        model,
        aggregator,
        learning_rate=learning_rate,
        local_epochs=local_epochs,
        batch_size=batch_size,
        momentum=momentum,
        weights=weights,
    )
    optimizer = local_optimizer(personal_learning_rate, momentum)

    def current(message: Message, kept: Tree) -> Params:
        """The site's own model; the common one where the site has not taken part yet."""
        own: Params = trees.choose(kept["joined"] > 0, kept["model"], message.arrays["params"])
        return own

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]

        def gradient(own: Params, batch: Batch, key: Key) -> Params:
            spring = trees.scale(trees.subtract(own, common), pull)
            slope: Params = trees.add(model.gradient(own, batch, key), spring)
            return slope

        said, _ = plain.client(message, (), shard, key)
        # Both models go through the same passes, so that the engine deals the rows only once.
        own = descend(
            gradient,
            optimizer,
            current(message, kept),
            shard,
            key,
            batch_size=batch_size or None,
            passes=personal_epochs,
        )
        return said, {"model": own, "joined": jnp.ones(())}

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        return current(message, kept)

    return plain._replace(
        init_client=lambda params: {"model": params, "joined": jnp.zeros(())},
        client=client,
        passes=max(local_epochs, personal_epochs),
        personal=Personal(fit),
    )
