"""Multi-Krum: the mean of the answers that lie closest to their nearest neighbours.

Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017.
Scores every answer once, as Krum does, and takes the plain mean of the `keep` best: `keep` = 1 is Krum. How many is
left open by the method; by default all that may be good, m - f of the m that answered. Needs m >= 2 f + 3, and f more
than are kept; a round in which fewer answer counts as one in which nobody did. Cost as Krum.
"""

import jax.numpy as jnp

from wardround.aggregators.krum import BadSites, fewest_for, ranks
from wardround.aggregators.stacks import close_stack, combine, open_stack
from wardround.core.bounds import CountOrAll
from wardround.core.contracts import Aggregator, Message, Tree


def multi_krum(*, bad: BadSites = 1, keep: CountOrAll = 0) -> Aggregator:
    """Mean of the answers closest to their neighbours (keep 0: all but the bad sites expected)."""
    # Who keeps more than the good ones keeps a bad one for certain.
    fewest = max(fewest_for(bad), keep + bad)

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        number = jnp.asarray(keep, jnp.int32) if keep else jnp.maximum(stack.sites - bad, 1)
        chosen = (ranks(stack, bad) < number) / number.astype(jnp.float32)
        return close_stack(answers, stack, combine(stack, chosen), fewest), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False, fewest=fewest, products=True)
