"""Nearest-neighbour mixing: every answer is replaced by the mean of those nearest to it, then a robust rule combines.

Allouah et al., "Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity", AISTATS 2023. Of m answers,
f of them bad, each becomes the mean of its m - f nearest, itself among them. What honest sites differ by is averaged
away before the rule looks, so that a rule made for like sites holds among different ones, and a lie far out is mixed
into its own row only. Every site has one vote. Needs m >= 2 f + 1 (for `krum` 2 f + 3): fewer is refused before the
first round, and a round in which fewer answer counts as one in which nobody did. Costs the distances between all
answers and one product more (2 n² times the size of the model), and then the rule.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import jax
import jax.numpy as jnp

from wardround.aggregators.geometric_median import weiszfeld
from wardround.aggregators.krum import BadSites, fewest_for, ranks, squared_distances
from wardround.aggregators.order_statistics import coordinate_median
from wardround.aggregators.stacks import Stack, close_stack, combine, open_stack
from wardround.aggregators.trimmed_mean import mean_without_ends
from wardround.core.contracts import Aggregator, Message, Tree

Rule = Literal["trimmed_mean", "median", "geometric_median", "krum"]


def mix_nearest(stack: Stack, bad: int) -> Stack:
    """Every row that counts as the mean of those nearest to it, all but `bad` of them."""
    slots = len(stack.values)
    both = stack.present[:, None] & stack.present[None, :]
    order = jnp.argsort(jnp.where(both, squared_distances(stack), jnp.inf), axis=1, stable=True)
    place = jnp.zeros((slots, slots), jnp.int32).at[jnp.arange(slots)[:, None], order].set(jnp.arange(slots))
    number = jnp.maximum(stack.sites - bad, 1)
    shares = jnp.where(both & (place < number), 1.0 / number.astype(jnp.float32), 0.0)
    return stack._replace(values=combine(stack, shares))


def nearest_mixing(*, bad: BadSites = 1, then: Rule = "trimmed_mean") -> Aggregator:
    """Answers averaged with their nearest ones first, so that a robust rule holds among different sites, too."""
    fewest = fewest_for(bad) if then == "krum" else 2 * bad + 1
    # All sites have one vote in the mixture, and so they have in what follows.
    rules: Mapping[str, Callable[[Stack], jax.Array]] = {
        "trimmed_mean": lambda stack: mean_without_ends(stack, jnp.minimum(bad, (stack.sites - 1) // 2)),
        "median": coordinate_median,
        "geometric_median": lambda stack: weiszfeld(
            stack._replace(weights=stack.present.astype(jnp.float32)), 1e-6, 200
        )[0],
        "krum": lambda stack: combine(stack, (ranks(stack, bad) == 0).astype(jnp.float32)),
    }
    rule = rules[then]

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        return close_stack(answers, stack, rule(mix_nearest(stack, bad)), fewest), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False, fewest=fewest)
