"""What is kept of a segmented image once it was compared with its mask: pixels counted, and a loss. No picture.

Dice and intersection over union of single images follow from these counts, and so do means over patients and their
intervals; pixels, probabilities and masks need not be held for all images at a time, and leave no site. A pixel belongs
to what is looked for where its probability is at least one half.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

Numbers = np.ndarray[Any, Any]
SHARED, FOUND, LOSS = 0, 1, 2
"""Columns of the predictions: pixels found rightly, pixels found, mean log loss of a pixel."""
DRAWN, PIXELS = 0, 1
"""Columns of the truth: pixels of the mask, pixels of the image."""
SMALLEST = 1e-7
"""Probabilities keep so far from 0 and 1 before the logarithm, as those of classes do (see `core.quality`)."""


def pixel_losses(probabilities: Any, masks: Any) -> Any:
    """(rows, height, width) of both to the mean log loss of a pixel, one a row."""
    numpy: Any = np if isinstance(probabilities, np.ndarray) else jnp
    right = numpy.where(masks > 0, probabilities, 1 - probabilities)
    return numpy.mean(-numpy.log(numpy.clip(right, SMALLEST, 1.0)), axis=(1, 2))


def overlap_of(probabilities: Any, masks: Any) -> Any:
    """(rows, height, width) of both to (rows, 3); infinite in the loss where a probability is not a number."""
    drawn = (masks > 0).astype(jnp.float32)
    found = (probabilities >= 0.5).astype(jnp.float32)
    loss = pixel_losses(probabilities, masks)
    broken = ~jnp.all(jnp.isfinite(probabilities), axis=(1, 2))
    sums = [jnp.sum(one, axis=(1, 2)) for one in (drawn * found, found)]
    return jnp.stack([*sums, jnp.where(broken, jnp.inf, loss)], axis=1)


def truth_of(masks: Numbers) -> Numbers:
    """(rows, height, width) to (rows, 2)."""
    drawn = np.count_nonzero(np.asarray(masks), axis=(1, 2)) if len(masks) else np.zeros(0)
    return np.stack([drawn, np.full(len(masks), np.prod(masks.shape[1:]))], axis=1).astype(np.float64)


def dice_of(predicted: Numbers, actual: Numbers) -> Numbers:
    """2 |A and B| / (|A| + |B|) of every image; 1 where nothing is there and nothing was found."""
    return ratio_or_one(2 * predicted[:, SHARED], predicted[:, FOUND] + actual[:, DRAWN])


def union_share_of(predicted: Numbers, actual: Numbers) -> Numbers:
    """|A and B| / |A or B| of every image; 1 where nothing is there and nothing was found."""
    return ratio_or_one(predicted[:, SHARED], predicted[:, FOUND] + actual[:, DRAWN] - predicted[:, SHARED])


def ratio_or_one(part: Numbers, whole: Numbers) -> Numbers:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 1.0)
