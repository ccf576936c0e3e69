"""Krum: the one answer that lies closest to its nearest neighbours.

Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017.
Of m answers, f of them bad, each is scored by the sum of squared distances to its m - f - 2 nearest others; the one
with the lowest score is taken as it is. Needs m >= 2 f + 3: fewer is refused before the first round, and a round in
which fewer answer counts as one in which nobody did. Every site has one vote, and what all other sites learned in the
round is lost. Costs a product of the stack with itself (n² times the size of the model).
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from wardround.aggregators.order_statistics import coordinate_median
from wardround.aggregators.stacks import Stack, close_stack, combine, open_stack
from wardround.core.bounds import Bound
from wardround.core.contracts import Aggregator, Message, Tree

BadSites = Annotated[int, Bound(low=0)]


def fewest_for(bad: int) -> int:
    """The smallest number of answers among which `bad` ones can be told."""
    return 2 * bad + 3


def squared_distances(stack: Stack) -> jax.Array:
    """Between all pairs of rows, through their products: thirty times cheaper than through their differences.

    |a|² + |b|² - 2ab loses its digits when a and b are long and close together. So the rows are first moved to lie
    around their coordinate-wise median, a centre that bad sites cannot carry off as they could the mean.
    """
    slots, columns = stack.values.shape
    centre = coordinate_median(stack)

    def add_block(total: jax.Array, start: jax.Array) -> tuple[jax.Array, None]:
        part = jax.lax.dynamic_slice(stack.values, (0, start), (slots, stack.width))
        part = part - jax.lax.dynamic_slice(centre, (start,), (stack.width,))
        return total + jnp.matmul(part, part.T, precision=jax.lax.Precision.HIGHEST), None

    starts = jnp.arange(0, columns, stack.width)
    products = jax.lax.scan(add_block, jnp.zeros((slots, slots), jnp.float32), starts)[0]
    lengths = jnp.diag(products)
    return jnp.maximum(lengths[:, None] + lengths[None, :] - (products + products.T), 0.0)


def ranks(stack: Stack, bad: int) -> jax.Array:
    """Place of every row by its score, 0 the best; rows that do not count come last."""
    slots = len(stack.values)
    others = stack.present[:, None] & stack.present[None, :] & ~jnp.eye(slots, dtype=bool)
    ordered = jnp.sort(jnp.where(others, squared_distances(stack), jnp.inf), axis=1)
    place = jnp.arange(slots)
    score = jnp.sum(jnp.where(place < stack.sites - bad - 2, ordered, 0.0), axis=1)
    # Two rows that are each other's only neighbour score alike: the one nearer to all others goes first, so that the
    # order in which sites are listed does not decide.
    total = jnp.sum(jnp.where(place < stack.sites - 1, ordered, 0.0), axis=1)
    order = jnp.lexsort((total, score, ~stack.present))
    return jnp.zeros(slots, jnp.int32).at[order].set(place.astype(jnp.int32))


def krum(*, bad: BadSites = 1) -> Aggregator:
    """The one site's answer closest to its neighbours, with so many bad sites expected (needs 2 * bad + 3 sites)."""
    fewest = fewest_for(bad)

    def reduce(state: Tree, answers: Message) -> tuple[Message, Tree]:
        stack = open_stack(answers)
        best = (ranks(stack, bad) == 0).astype(jnp.float32)
        return close_stack(answers, stack, combine(stack, best), fewest), state

    return Aggregator(init=lambda template: (), reduce=reduce, linear=False, fewest=fewest, products=True)
