"""A U-Net that marks images, with a simulator of labelled images for it to learn from.

For `fed_sim`. The simulator draws ellipses on a plain ground (`simulator.py`); one row of a table of twelve numbers
says what a site's images look like. Images of three channels get the same value in each: colour is not simulated. With
other algorithms the model is a U-Net that learns from real rows, and the simulator stays as it is.

`variety` makes images to learn from differ more than the numbers say: every image has numbers of its own, normal around
its style's (in the unbounded form of `simulator.py`) with this standard deviation. A simulator that matches
averages draws images more alike than real ones, and what learns from them trusts what never varied. The fit does not
use it.

Names of arrays begin with simulator/ and segmenter/ (the U-Net that predicts).
"""

import jax
import jax.numpy as jnp

from wardround.core.bounds import Count, NotNegative
from wardround.core.components.generation import Generation, arrays_of
from wardround.core.contracts import Array, Batch, Key, Model, Params, Task, intensities
from wardround.models.augmentation import Brightness
from wardround.models.images.image_statistics import describe_images
from wardround.models.images.mask_loss import MaskLoss
from wardround.models.images.simulator import NAMES, Scene, simulate
from wardround.models.images.u_net import u_net

TABLE, SEGMENTER = "simulator/styles", "segmenter/"


def sim_u_net(
    task: Task,
    *,
    filters: Count = 8,
    depth: Count = 2,
    styles: Count = 8,
    structures: Count = 16,
    dark: bool = False,
    variety: NotNegative = 0.0,
    loss: MaskLoss = "both",
    flip: bool = False,
    turn: bool = False,
    brightness: Brightness = 0.0,
    l2: NotNegative = 0.0,
) -> Model:
    """A U-Net with a simulator of images and masks to learn from (structures: ellipses at most, dark: on light)."""
    segmenter = u_net(task, filters=filters, depth=depth, loss=loss, flip=flip, turn=turn, brightness=brightness, l2=l2)
    scene = Scene((task.shape[0], task.shape[1]), structures, dark)

    def part(params: Params) -> Params:
        return {name.removeprefix(SEGMENTER): array for name, array in arrays_of(params, SEGMENTER).items()}

    def init(key: Key) -> Params:
        named = {SEGMENTER + name: array for name, array in segmenter.init(key).items()}
        return {TABLE: jnp.zeros((styles, len(NAMES))), **named}

    def generate(params: Params, style: Array, key: Key) -> tuple[Array, Array]:
        drawing, varying = jax.random.split(key)
        rows = jnp.asarray(params[TABLE])[style]
        return exactly(rows + variety * jax.random.normal(varying, rows.shape), drawing)

    def exactly(rows: Array, key: Key) -> tuple[Array, Array]:
        image, mask = simulate(rows, scene, key)
        return jnp.broadcast_to(jnp.asarray(image)[..., None], (*image.shape, task.shape[2])), mask

    def describe(images: Array, masks: Array) -> Array:
        return describe_images(jnp.mean(intensities(images), axis=-1), masks)

    def total(params: Params, batch: Batch, key: Key) -> Array:
        return segmenter.loss(part(params), batch, key)

    def gradient(params: Params, batch: Batch, key: Key) -> Params:
        own = segmenter.gradient(part(params), batch, key)
        still = {name: jnp.zeros_like(array) for name, array in params.items() if not name.startswith(SEGMENTER)}
        return {**still, **{SEGMENTER + name: array for name, array in own.items()}}

    return Model(
        init=init,
        loss=total,
        predict=lambda params, x: segmenter.predict(part(params), x),
        gradient=gradient,
        generation=Generation(
            generate=generate,
            styles=styles,
            style_table=TABLE,
            generator="simulator/",
            describe=describe,
            simulate=exactly,
        ),
    )
