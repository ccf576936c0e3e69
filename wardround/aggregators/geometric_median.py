"""RFA: the point with the smallest weighted sum of distances to the answers, the geometric median.

Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE Trans. Signal Processing 70, 2022 (arXiv
1912.13445, 2019). Holds as long as bad sites have less than half of all weight; since sites tell their own weight, let
the algorithm weigh all sites alike where that may be abused. Smoothed Weiszfeld steps, each a mean with weights
w_i / max(nu, distance), until the point rests. Needs all answers at once; a step reads the stack twice.
"""

import jax
import jax.numpy as jnp

from wardround.aggregators.order_statistics import coordinate_median, middle
from wardround.aggregators.stacks import Stack, close_stack, combine, distances_to, open_stack
from wardround.core.bounds import Count, Positive
from wardround.core.contracts import Aggregator, Message, Tree

TOLERANCE = 1e-6
"""The point rests when a step is shorter than this share of its length and of the sites' spread."""


def weiszfeld(stack: Stack, smoothing: float, iterations: int) -> tuple[jax.Array, jax.Array]:
    """The geometric median, and how many steps it took."""
    total = jnp.sum(stack.weights)
    shares = stack.weights / jnp.where(total > 0, total, 1.0)

    def step(point: jax.Array, floor: jax.Array | float) -> jax.Array:
        pull = shares / jnp.maximum(distances_to(stack, point), floor)
        strength = jnp.sum(pull)
        return combine(stack, pull / jnp.where(strength > 0, strength, 1.0))

    def unfinished(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        point, moved, done = carry
        return (moved > TOLERANCE * (spread + jnp.linalg.norm(point))) & (done < iterations)

    def once(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        point, _, done = carry
        after = step(point, smoothing)
        return after, jnp.linalg.norm(after - point), done + 1

    # From the mean, a far outlier would take a step for every factor of its distance; from here it takes none. But the
    # coordinate-wise median often is one of the answers, where Weiszfeld's steps are stuck: one step that is smoothed
    # over the sites' spread leads off it.
    centre = coordinate_median(stack)
    spread = middle(jnp.sort(jnp.where(stack.present, distances_to(stack, centre), jnp.inf)), stack.sites)
    start = step(centre, jnp.maximum(spread, smoothing))
    point, _, done = jax.lax.while_loop(unfinished, once, (start, jnp.asarray(jnp.inf), jnp.asarray(0)))
    return point, done


def geometric_median(*, smoothing: Positive = 1e-6, iterations: Count = 200) -> Aggregator:
    """Point with the smallest sum of distances to the answers: holds while bad sites have under half the weight."""

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        return close_stack(answers, stack, weiszfeld(stack, smoothing, iterations)[0]), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False)
