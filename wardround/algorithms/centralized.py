"""All rows in one place: the baseline that tells what federation costs. For comparison in simulation only.

Plain mini-batch descent on the pooled training rows; real hospitals will not run it.
"""

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.bounds import Count, CountOrAll, Momentum, Positive
from wardround.core.contracts import Algorithm, Model

LABEL = "All rows in one place"


def centralized(
    model: Model,
    *,
    learning_rate: Positive = 0.1,
    local_epochs: Count = 1,
    batch_size: CountOrAll = 32,
    momentum: Momentum = 0.0,
) -> Algorithm:
    """One model trained on the pooled rows of all sites (simulation only: what would be possible without borders)."""
    return fed_avg(
        model,
        weighted_mean(),
        learning_rate=learning_rate,
        local_epochs=local_epochs,
        batch_size=batch_size,
        momentum=momentum,
    )._replace(pools=True, silent=True)
