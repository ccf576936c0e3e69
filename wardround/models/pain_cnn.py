"""The two networks that recognize pain in faces: three convolutions with stride 2, pooling, two dense layers.

The federated personalization study of faces, tables 4.1 ("initial": no padding, batch norm after the first dense layer;
2,617,089 parameters at 215 x 215) and 4.2 ("revised": "same" padding, batch norm after every layer; 3,027,585), running
statistics counted. One output and a sigmoid, so two classes only. Layers are conv_0, norm_0, ..., dense_0, norm_3,
dense_1; share the convolutions with `layer_split` and shared = ["conv_0", "norm_0", "conv_1", ...].

`loss`: cross entropy, the same with `positive_weight` for the second class, or hinge. For the settings of
augmentation see `augmentation`, for those of normalization see `normalization`.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from wardround.core.bounds import Count, NotNegative, Positive
from wardround.core.contracts import Array, Model, Task
from wardround.core.errors import Refusal
from wardround.models import convolutions
from wardround.models.augmentation import Augmentation, Brightness, Degrees, Kept, with_augmentation
from wardround.models.from_flax import RowLoss, cross_entropy, refuse_masks
from wardround.models.images.max_pool import largest_of_four
from wardround.models.normalization import Normalization, from_normalized, normalized

KERNEL = 5
Loss = Literal["cross_entropy", "weighted", "hinge"]


class StridedConv(nn.Module):  # type: ignore[misc]
    """A convolution with stride 2; equals `nn.Conv` with the same parameters."""

    features: int
    same: bool

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        _, height, width, channels = x.shape
        shape = (KERNEL, KERNEL, channels, self.features)
        kernel = self.param("kernel", nn.initializers.glorot_uniform(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        tall, wide = (same_margins(size) if self.same else (0, 0) for size in (height, width))
        result: Array = convolutions.convolve(x, kernel, 2, (tall, wide)) + bias
        return result


def halved(size: int, same: bool) -> int:
    """Pixels that are left of a side after a stride of 2."""
    return (size + 1) // 2 if same else (size - KERNEL) // 2 + 1


def same_margins(size: int) -> tuple[int, int]:
    """As TensorFlow pads: an odd margin is larger at the end."""
    total = max(0, (halved(size, True) - 1) * 2 + KERNEL - size)
    return total // 2, total - total // 2


class PainNetwork(nn.Module):  # type: ignore[misc]
    """(rows, height, width, channels) to the logits 0 and z, whose softmax is the sigmoid of z."""

    filters: tuple[int, ...]
    dense: int
    revised: bool
    normalization: Normalization

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array, mask: Array | None) -> Array:
        for index, features in enumerate(self.filters):
            x = StridedConv(features, self.revised, name=f"conv_{index}")(x)
            if self.revised:
                x = normalized(x, mask, self.normalization, f"norm_{index}")
            x = jax.nn.relu(x)
        x = largest_of_four(x)
        x = nn.Dense(self.dense, name="dense_0", kernel_init=nn.initializers.glorot_uniform())(x.reshape(len(x), -1))
        x = jax.nn.relu(normalized(x, mask, self.normalization, f"norm_{len(self.filters)}"))
        z: Array = nn.Dense(1, name="dense_1", kernel_init=nn.initializers.glorot_uniform())(x)
        return jnp.concatenate([jnp.zeros_like(z), z], axis=-1)


def row_loss(kind: Loss, positive_weight: float) -> RowLoss:
    """One loss a row from the two logits."""
    if kind == "cross_entropy":
        return cross_entropy
    if kind == "weighted":
        return lambda outputs, y: cross_entropy(outputs, y) * jnp.where(y > 0, positive_weight, 1.0)
    return lambda outputs, y: jnp.maximum(0.0, 1.0 - (2.0 * y - 1.0) * (outputs[:, 1] - outputs[:, 0]))


def pain_cnn(
    task: Task,
    *,
    architecture: Literal["revised", "initial"] = "revised",
    normalization: Normalization = "batch",
    filters: tuple[int, ...] = (32, 64, 128),
    dense: Count = 128,
    loss: Loss = "cross_entropy",
    positive_weight: Positive = 1.0,
    statistics_rate: NotNegative = 1.0,
    flip: bool = False,
    rotation: Degrees = 0.0,
    crop: NotNegative = 0,
    brightness: Brightness = 0.0,
    downsample: Kept = 1.0,
    l2: NotNegative = 0.0,
) -> Model:
    """Strided convolutions and two dense layers, for two classes of images (architecture, normalization, loss)."""
    refuse_masks(task)
    if not task.binary or len(task.shape) != 3:
        raise Refusal(
            f"pain_cnn tells two classes of images apart, but a row has shape {task.shape} and there are"
            f" {len(task.classes)} classes",
            where=f"target {task.target!r}",
            remedy="take the model 'cnn' for more classes, 'mlp' for rows of numbers, or name a positive label",
        )
    network: Any = PainNetwork(tuple(filters), dense, architecture == "revised", normalization)

    def make(own: Task) -> Model:
        side = min(own.shape[:2])
        for _ in filters:
            side = halved(side, architecture == "revised")
        if side < 2:
            raise Refusal(
                f"images of {own.shape[0]} x {own.shape[1]} are too small for {len(filters)} halvings and a pooling",
                where=f"target {own.target!r}",
                remedy="take larger images, or fewer filters",
            )
        rows = row_loss(loss, positive_weight)
        return from_normalized(network, rows, own, statistics_rate=statistics_rate, l2=l2)

    return with_augmentation(make, task, Augmentation(flip, rotation, int(crop), brightness, downsample))
