"""The values of every coordinate in order of size, over the sites that count.

Batcher, "Sorting networks and their applications", AFIPS 1968: odd-even merge sort. The network is a fixed list of
(smaller, larger) exchanges, so whole rows are compared at once with minimum and maximum: for a hundred sites some
twenty times faster than sorting every column by itself.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from wardround.aggregators.stacks import Stack
from wardround.core.contracts import Array

Layer = list[tuple[int, int]]


def network(rows: int) -> list[Layer]:
    """Layers of exchanges (i, j), i < j, that sort any `rows` numbers; those of one layer touch different rows."""
    layers: list[Layer] = []
    run = 1
    while run < rows:
        step = run
        while step >= 1:
            layer: Layer = []
            for start in range(step % run, rows - step, 2 * step):
                for low in range(start, min(start + step, rows - step)):
                    # Only within one pair of sorted runs that are being merged.
                    if low // (2 * run) == (low + step) // (2 * run):
                        layer.append((low, low + step))
            layers.append(layer)
            step //= 2
        run *= 2
    return layers


def sort_rows(block: Array) -> jax.Array:
    """Every column of (rows, columns) in ascending order; no NaN allowed."""
    # A loop over the layers, though they are known: written out, the compiler fuses them into each other, computes the
    # same exchanges again and again, and needs minutes for a hundred rows.
    layers = network(len(block))
    partner = np.tile(np.arange(len(block)), (len(layers), 1))
    upper = np.zeros(partner.shape, bool)
    for index, layer in enumerate(layers):
        for low, high in layer:
            partner[index, low], partner[index, high] = high, low
            upper[index, high] = True

    def exchange(block: jax.Array, layer: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        other = block[layer[0]]
        return jnp.where(layer[1][:, None], jnp.maximum(block, other), jnp.minimum(block, other)), None

    return jax.lax.scan(exchange, jnp.asarray(block), (jnp.asarray(partner), jnp.asarray(upper)))[0]


def by_columns(stack: Stack, choose: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """One row, made by `choose` from a block of sorted rows; rows that do not count come last, as infinity."""
    slots, columns = stack.values.shape

    def block(start: jax.Array) -> jax.Array:
        part = jax.lax.dynamic_slice(stack.values, (0, start), (slots, stack.width))
        return choose(sort_rows(jnp.where(stack.present[:, None], part, jnp.inf)))

    return jax.lax.map(block, jnp.arange(0, columns, stack.width)).reshape(-1)


def middle(ordered: Array, count: Array) -> jax.Array:
    """The median of the first `count` of ordered rows, the mean of the two middle ones where their number is even."""
    low, high = ordered[jnp.maximum(count - 1, 0) // 2], ordered[count // 2]
    return jnp.where(count > 0, 0.5 * (low + high), 0.0)


def coordinate_median(stack: Stack) -> jax.Array:
    """The median of every coordinate: a point that no minority of sites can drag away."""
    return by_columns(stack, lambda ordered: middle(ordered, stack.sites))
