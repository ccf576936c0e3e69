"""The mean of answers of ordinary length, in a direction from which most sites gain.

Our own, from two known ideas: answers much longer than the others are left out (Gupta, Liu, Vaidya, "Byzantine
Fault-Tolerant Distributed Machine Learning using Norm-Based Comparative Gradient Elimination", 2021), and a step must
not harm those for whom it is made (inner products, Xie et al., "Fall of Empires", UAI 2019). Too long is an answer
`deviations` robust standard deviations (median and MAD) above the median length, but none below 1.25 and all above 2
times the median; one below a tenth of it is no answer. If the mean of the rest points away from more than half of them,
the mean of those it would harm is taken instead. Unlike rules that look for the middle of the answers it leaves nobody
out for the direction of its answer, only for its length, which costs little among like sites and some points among very
different ones (more `deviations`: less). It does not hold against lies of ordinary length among very different sites,
such as wrong labels or the honest mean turned round. Every site has one vote; fewer than
half may be bad. Needs all answers at once, and a product of the stack with itself.
"""

import jax
import jax.numpy as jnp

from wardround.aggregators.order_statistics import middle
from wardround.aggregators.stacks import close_stack, combine, open_stack
from wardround.core.bounds import Positive
from wardround.core.contracts import Aggregator, Message, Tree

NORMAL = 1.4826
"""Times the median absolute deviation is the standard deviation of normally distributed lengths."""
NEVER, ALWAYS, NOTHING = 1.25, 2.0, 0.1
TURNS = 2


def median_of(values: jax.Array, counted: jax.Array) -> jax.Array:
    return middle(jnp.sort(jnp.where(counted, values, jnp.inf)), jnp.sum(counted, dtype=jnp.int32))


def is_ordinary(lengths: jax.Array, present: jax.Array, deviations: float) -> jax.Array:
    """Which answers are neither too long nor next to nothing."""
    some = present & (lengths >= NOTHING * median_of(lengths, present))
    usual = median_of(lengths, some)
    spread = NORMAL * median_of(jnp.abs(lengths - usual), some)
    return some & (lengths <= jnp.clip(usual + deviations * spread, NEVER * usual, ALWAYS * usual))


def majority_mean(*, deviations: Positive = 3.0) -> Aggregator:
    """Mean of the answers that are not unusually long, and never a step that most sites would lose by."""

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        products = jnp.matmul(stack.values, stack.values.T, precision=jax.lax.Precision.HIGHEST)
        heard = is_ordinary(jnp.sqrt(jnp.diag(products)), stack.present, deviations)
        kept = heard
        for _ in range(TURNS):
            harmed = heard & (products @ kept.astype(jnp.float32) < 0)
            kept = jnp.where(2 * jnp.sum(harmed) > jnp.sum(heard), harmed, kept)
        shares = kept / jnp.maximum(jnp.sum(kept), 1).astype(jnp.float32)
        return close_stack(answers, stack, combine(stack, shares)), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False)
