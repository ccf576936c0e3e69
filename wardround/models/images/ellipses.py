"""Masks that nobody drew: a random number of ellipses on a grid of pixels, from random numbers alone.

Every image has 0 to `most` ellipses. Of each, the centre is uniform over the image, the mean radius (the geometric mean
of its half axes) is log-normal, the ratio of its axes is uniform from 1 to `elongation`, and so is the direction. A
pixel belongs to the mask where its centre lies in any of them. No patient's mask is used.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array, Key


class Ellipses(NamedTuple):
    """What masks look like; any of it but `most` may be a traced number."""

    most: int = 6
    presence: Array | float = 0.5
    """The probability of each of the `most` ellipses."""
    radius: Array | float = 5.0
    """In pixels, the median of mean radii."""
    spread: Array | float = 0.4
    """The standard deviation of their logarithm."""
    elongation: Array | float = 2.0


def depths(of: Ellipses, rows: int, size: tuple[int, int], key: Key) -> Array:
    """(rows, most, height, width): 1 less the squared distance from each centre in units of the half axes.

    Positive inside, 0 on the edge; -inf everywhere for an ellipse that is not there.
    """
    there, place, long, ratio, turn = jax.random.split(key, 5)
    shape = (rows, of.most, 1, 1)
    present = jax.random.uniform(there, shape) < of.presence
    centre = jax.random.uniform(place, (2, *shape)) * jnp.asarray(size, jnp.float32).reshape(2, 1, 1, 1, 1)
    radius = of.radius * jnp.exp(of.spread * jax.random.normal(long, shape))
    stretch = jnp.sqrt(1 + (of.elongation - 1) * jax.random.uniform(ratio, shape))
    angle = jnp.pi * jax.random.uniform(turn, shape)
    down = jnp.arange(size[0])[:, None] + 0.5 - centre[0]
    right = jnp.arange(size[1])[None, :] + 0.5 - centre[1]
    along = (down * jnp.cos(angle) + right * jnp.sin(angle)) / (radius * stretch)
    across = (right * jnp.cos(angle) - down * jnp.sin(angle)) * stretch / radius
    return jnp.where(present, 1 - jnp.square(along) - jnp.square(across), -jnp.inf)


def masks(of: Ellipses, rows: int, size: tuple[int, int], key: Key) -> Array:
    """(rows, height, width), 1 inside any ellipse."""
    return (jnp.max(depths(of, rows, size, key), axis=1) > 0).astype(jnp.uint8)
