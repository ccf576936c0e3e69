"""The largest value of every 2 x 2 window, with a slope that holds however a program is compiled.

JAX's maximum asks, for its slope, which of the values equals the result. A compiler may compute the values anew on the
way back, and round them otherwise, as after a normalization: then none does. `jnp.max` divides by how many there are,
and gives no number; `jnp.maximum` gives 0, silently, and the window learns nothing (a U-Net's step was 0.03 off, where
nothing was fused). Here values are compared with each other only.
"""

import jax.numpy as jnp

from wardround.core.contracts import Array


def largest_of_four(x: Array) -> Array:
    """(rows, height, width, channels) to half of both sides; an odd last row or column is left out."""
    rows, height, width, channels = x.shape
    windows = x[:, : height // 2 * 2, : width // 2 * 2].reshape(rows, height // 2, 2, width // 2, 2, channels)
    lines = larger(windows[:, :, 0], windows[:, :, 1])
    return larger(lines[:, :, :, 0], lines[:, :, :, 1])


def larger(one: Array, other: Array) -> Array:
    """Of equal values the first has the slope."""
    found: Array = jnp.where(one >= other, one, other)
    return found
