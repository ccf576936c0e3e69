"""How a model makes up images with their masks, and how real they look to it.

Neither function is given rows of a site: what an algorithm learns from them is a function of parameters and random
numbers alone, so that noise need not cover it (see `privacy/dry_run`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

Array = jax.Array | np.ndarray[Any, Any]
MadeUp = tuple[Array, Array]
"""Images from 0 to 1 of shape (rows, height, width, channels), and their masks (rows, height, width)."""


class Generation(NamedTuple):
    """A generator and what learns from it share a model's parameters, told apart by how their arrays' names begin.

    The model's loss is that of the segmenter where its arrays are among the parameters. Given a discriminator's arrays
    alone, it is how unreal the rows look to it. A generator learns from a discriminator (`realness`), or from
    statistics of images (`describe`).
    """

    generate: Callable[[dict[str, Any], Array, jax.Array], MadeUp]
    """(parameters, the style of each image (rows,), key) to images and masks; uses the generator's arrays only."""
    styles: int
    """How many looks it can learn; a site's is its number modulo this."""
    style_table: str
    """The array of the generator that holds one row for each style."""
    generator: str = "generator/"
    discriminator: str = "discriminator/"
    segmenter: str = "segmenter/"
    realness: Callable[[dict[str, Any], Array, jax.Array], Array] | None = None
    """(parameters, styles, key) to the log-odds that made-up images are real, (rows, ...); a number a patch."""
    describe: Callable[[Array, Array], Array] | None = None
    """(images, masks) to what they look like, (rows, statistics), each from 0 to 1; uses no parameters."""
    simulate: Callable[[Array, jax.Array], MadeUp] | None = None
    """(rows of numbers such as the style table has, key) to images by just these numbers, which a fit compares."""
    shape_table: str = ""
    """Of a generator that is given masks: the array with numbers of the masks of each style;"""
    describe_masks: Callable[[Array], Array] | None = None
    """what masks look like, (rows, statistics), each from 0 to 1;"""
    simulate_masks: Callable[[Array, jax.Array], Array] | None = None
    """and (rows of its numbers, key) to masks."""


def arrays_of(params: dict[str, Any], prefix: str) -> dict[str, Any]:
    """One network's arrays, under their whole names."""
    return {name: array for name, array in params.items() if name.startswith(prefix)}
