"""A U-Net that marks images, with a generator and a discriminator that make images and masks for it to learn from.

For `asyn_dgan`. The generator (a U-Net of its own) draws an image for a mask: it is given the mask, noise at three
scales and a style, one row of a table, so that each site has a look of its own. Masks are random ellipses
(`ellipses.py`): of each style a row of five numbers says how many, how large and how long they are, and how this varies
(the first five of `simulator.py`). It begins with the settings, and stays so unless `asyn_dgan` fits it. The
discriminator looks at image and mask together, in patches (Isola et al., "Image-to-Image Translation with Conditional
Adversarial Networks", CVPR 2017), each image by itself. With other algorithms the model is a U-Net that learns from
real rows, and generator and discriminator stay as they are.

Names of arrays begin with generator/, discriminator/ and segmenter/ (the U-Net that predicts).
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from wardround.core.bounds import Count, NotNegative, Positive, Share
from wardround.core.components.generation import Generation, arrays_of
from wardround.core.contracts import Array, Batch, Key, Model, Params, Task, intensities
from wardround.core.errors import Refusal
from wardround.models.augmentation import Brightness
from wardround.models.cnn import PatchConv
from wardround.models.images.image_statistics import describe_masks
from wardround.models.images.mask_loss import MaskLoss
from wardround.models.images.simulator import SHAPES, row_of, simulate_masks
from wardround.models.images.u_net import UNetwork, doubled, u_net

SCALES = (0, 2)
"""How often noise is doubled: grain and texture. Two more maps are the same over an image: its light, its contrast."""
MAPS = len(SCALES) + 2


class GeneratorNetwork(nn.Module):  # type: ignore[misc]
    """Maps masks, noise and styles to images from 0 to 1."""

    filters: int
    depth: int
    channels: int
    styles: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, mask: Array, noise: Array, style: Array) -> Array:
        width = 4 + 2 * self.channels
        table = self.param("styles", nn.initializers.normal(1.0), (self.styles, width), jnp.float32)
        look = table[style][:, None, None, :]
        inside = mask[..., None].astype(jnp.float32)
        given = jnp.broadcast_to(look[..., :4], (*mask.shape, 4))
        x = jnp.concatenate([2 * inside - 1, noise, given], axis=-1)
        x = UNetwork(self.filters, self.depth, "none", name="draw")(x, None, True)
        x = nn.Dense(self.channels, name="paint")(x)
        # What is plain about a style, the mean colour outside and inside, need not pass through the network.
        plain = look[..., 4 : 4 + self.channels] + inside * look[..., 4 + self.channels :]
        return jax.nn.sigmoid(x + plain)


class DiscriminatorNetwork(nn.Module):  # type: ignore[misc]
    """Maps images and masks to log-odds that a patch is real, (rows, height / 4, width / 4)."""

    filters: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array, mask: Array) -> Array:
        inside = 2 * mask[..., None].astype(jnp.float32) - 1
        x = jnp.concatenate([2 * x - 1, inside, (2 * x - 1) * inside], axis=-1)
        for step in range(2):
            x = pooled(leaky(PatchConv(self.filters << step, (3, 3), name=f"see_{step}")(x)))
        x = leaky(PatchConv(self.filters << 2, (3, 3), name="see_2")(x))
        odds: Array = nn.Dense(1, name="judge")(x)[..., 0]
        return odds


def leaky(x: Array) -> Array:
    return jax.nn.leaky_relu(x, 0.2)


def pooled(x: Array) -> Array:
    """The mean of every 2 x 2 window."""
    rows, height, width, channels = x.shape
    return jnp.mean(x.reshape(rows, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


def gan_u_net(
    task: Task,
    *,
    filters: Count = 8,
    depth: Count = 2,
    generator_filters: Count = 6,
    generator_depth: Count = 1,
    discriminator_filters: Count = 8,
    styles: Count = 8,
    structures: Count = 6,
    presence: Share = 0.5,
    presence_spread: NotNegative = 0.3,
    radius: Positive = 5.0,
    spread: NotNegative = 0.4,
    elongation: Positive = 2.0,
    loss: MaskLoss = "both",
    flip: bool = False,
    turn: bool = False,
    brightness: Brightness = 0.0,
    l2: NotNegative = 0.0,
) -> Model:
    """A U-Net with a generator of images and masks to learn from (structures: ellipses an image, radius in pixels)."""
    if any(side % 4 for side in task.shape[:2]):
        raise Refusal(
            f"the discriminator halves images twice, and {task.shape[0]} x {task.shape[1]} leaves a rest",
            where="[model] gan_u_net",
            remedy="choose a size in [data] whose sides are multiples of 4",
        )
    segmenter = u_net(task, filters=filters, depth=depth, loss=loss, flip=flip, turn=turn, brightness=brightness, l2=l2)
    size, channels = task.shape[:2], task.shape[2]
    generator = GeneratorNetwork(generator_filters, generator_depth, channels, styles)
    discriminator = DiscriminatorNetwork(discriminator_filters)
    shape = row_of(dict(zip(SHAPES, (presence, presence_spread, radius, spread, elongation), strict=True)))
    names = Generation(lambda *given: given[:2], styles, "generator/styles", shape_table="generator/shapes")

    def part(params: Params, prefix: str) -> Params:
        return {name.removeprefix(prefix): array for name, array in arrays_of(params, prefix).items()}

    def init(key: Key) -> Params:
        own, drawing, judging = jax.random.split(key, 3)
        mask, image = jnp.zeros((1, *size)), jnp.zeros((1, *task.shape))
        drawn = generator.init(drawing, mask, jnp.zeros((1, *size, MAPS)), jnp.zeros(1, jnp.int32))
        judged = discriminator.init(judging, image, mask)
        networks = {
            names.generator: {**flatten_dict(drawn["params"], sep="/"), "shapes": jnp.tile(shape, (styles, 1))},
            names.discriminator: flatten_dict(judged["params"], sep="/"),
            names.segmenter: segmenter.init(own),
        }
        return {prefix + name: array for prefix, arrays in networks.items() for name, array in arrays.items()}

    def draw_masks(rows: Array, key: Key) -> Array:
        return simulate_masks(rows, (size[0], size[1]), structures, key)

    def generate(params: Params, style: Array, key: Key) -> tuple[Array, Array]:
        shaping, grain = jax.random.split(key)
        own = part(params, names.generator)
        mask = draw_masks(jnp.asarray(own.pop("shapes"))[style], shaping)
        nested = unflatten_dict(own, sep="/")
        image: Array = generator.apply({"params": nested}, mask, noise_maps(len(style), task, grain), style)
        return image, mask

    def odds(params: Params, x: Array, mask: Array) -> Array:
        nested = unflatten_dict(part(params, names.discriminator), sep="/")
        found: Array = discriminator.apply({"params": nested}, intensities(x), mask)
        return found

    def unreal(params: Params, batch: Batch) -> Array:
        real = (batch.mask > 0).reshape(-1, 1, 1)
        x, y = jnp.where(real[..., None], batch.x, 0), jnp.where(real, batch.y, 0)
        each = jnp.mean(jax.nn.softplus(-odds(params, x, y)), axis=(1, 2))
        return jnp.sum(each * batch.mask) / jnp.maximum(1.0, jnp.sum(batch.mask))

    def total(params: Params, batch: Batch, key: Key) -> Array:
        own = part(params, names.segmenter)
        return segmenter.loss(own, batch, key) if own else unreal(params, batch)

    return Model(
        init=init,
        loss=total,
        predict=lambda params, x: segmenter.predict(part(params, names.segmenter), x),
        gradient=jax.grad(total),
        generation=names._replace(
            generate=generate,
            realness=lambda params, style, key: odds(params, *generate(params, style, key)),
            describe_masks=describe_masks,
            simulate_masks=draw_masks,
        ),
    )


def noise_maps(rows: int, task: Task, key: Key) -> Array:
    """(rows, height, width, maps) of white noise: fine, coarse, and two numbers for the whole image."""
    height, width = task.shape[:2]
    made = []
    for number, coarse in enumerate(SCALES):
        shape = (rows, -(-height >> coarse), -(-width >> coarse), 1)
        x: Array = jax.random.normal(jax.random.fold_in(key, number), shape)
        for _ in range(coarse):
            x = doubled(x)
        made.append(x[:, :height, :width])
    whole = jax.random.normal(jax.random.fold_in(key, len(SCALES)), (rows, 1, 1, 2))
    return jnp.concatenate([*made, jnp.broadcast_to(whole, (rows, height, width, 2))], axis=-1)
