"""A simulator of labelled images: bright (or dark) ellipses on a plain ground, out of focus, with noise, as bytes.

Twelve numbers say what a site's images look like (`NAMES`). Of every image: each of `most` ellipses is there with a
probability that is log-normal over images (`density`, its mean, and `density_spread`), their shapes are those of
`ellipses.py` (`radius`, `radius_spread`, `elongation`), the light multiplies everything (`light_spread`), the ground
has a level of its own (`ground`, `ground_spread`), each ellipse stands out by `contrast` times an own factor
(`own_spread`), all is blurred by a Gaussian (`blur`, pixels) and gets white noise (`noise`), and is rounded to bytes as
a file of pixels is. A mask is 1 inside any ellipse. Spreads are standard deviations of logarithms.

The numbers lie between bounds; what is learned is unbounded: the logit of where a number's logarithm lies between them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array, Key
from wardround.models.images.ellipses import Ellipses, depths

BOUNDS: dict[str, tuple[float, float]] = {
    "density": (0.005, 1.0),
    "density_spread": (0.05, 2.0),
    "radius": (1.0, 32.0),
    "radius_spread": (0.03, 1.0),
    "elongation": (0.05, 4.0),
    "ground": (0.004, 0.95),
    "ground_spread": (0.03, 2.0),
    "contrast": (0.01, 1.0),
    "light_spread": (0.03, 2.0),
    "own_spread": (0.03, 1.0),
    "blur": (0.2, 3.0),
    "noise": (0.001, 0.3),
}
"""Between what values a number lies; of `elongation`, its excess over 1."""
NAMES = tuple(BOUNDS)
SHAPES = NAMES[:5]
"""Those of the masks."""
REACH = 6
"""Pixels to each side that a blur looks at: two of the largest."""
LEVELS = 255


class Scene(NamedTuple):
    """What does not vary from site to site."""

    size: tuple[int, int]
    most: int
    """Ellipses on an image, at most."""
    dark: bool = False
    """Whether structures are darker than the ground."""


def numbers_of(row: Array) -> dict[str, Array]:
    """The simulator's numbers from one unbounded row of a table, (..., 12), or the first of them."""
    names = NAMES[: jnp.shape(row)[-1]]
    low, high = (jnp.log(jnp.asarray([BOUNDS[name][side] for name in names])) for side in (0, 1))
    found = jnp.exp(low + jax.nn.sigmoid(jnp.asarray(row)) * (high - low))
    told = {name: found[..., place] for place, name in enumerate(names)}
    return {**told, "elongation": 1 + told["elongation"]}


def row_of(numbers: Mapping[str, float]) -> Array:
    """The other way round, of the numbers that are given; one at or beyond a bound is taken just inside it."""
    row = []
    for name, (low, high) in BOUNDS.items():
        if name not in numbers:
            continue
        value = numbers[name] - (name == "elongation")
        share = np.clip(np.log(max(value, 1e-9) / low) / np.log(high / low), 1e-3, 1 - 1e-3)
        row.append(np.log(share / (1 - share)))
    return np.asarray(row, np.float32)


def shapes_of(rows: Array, size: tuple[int, int], most: int, key: Key) -> Array:
    """(images, most, height, width): inside which of its ellipses a pixel lies, for rows of numbers (images, 5)."""
    of, (shaping, crowding) = numbers_of(rows), jax.random.split(key)
    spread = of["density_spread"]
    crowd = jax.random.normal(crowding, (len(rows),))
    present = of["density"] * jnp.exp(spread * crowd - jnp.square(spread) / 2)
    numbers = (_column(one) for one in (present, of["radius"], of["radius_spread"], of["elongation"]))
    return depths(Ellipses(most, *numbers), len(rows), size, shaping) > 0


def simulate_masks(rows: Array, size: tuple[int, int], most: int, key: Key) -> Array:
    """(images, height, width), 1 inside any ellipse."""
    return jnp.any(shapes_of(rows, size, most, key), axis=1).astype(jnp.uint8)


def simulate(rows: Array, scene: Scene, key: Key) -> tuple[Array, Array]:
    """One image (height, width) from 0 to 1 and its mask for each row of unbounded numbers, (images, 12)."""
    of, images = numbers_of(rows), len(rows)
    shaping, lighting, owning, graining = jax.random.split(key, 4)
    light, ground = jax.random.normal(lighting, (2, images))
    inside = shapes_of(rows[:, : len(SHAPES)], scene.size, scene.most, shaping)
    own = jnp.exp(_column(of["own_spread"]) * jax.random.normal(owning, (images, scene.most, 1, 1)))
    stands_out = jnp.max(jnp.where(inside, own, 0.0), axis=1) * of["contrast"][:, None, None]
    level = of["ground"] * jnp.exp(of["ground_spread"] * ground)
    shape = blurred(stands_out, of["blur"])
    plain = level[:, None, None] + (-shape if scene.dark else shape)
    lit = jnp.exp(of["light_spread"] * light)[:, None, None] * plain
    grain = of["noise"][:, None, None] * jax.random.normal(graining, lit.shape)
    image = jnp.round(LEVELS * jnp.clip(lit + grain, 0.0, 1.0)) / LEVELS
    return image, jnp.any(inside, axis=1).astype(jnp.uint8)


def blurred(images: Array, width: Array) -> Array:
    """Every image by its own Gaussian, pixel for pixel along both axes; beyond its border it goes on as at the edge."""
    reach = jnp.arange(-REACH, REACH + 1)
    weights = jnp.exp(-jnp.square(reach) / (2 * jnp.square(width)[:, None]))
    weights = weights / jnp.sum(weights, axis=1, keepdims=True)
    found = jnp.asarray(images)
    for axis in (1, 2):
        size = found.shape[axis]
        padded = jnp.pad(found, [(0, 0), *((REACH, REACH) if at == axis else (0, 0) for at in (1, 2))], mode="edge")
        parts = (jax.lax.slice_in_dim(padded, at, at + size, axis=axis) for at in range(2 * REACH + 1))
        found = sum((weights[:, at, None, None] * part for at, part in enumerate(parts)), jnp.zeros(()))
    return found


def _column(numbers: Array) -> Array:
    """As `depths` wants numbers that differ from image to image."""
    return numbers[:, None, None, None]
