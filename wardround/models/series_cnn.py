"""A small convolutional network for time series: three convolutions of 4 filters, their mean over time, one layer.

Caldas, "Collaborative learning by leveraging siloed data", 2022, figure D.10: kernels of 8, 5 and 3 samples, each
followed by a normalization and ReLU. Batch normalization, whose running statistics would have to travel, is replaced by
one over the series itself. A row is one series, a number for each sample; it is z-normalised first, unless `normalise`
is off. Costs about 200 numbers a message.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Array, Model, Task
from wardround.core.errors import Refusal
from wardround.models.from_flax import from_flax, loss_for

KERNELS = (8, 5, 3)


class SeriesConv(nn.Module):  # type: ignore[misc]
    """A convolution along time with "same" padding, as shifted copies times one matrix."""

    features: int
    width: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        rows, length, channels = x.shape
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (self.width * channels, self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        x = jnp.pad(x, ((0, 0), ((self.width - 1) // 2, self.width // 2), (0, 0)))
        x = jnp.concatenate([x[:, shift : shift + length] for shift in range(self.width)], axis=-1)
        result: Array = (x.reshape(rows * length, -1) @ kernel).reshape(rows, length, self.features) + bias
        return result


class SeriesNetwork(nn.Module):  # type: ignore[misc]
    """Convolutions, the mean over time, the outputs."""

    filters: int
    outputs: int
    normalise: bool

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        if self.normalise:
            x = x - jnp.mean(x, axis=1, keepdims=True)
            x = x / jnp.sqrt(jnp.mean(jnp.square(x), axis=1, keepdims=True) + 1e-12)
        x = x[..., None]
        for index, width in enumerate(KERNELS):
            x = SeriesConv(self.filters, width, name=f"conv_{index}")(x)
            x = jax.nn.relu(nn.GroupNorm(num_groups=1, name=f"norm_{index}")(x))
        result: Array = nn.Dense(self.outputs, name="dense_0")(jnp.mean(x, axis=1))
        return result


def series_cnn(task: Task, *, filters: Count = 4, normalise: bool = True, l2: NotNegative = 0.0) -> Model:
    """A convolutional network for time series, a column for each sample (filters: of each convolution)."""
    if len(task.shape) != 1:
        raise Refusal(
            f"a series has a number for each sample, but a row has shape {task.shape}",
            where="model series_cnn",
            remedy="take the model 'cnn' for images",
        )
    return from_flax(SeriesNetwork(filters, task.outputs, normalise), loss_for(task), task, l2=l2)
