"""What sites tell of the look of their images, and what the server makes of it: shared by `fed_sim` and `asyn_dgan`.

A site's look (style) is its number modulo the model's styles. It tells means over all its training images of statistics
from 0 to 1, in the place of its style, and nothing of fewer images than a cell. Means are in steps of which one image
makes half at most; where a patient may have several images (`each`), cells and steps are so many times larger, so that
the same holds for patients. With a cell of 1 they are exact.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from wardround.algorithms.images.simulated_moments import Describe, step_towards
from wardround.core import trees
from wardround.core.contracts import Array, Message, Shard, Tree
from wardround.core.descent import CHUNK, batches

DescribeRows = Callable[[Array, Array], Array]
"""From images and masks to statistics, (rows, statistics)."""


def mean_statistics(shard: Shard, describe: DescribeRows, cell: int, each: int) -> Array:
    """The site's means as they leave."""

    def add(index: Array, total: Array) -> Array:
        batch = shard.batch(0, index, CHUNK)
        counts = batch.mask[:, None]
        return total + jnp.sum(jnp.where(counts > 0, describe(batch.x, batch.y), 0.0), axis=0)

    count = jax.eval_shape(lambda: describe(shard.batch(0, 0, 1).x, shard.batch(0, 0, 1).y)).shape[1]
    total = jax.lax.fori_loop(0, batches(shard.longest, CHUNK), add, jnp.zeros(count))
    rows = jnp.asarray(shard.rows).astype(jnp.float32)
    mean: Array = trees.divide_or_zero(total, rows)
    if cell == 1:
        return mean
    step = jnp.exp2(jnp.ceil(jnp.log2(2 * each / jnp.maximum(1.0, rows))))
    return jnp.round(mean / step) * step


def told_statistics(
    name: str, shard: Shard, describe: DescribeRows, styles: int, cell: int, each: int
) -> dict[str, Array]:
    """The arrays of an answer: means in the place of the site's style, and whether it tells them."""
    enough = (jnp.asarray(shard.rows) >= cell * each).astype(jnp.float32)
    place = enough * (jnp.arange(styles) == jnp.asarray(shard.site) % styles)
    return {name: place[:, None] * mean_statistics(shard, describe, cell, each), "told": place}


def heard_statistics(name: str, bank: Array, known: Array, combined: Message) -> tuple[Array, Array]:
    """What is known of every style, and of which anything is: what sites tell now, or what they told before.

    Every statistic lies between 0 and 1, whatever a site that lies says of it.
    """
    told = combined.arrays["told"]
    heard = told > 0
    fresh = jnp.clip(combined.arrays[name] / jnp.where(heard, told, 1.0)[:, None], 0.0, 1.0)
    return jnp.where(heard[:, None], fresh, bank), jnp.maximum(known, heard.astype(jnp.float32))


def fitted_rows(known: Array, bank: Array, start: tuple[Array, Array], describe: Describe, steps: Array | int) -> Tree:
    """The numbers of every style, and how far their statistics are from the bank's, after steps towards it.

    `describe` gives the statistics of images drawn by one row of numbers.
    """

    def fitted(one: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        there, target, row, distance = one

        def search() -> tuple[Array, Array]:
            begin = row, distance
            found: tuple[Array, Array] = jax.lax.fori_loop(
                0, steps, lambda _, at: step_towards(target, at[0], describe), begin
            )
            return found

        nearer: tuple[Array, Array] = jax.lax.cond(there > 0, search, lambda: (row, distance))
        return nearer

    rows, distance = start
    return jax.lax.map(fitted, (known, bank, rows, distance))
