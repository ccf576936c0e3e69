"""Augmentation inside the compiled round: every time a site looks at an image, it may see it flipped, turned, brighter.

As in the pain study: half of all looks are mirrored (`flip`), half are turned by `rotation` degrees to the left or to
the right (bilinear; what turns in from outside is black), and all images are cut to the middle `crop` pixels, so that a
turn leaves no empty corner. `brightness` adds a number between -brightness and brightness to all intensities (0 to 1).
Draws come from the key of the step, so that a run repeats to the same bits, simulated or at a site. A prediction sees
the middle of the image as it is.

`downsample` is downsampling by chance, anew in every pass: of all looks at an image without the outcome (the first of
two classes) so many count, and the others are passed over, in the loss as in the statistics of batch norm. It needs no
number of the site's images, tells none, and holds under [privacy], since a row's draw depends on no other row.

Only one angle is ever needed, since a turn to the right is a mirrored turn to the left: the turn is one gather with
places that are known when the program is compiled.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.bounds import Bound
from wardround.core.contracts import Array, Batch, Key, Model, Params, Task, intensities
from wardround.core.errors import Refusal

Degrees = Annotated[float, Bound(low=0, high=180)]
Brightness = Annotated[float, Bound(low=0, high=1)]
Kept = Annotated[float, Bound(low=0, high=1, open_low=True)]


class Augmentation(NamedTuple):
    """What may happen to an image; nothing by default. `crop` 0 keeps its size."""

    flip: bool = False
    rotation: float = 0.0
    crop: int = 0
    brightness: float = 0.0
    downsample: float = 1.0


def with_augmentation(make: Callable[[Task], Model], task: Task, change: Augmentation) -> Model:
    """The model for the cropped task, which sees changed images while it learns."""
    if change == Augmentation():
        return make(task)
    if len(task.shape) != 3:
        raise Refusal(
            f"only images can be flipped, turned or cropped, but a row has shape {task.shape}",
            where=f"target {task.target!r}",
            remedy="remove flip, rotation, crop, brightness and downsample from [model]",
        )
    if change.crop > min(task.shape[:2]):
        raise Refusal(
            f"images of {task.shape[0]} x {task.shape[1]} pixels cannot be cropped to {change.crop}",
            where="[model] crop",
            remedy="choose a smaller crop, or a larger size in [data]",
        )
    shape = (change.crop or task.shape[0], change.crop or task.shape[1], task.shape[2])
    plain = make(task._replace(shape=shape))
    turned = Turn.of(task.shape, shape, change.rotation) if change.rotation else None

    def changed(batch: Batch, key: Key) -> tuple[Batch, Key]:
        own, rest = jax.random.split(key)
        if change.downsample < 1:
            batch = batch._replace(mask=batch.mask * looked_at(batch.y, jax.random.fold_in(own, 1), change.downsample))
        return batch._replace(x=augment(intensities(batch.x), own, change, shape, turned)), rest

    def loss(params: Params, batch: Batch, key: Key) -> Array:
        return plain.loss(params, *changed(batch, key))

    def gradient(params: Params, batch: Batch, key: Key) -> Params:
        return plain.gradient(params, *changed(batch, key))

    def predict(params: Params, x: Array) -> Array:
        return plain.predict(params, middle(x, shape))

    return plain._replace(loss=loss, gradient=gradient, predict=predict)


def augment(x: Array, key: Key, change: Augmentation, shape: tuple[int, ...], turned: "Turn | None") -> Array:
    """Images of `shape`, each changed by draws of its own."""
    draws = jax.random.uniform(key, (4, len(x)))

    def half(index: int) -> Array:
        return (draws[index] < 0.5).reshape(-1, 1, 1, 1)

    if change.flip:
        x = jnp.where(half(0), x[:, :, ::-1], x)
    plain = middle(x, shape)
    if turned is not None:
        right = half(1)
        made = turned.apply(jnp.where(right, x[:, :, ::-1], x))
        plain = jnp.where(half(2), jnp.where(right, made[:, :, ::-1], made), plain)
    if change.brightness:
        more = (2 * draws[3] - 1) * change.brightness
        plain = jnp.clip(plain + more.reshape(-1, 1, 1, 1), 0.0, 1.0)
    return plain


def looked_at(y: Array, key: Key, share: float) -> Array:
    """1 for every row with the outcome, and by chance for so many of the others."""
    return jnp.where((y > 0) | (jax.random.uniform(key, y.shape) < share), 1.0, 0.0)


def middle(x: Array, shape: tuple[int, ...]) -> Array:
    """The middle of every image; an odd margin is larger below and on the right."""
    top, left = ((x.shape[1 + axis] - shape[axis]) // 2 for axis in (0, 1))
    return x[:, top : top + shape[0], left : left + shape[1]]


class Turn(NamedTuple):
    """For every pixel of the result its four neighbours in the source, and their weights."""

    places: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]
    shape: tuple[int, ...]

    @staticmethod
    def of(source: tuple[int, ...], shape: tuple[int, ...], degrees: float) -> "Turn":
        """A turn to the left (against the clock) about the middle of the image."""
        angle = np.deg2rad(degrees)
        top, left = ((source[axis] - shape[axis]) // 2 for axis in (0, 1))
        centre = (source[0] - 1) / 2, (source[1] - 1) / 2
        down, right = np.meshgrid(np.arange(shape[0]) + top, np.arange(shape[1]) + left, indexing="ij")
        y, x = down - centre[0], right - centre[1]
        # Where a pixel of the result comes from: turned back, to the right. Rows count downwards.
        from_x, from_y = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
        from_y, from_x = from_y + centre[0], from_x + centre[1]
        first_y, first_x = np.floor(from_y).astype(int), np.floor(from_x).astype(int)
        places, weights = [], []
        for step_y in (0, 1):
            for step_x in (0, 1):
                at_y, at_x = first_y + step_y, first_x + step_x
                weight = (1 - np.abs(from_y - at_y)) * (1 - np.abs(from_x - at_x))
                inside = (at_y >= 0) & (at_y < source[0]) & (at_x >= 0) & (at_x < source[1])
                places.append(np.where(inside, at_y * source[1] + at_x, 0).ravel())
                weights.append(np.where(inside, weight, 0.0).ravel())
        return Turn(np.stack(places).astype(np.int32), np.stack(weights).astype(np.float32), tuple(shape))

    def apply(self, x: Array) -> Array:
        flat = x.reshape(x.shape[0], -1, x.shape[-1])
        made = sum(flat[:, place] * weight[:, None] for place, weight in zip(self.places, self.weights, strict=True))
        result: Array = jnp.asarray(made).reshape(x.shape[0], *self.shape[:2], x.shape[-1])
        return result
