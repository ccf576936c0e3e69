"""Fine-tuning: the common model of FedAvg, trained on at each site with its own patients.

The plainest personal model (Kairouz et al. 2019, section 3.3, "local fine-tuning"). Costs no traffic beyond FedAvg's;
each site does a few more passes over its own rows. With few patients it can overfit: freeze layers or tune less.
"""

import jax.numpy as jnp

from wardround.algorithms.fed_avg import fed_avg
from wardround.core.answers import Weights
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import Aggregator, Algorithm, Batch, Key, Message, Model, Params, Personal, Shard, Tree
from wardround.core.descent import descend, local_optimizer
from wardround.core.errors import Refusal

LABEL = "Personal model"


def fine_tune(
    model: Model,
    aggregator: Aggregator,
    *,
    personal_epochs: Count = 5,
    personal_learning_rate: Positive = 0.05,
    frozen: tuple[str, ...] = (),
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    weights: Weights = "samples",
) -> Algorithm:
    """A personal model for each site: the common one trained on with its own patients (frozen: layers kept fixed)."""
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

    def gradient(params: Params, batch: Batch, key: Key) -> Params:
        slope = model.gradient(params, batch, key)
        return {name: jnp.zeros_like(one) if is_frozen(name) else one for name, one in slope.items()}

    def is_frozen(name: str) -> bool:
        return any(name == layer or name.startswith(f"{layer}/") for layer in frozen)

    def fit(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        common: Params = message.arrays["params"]
        for layer in frozen:
            if not any(name == layer or name.startswith(f"{layer}/") for name in common):
                raise Refusal(
                    f"the model has no layer called '{layer}'",
                    where="frozen",
                    remedy=f"its arrays are {', '.join(common)}",
                )
        return descend(gradient, optimizer, common, shard, key, batch_size=batch_size or None, passes=personal_epochs)

    return plain._replace(personal=Personal(fit, personal_epochs))
