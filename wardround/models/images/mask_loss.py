"""Losses of a segmentation: how far a predicted mask is from the one drawn by hand; one number an image.

Cross entropy is the mean over pixels of the log loss of the sigmoid. The Dice loss (Milletari et al., "V-Net", 3DV
2016, with plain sums) is 1 - (2 sum p y + s) / (sum p + sum y + s), with smoothing s = 1 so that an image without the
structure has a loss too. `both` adds them: cross entropy gives every pixel a slope from the start, Dice counts a small
structure as much as a large one.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array

MaskLoss = Literal["both", "dice", "cross_entropy"]
SMOOTHING = 1.0


def pixel_cross_entropy(outputs: Array, masks: Array) -> Array:
    """(rows, height, width) raw outputs and masks to the mean log loss of a pixel, one a row."""
    y = jnp.asarray(masks).astype(jnp.float32)
    return jnp.mean(jax.nn.softplus(outputs) - y * outputs, axis=(1, 2))


def soft_dice_loss(outputs: Array, masks: Array) -> Array:
    """1 - Dice of the probabilities, one a row."""
    y, p = jnp.asarray(masks).astype(jnp.float32), jax.nn.sigmoid(outputs)
    shared, both = jnp.sum(p * y, axis=(1, 2)), jnp.sum(p, axis=(1, 2)) + jnp.sum(y, axis=(1, 2))
    return 1 - (2 * shared + SMOOTHING) / (both + SMOOTHING)


def both_losses(outputs: Array, masks: Array) -> Array:
    return pixel_cross_entropy(outputs, masks) + soft_dice_loss(outputs, masks)


LOSSES: dict[MaskLoss, Callable[[Array, Array], Array]] = {
    "both": both_losses,
    "dice": soft_dice_loss,
    "cross_entropy": pixel_cross_entropy,
}
