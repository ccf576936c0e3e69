"""Augmentation of images together with their masks, inside the compiled round.

Every look at an image may be mirrored (`flip`: left and right, and above and below, each half of the time), turned by
90 degrees (`turn`, half of the time; square images only), or brighter or darker (`brightness`). Its mask moves with it,
pixel by pixel, so that nothing is interpolated. Draws come from the key of the step; a prediction sees the image as is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from wardround.core.contracts import Array, Batch, Key, Model, Params, Task, intensities
from wardround.core.errors import Refusal


class MaskAugmentation(NamedTuple):
    """What may happen to an image and its mask; nothing by default."""

    flip: bool = False
    turn: bool = False
    brightness: float = 0.0


def with_mask_augmentation(model: Model, task: Task, change: MaskAugmentation) -> Model:
    """The model, which sees changed images with changed masks while it learns."""
    if change == MaskAugmentation():
        return model
    if change.turn and task.shape[0] != task.shape[1]:
        raise Refusal(
            f"images of {task.shape[0]} x {task.shape[1]} cannot be turned by 90 degrees and keep their shape",
            where="[model] turn",
            remedy="remove turn, or choose a square size in [data]",
        )

    def changed(batch: Batch, key: Key) -> tuple[Batch, Key]:
        own, rest = jax.random.split(key)
        return moved(batch, own, change), rest

    def loss(params: Params, batch: Batch, key: Key) -> Array:
        return model.loss(params, *changed(batch, key))

    def gradient(params: Params, batch: Batch, key: Key) -> Params:
        return model.gradient(params, *changed(batch, key))

    return model._replace(loss=loss, gradient=gradient)


def moved(batch: Batch, key: Key, change: MaskAugmentation) -> Batch:
    """Each image and its mask changed by draws of their own."""
    x, y = intensities(batch.x), batch.y
    draws = jax.random.uniform(key, (4, len(x)))

    def choose(index: int, image: Array, mask: Array) -> tuple[Array, Array]:
        yes = draws[index] < 0.5
        return jnp.where(yes.reshape(-1, 1, 1, 1), image, x), jnp.where(yes.reshape(-1, 1, 1), mask, y)

    if change.flip:
        x, y = choose(0, x[:, :, ::-1], y[:, :, ::-1])
        x, y = choose(1, x[:, ::-1], y[:, ::-1])
    if change.turn:
        x, y = choose(2, jnp.rot90(x, axes=(1, 2)), jnp.rot90(y, axes=(1, 2)))
    if change.brightness:
        more = (2 * draws[3] - 1) * change.brightness
        x = jnp.clip(x + more.reshape(-1, 1, 1, 1), 0.0, 1.0)
    return batch._replace(x=x, y=y)
