"""Means over a real site's patients as they may leave it, inside a compiled program: see `queries.cells` and, for the
same over one model's losses, `coarse_mean_loss` of the site's disclosure.

Values far out, where fewer patients than a cell have them, count as the last of the others; the mean is told on a grid
on which one patient makes at most half a step. It is infinite where a whole cell of values is.
"""

from typing import Any

import jax.numpy as jnp

from wardround.core.contracts import Array
from wardround.queries.cells import FAR


def coarse_means(values: Array, mask: Array, rows: Any, cell: int) -> Array:
    """Over the last axis, of values that are not negative; `mask` says which of its places are the site's `rows`."""
    ordered = jnp.sort(jnp.where(mask, values, jnp.inf), axis=-1)
    last = jnp.maximum(rows - 1, 0)

    def at(place: Any) -> Array:
        return jnp.take(ordered, jnp.clip(place, 0, last), axis=-1)

    top = at(rows - cell)
    ordered = jnp.where(jnp.isinf(ordered), top[..., None], ordered)
    beyond = jnp.minimum(cell - 1, last // 2)
    first, third = at(last // 4), at(last - last // 4)
    room = FAR * (third - first)
    low = jnp.minimum(at(beyond), first - room)
    high = jnp.minimum(jnp.maximum(at(last - beyond), third + room), at(last))
    clipped = jnp.clip(values, low[..., None], high[..., None])
    count = jnp.maximum(rows, 1).astype(jnp.float32)
    mean = jnp.sum(jnp.where(mask, clipped, 0.0), axis=-1) / count
    step = step_above(2 * high / count)
    told = jnp.where(step > 0, jnp.round(mean / jnp.where(step > 0, step, 1.0)) * step, mean)
    return jnp.where(jnp.isinf(top), jnp.inf, told)


def step_above(least: Array) -> Array:
    """The smallest power of two that is at least so large; 0 for 0."""
    finite = jnp.where(jnp.isfinite(least), least, 0.0)
    part, power = jnp.frexp(finite)
    return jnp.where(finite > 0, jnp.ldexp(jnp.ones_like(finite), jnp.where(part == 0.5, power - 1, power)), 0.0)
