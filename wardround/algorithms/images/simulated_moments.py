"""A simulator's numbers from statistics of real images: the method of simulated moments.

McFadden, "A Method of Simulated Moments for Estimation of Discrete Response Models Without Numerical Integration",
Econometrica 1989. The mean statistics of simulated images shall equal those of real ones, each in units of its
standard deviation between images. A step is one of Levenberg and Marquardt: slopes by differences, for masks have no
slope, and of several dampings the one whose images come nearest; none where no step helps. All images of a fit
are drawn with the same random numbers, so that differences tell of the numbers and not of chance.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array
from wardround.core.solvers.linear_system import solution

Describe = Callable[[Array], Array]
"""From one row of numbers to the statistics of many images simulated by it, (images, statistics)."""
WIDTH = 0.2
"""Of a difference, in any number."""
DAMPINGS = (0.01, 0.3, 10.0)
LONGEST = 1.5
"""Of a step, in any number."""
LEAST_SPREAD = 0.02
"""A statistic that does not vary between simulated images still has this standard deviation."""
PULL = 1e-3
"""By how much numbers that nothing tells of are drawn to the middle of their bounds."""


def step_towards(target: Array, row: Array, describe: Describe) -> tuple[Array, Array]:
    """The numbers after one step, and the root mean square distance of their statistics in standard deviations."""

    def moments(at: Array) -> tuple[Array, Array]:
        statistics = describe(at)
        return jnp.mean(statistics, axis=0), jnp.std(statistics, axis=0)

    around = jnp.concatenate([row[None], row + WIDTH * jnp.eye(len(row))])
    means, spreads = jax.lax.map(moments, around)
    unit = jnp.maximum(LEAST_SPREAD, spreads[0])

    def gaps(rows: Array, means: Array) -> Array:
        """Of each row what shall be 0: the distances of its statistics, and a pull on what they do not tell."""
        return jnp.concatenate([(means - target) / unit, PULL * rows], axis=1)

    residuals = gaps(around, means)
    here = residuals[0]
    slopes = (residuals[1:] - here) / WIDTH
    square = slopes @ slopes.T
    scale = jnp.diag(jnp.diag(square) + 1e-3 * jnp.max(jnp.diag(square)) + 1e-9)

    def tried(damping: Array) -> Array:
        move = -solution(square + damping * scale, slopes @ here)
        return row + move * jnp.minimum(1.0, LONGEST / jnp.maximum(1e-9, jnp.max(jnp.abs(move))))

    rows = jax.vmap(tried)(jnp.asarray(DAMPINGS))
    found = jnp.concatenate([here[None], gaps(rows, jax.lax.map(moments, rows)[0])])
    sums = jnp.sum(jnp.square(found), axis=1)
    best = jnp.argmin(sums)
    return jnp.concatenate([row[None], rows])[best], jnp.sqrt(sums[best] / len(target))
