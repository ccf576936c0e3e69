"""All rows in one place: the baseline that tells what federation costs. For comparison in simulation only.

A model with a convex loss (logistic, linear) is fitted until nothing is left to gain, as a statistician with all rows
would: by L-BFGS, with scikit-learn's usual pull towards 0 (`ridge` patients' worth). Other models are trained by plain
mini-batch descent on the pooled training rows, a pass or more a round. Real hospitals will not run it.
"""

from typing import Literal

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core import trees
from wardround.core.answers import answer
from wardround.core.bounds import Count, CountOrAll, Momentum, NotNegative, Positive
from wardround.core.contracts import Algorithm, Key, Message, Model, Params, Shard, Tree
from wardround.core.solvers.quasi_newton import PORTION, fit_fully, is_linear

LABEL = "All rows in one place"
STEPS = 25
"""Steps of the full fit in a round: a few rounds reach its end, and later ones find nothing left to do."""


def centralized(
    model: Model,
    *,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
    solver: Literal["auto", "descent"] = "auto",
    ridge: NotNegative = 1.0,
) -> Algorithm:
    """One model trained on the pooled rows of all sites (simulation only: what would be possible without borders)."""
    aggregator = weighted_mean()
    descent = fed_avg(
        model,
        aggregator,
        learning_rate=learning_rate,
        local_epochs=local_epochs,
        batch_size=batch_size,
        momentum=momentum,
    )._replace(pools=True, silent=True)
    # A private study's batches are of an expected size: its noise is in the gradient, which a full fit would average.
    if solver == "descent" or type(batch_size) is not int:
        return descent

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        common: Params = message.arrays["params"]
        if not is_linear(common):
            return descent.client(message, kept, shard, key)
        own = fit_fully(model, common, shard, key, ridge=ridge, most_steps=STEPS)
        return answer(model, aggregator, common, shard, "samples", {"update": trees.subtract(own, common)}), kept

    return descent._replace(client=client, largest_batch=max(batch_size, PORTION))
