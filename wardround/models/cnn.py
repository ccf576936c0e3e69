"""LEAF's convolutional network: twice a 5 x 5 convolution with ReLU and 2 x 2 max pooling, then two dense layers.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018 (its FEMNIST model). Needs images (height, width) or
(height, width, channels). Layers are conv_0, conv_1, ..., dense_0, dense_1.

Convolutions are those of `convolutions` (decision record 0064 has the times of other ways).
"""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Array, Model, Params, Task, Units
from wardround.core.errors import Refusal
from wardround.models import convolutions
from wardround.models.from_flax import Widths, from_flax, loss_for


class PatchConv(nn.Module):  # type: ignore[misc]
    """A convolution with "same" padding; equals `nn.Conv`, with the same parameters."""

    features: int
    kernel_size: tuple[int, int]
    stride: int = 1
    kernel_init: Any = nn.initializers.lecun_normal()

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        shape = (*self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        tall, wide = (
            margins_of(side, size, self.stride) for side, size in zip(x.shape[1:3], self.kernel_size, strict=True)
        )
        result: Array = convolutions.convolve(x, kernel, self.stride, (tall, wide)) + bias
        return result


def margins_of(side: int, size: int, stride: int) -> tuple[int, int]:
    """Zeros before and after a side, so that a window of `size` stops at every step; an odd one stands behind."""
    total = max(0, (-(-side // stride) - 1) * stride + size - side)
    return total // 2, total - total // 2


def max_pool(x: Array) -> Array:
    """The largest value of every 2 x 2 window; an odd last row or column is left out.

    Where values tie, the gradient is split evenly among them (`reduce_window` would give it to the first).
    """
    rows, height, width, channels = x.shape
    tall, wide = height // 2, width // 2
    windows = x[:, : 2 * tall, : 2 * wide].reshape(rows, tall, 2, wide, 2, channels)
    return jnp.max(windows, axis=(2, 4))


class LeafNetwork(nn.Module):  # type: ignore[misc]
    """Convolutions with pooling, a dense layer, the outputs."""

    channels: tuple[int, ...]
    kernel: int
    dense: int
    outputs: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        if x.ndim == 3:
            x = x[..., None]
        for index, features in enumerate(self.channels):
            x = max_pool(jax.nn.relu(PatchConv(features, (self.kernel, self.kernel), name=f"conv_{index}")(x)))
        x = jax.nn.relu(nn.Dense(self.dense, name="dense_0")(x.reshape(x.shape[0], -1)))
        result: Array = nn.Dense(self.outputs, name="dense_1")(x)
        return result


def cnn(
    task: Task,
    *,
    channels: tuple[int, ...] = (32, 64),
    kernel: Count = 5,
    dense: Count = 512,
    l2: NotNegative = 0.0,
) -> Model:
    """A convolutional network for images, after LEAF (channels: filters of each convolution)."""
    if any(features < 1 for features in channels):
        raise Refusal(
            f"a convolution needs at least one filter, but channels is {list(channels)}",
            where="model cnn",
            remedy="give 1 or more for each, such as channels = [32, 64]",
        )
    if len(task.shape) not in (2, 3):
        raise Refusal(
            f"a convolutional network needs images, but a row has shape {task.shape}",
            where=f"target {task.target!r}",
            remedy="take the model 'mlp' for rows of numbers",
        )
    if min(task.shape[:2]) < 2 ** len(channels):
        raise Refusal(
            f"images of {task.shape[0]} x {task.shape[1]} are too small to be halved {len(channels)} times",
            where=f"target {task.target!r}",
            remedy="give fewer channels, or the model 'mlp'",
        )

    def module(params: Params) -> LeafNetwork:
        filters = tuple(params[f"conv_{index}/bias"].shape[-1] for index in range(len(channels)))
        return LeafNetwork(filters, kernel, params["dense_0/bias"].shape[-1], task.outputs)

    whole, widths = LeafNetwork(tuple(channels), kernel, dense, task.outputs), Widths(units_of(len(channels)), module)
    return from_flax(whole, loss_for(task), task, l2=l2, widths=widths)


def units_of(convolutions: int) -> Units:
    """Filters of the convolutions and units of the dense layer; the pixels of an image hold the last filters each."""
    layers = ["", *(f"conv_{index}" for index in range(convolutions))]
    found: list[tuple[str, tuple[str, ...]]] = []
    for before, own in pairwise(layers):
        found += [(f"{own}/kernel", ("", "", before, own)), (f"{own}/bias", (own,))]
    dense = [("dense_0/kernel", (layers[-1], "dense_0")), ("dense_0/bias", ("dense_0",))]
    return (*found, *dense, ("dense_1/kernel", ("dense_0", "")), ("dense_1/bias", ("",)))
