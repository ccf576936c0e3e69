"""Centered clipping: from the last round's result, a mean step towards the answers, none pulling further than a radius.

Karimireddy, He, Jaggi, "Learning from History for Byzantine Robust Optimization", ICML 2021.
v <- v + mean of (x_i - v) min(1, radius / |x_i - v|), done `iterations` times; v starts at the last round's result, at
first at 0. Every site has one vote, so b bad ones of m move the result by at most iterations * radius * b / m. A radius
well over the distances between good sites makes it the plain mean. Needs all answers at once; keeps one result between
rounds and reads the stack twice an iteration.
"""

import jax
import jax.numpy as jnp

from wardround.aggregators.stacks import as_arrays, as_matrix, close_stack, combine, content, distances_to, open_stack
from wardround.core.bounds import Count, Positive
from wardround.core.contracts import Aggregator, Message, Tree


def centered_clipping(*, radius: Positive = 10.0, iterations: Count = 1) -> Aggregator:
    """Steps from the last result towards the answers, where no site pulls further than a radius."""

    def init(template: Message) -> Tree:
        arrays = content(template)
        return as_arrays(jnp.zeros(sum(leaf.size for leaf in jax.tree.leaves(arrays))), arrays)

    def reduce(last: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        share = stack.present / jnp.maximum(stack.sites, 1).astype(jnp.float32)

        def step(_: jax.Array, point: jax.Array) -> jax.Array:
            pull = share * radius / jnp.maximum(distances_to(stack, point), radius)
            return (1.0 - jnp.sum(pull)) * point + combine(stack, pull)

        before = as_matrix(jax.tree.map(lambda leaf: leaf[None], last), 1)[0]
        after = jax.lax.fori_loop(0, iterations, step, before)
        # With nobody there no pull is left, so the state stays as it was.
        return close_stack(answers, stack, after), as_arrays(after, last)

    return Aggregator(init=init, reduce=reduce, linear=False)
