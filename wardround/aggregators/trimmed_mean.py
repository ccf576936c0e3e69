"""The mean of the answers, coordinate by coordinate, after the largest and the smallest ones were cut off.

Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
Of m sites that answer, floor(share * m) are cut at each end, so that many bad ones do no harm; with few sites this may
be none (share 0.1 cuts nothing below ten sites). Every site has one vote. Needs all answers at once, and about
n log² n comparisons a coordinate.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp

from wardround.aggregators.order_statistics import by_columns
from wardround.aggregators.stacks import Stack, close_stack, open_stack
from wardround.core.bounds import Half
from wardround.core.contracts import Aggregator, Message, Tree


def mean_without_ends(stack: Stack, cut: jax.Array) -> jax.Array:
    """The mean of every coordinate without the `cut` largest and the `cut` smallest values."""
    place = jnp.arange(len(stack.values))[:, None]
    kept = (place >= cut) & (place < stack.sites - cut)
    divisor = jnp.maximum(stack.sites - 2 * cut, 1).astype(jnp.float32)

    def mean_of_kept(ordered: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(kept, ordered, 0.0), axis=0) / divisor

    return by_columns(stack, mean_of_kept)


def trimmed_mean(*, share: Half = 0.1) -> Aggregator:
    """Mean of the sites' answers without the largest and smallest share of them in every coordinate."""
    # The share as it was written: in binary, 0.29 of 100 sites would be 28.
    exact = Fraction(str(share))

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        slots = len(stack.values)
        cut = jnp.array([int(exact * count) for count in range(slots + 1)], jnp.int32)[stack.sites]
        return close_stack(answers, stack, mean_without_ends(stack, cut)), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False)
