"""The all-convolutional network for small images: nine convolutions, no pooling, no dense layer.

Springenberg, Dosovitskiy, Brox, Riedmiller, "Striving for Simplicity: The All Convolutional Net", ICLR 2015 workshop
(All-CNN-C, made of its "Model C"): 3 x 3 convolutions of c, c and c filters, the third with stride 2; of 2c, 2c and 2c,
the sixth with stride 2; of 2c; 1 x 1 of 2c and of one filter a class, whose mean over the image is the output. ReLU
between all of them. With c = 96 it has 1,369,738 parameters on 32 x 32 colour images and ten classes. The paper's
dropout, weight decay, whitening and schedule are left out; weights begin as He et al. (2015) draw them, since nine
layers of smaller ones would pass on hardly anything, and intensities from 0 to 1 are taken as numbers from -2 to 2:
around 0 and of about unit spread, as those weights assume (else training hardly moves for a thousand steps). Layers are
conv_0 to conv_8.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import linen as nn

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Array, Model, Params, Task, Units
from wardround.core.errors import Refusal
from wardround.models.cnn import PatchConv
from wardround.models.from_flax import Widths, from_flax, loss_for

KERNELS = (3, 3, 3, 3, 3, 3, 3, 1, 1)
STRIDES = (1, 1, 2, 1, 1, 2, 1, 1, 1)
TIMES = (1, 1, 1, 2, 2, 2, 2, 2)
"""Filters of a layer, in times of the first's."""


class AllConvNetwork(nn.Module):  # type: ignore[misc]
    """Convolutions, and the mean over the image."""

    filters: tuple[int, ...]

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        drawn = nn.initializers.he_normal()
        last = len(self.filters) - 1
        x = 4.0 * (x - 0.5)
        for index, (features, size, stride) in enumerate(zip(self.filters, KERNELS, STRIDES, strict=True)):
            x = PatchConv(features, (size, size), stride, drawn, name=f"conv_{index}")(x)
            x = x if index == last else jax.nn.relu(x)
        return jnp.mean(x, axis=(1, 2))


def all_conv(task: Task, *, filters: Count = 96, l2: NotNegative = 0.0) -> Model:
    """The all-convolutional network "Model C" for small images (filters: of the first layer; 96 in the paper)."""
    if len(task.shape) != 3:
        raise Refusal(
            f"a convolutional network needs images (height, width, channels), but a row has shape {task.shape}",
            where=f"target {task.target!r}",
            remedy="take the model 'mlp' for rows of numbers",
        )

    def module(params: Params) -> AllConvNetwork:
        return AllConvNetwork(tuple(params[f"conv_{index}/bias"].shape[-1] for index in range(len(KERNELS))))

    whole = AllConvNetwork((*(filters * times for times in TIMES), task.outputs))
    return from_flax(whole, loss_for(task), task, l2=l2, widths=Widths(units_of_all_conv(), module))


def units_of_all_conv() -> Units:
    """Filters of all convolutions but the last, whose filters are the classes."""
    layers = ["", *(f"conv_{index}" for index in range(len(KERNELS) - 1)), ""]
    found: list[tuple[str, tuple[str, ...]]] = []
    for index, (before, own) in enumerate(pairwise(layers)):
        found += [(f"conv_{index}/kernel", ("", "", before, own)), (f"conv_{index}/bias", (own,))]
    return tuple(found)
