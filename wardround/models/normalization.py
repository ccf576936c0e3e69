"""Normalization in networks that hospitals train together: batch norm, its statistics in the open, and group norm.

Batch norm (Ioffe and Szegedy, ICML 2015) predicts with a mean and a variance of what training saw. Here these two are
parameters like any other, named `mean` and `var`: they travel, are averaged, compressed, or kept at the site (`fed_bn`)
as the study says, and nothing of a model is hidden from whoever counts what leaves. While the network learns it uses
the batch's own statistics, and the gradient of `mean` is statistics_rate (mean - batch mean), so that a step of rate r
moves it by r * statistics_rate of the way, and momentum does not act on it: choose statistics_rate near
0.1 / learning_rate. Padded rows do not count.

A row's gradient then depends on the other rows of its batch, which no bound per patient covers: such a model names
these layers in `coupled`, and a study with [privacy] refuses it. Group norm (Wu and He, ECCV 2018) looks at one row
only, has no statistics, and is the way out.
"""

from math import prod
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from wardround.core import trees
from wardround.core.contracts import Array, Batch, Key, Model, Params, Task, intensities
from wardround.models.from_flax import RowLoss, predictions_of

Normalization = Literal["batch", "group", "none"]
EPSILON = 1e-3
"""Added to variances, as Keras does."""
GROUPS = 8
"""Of group norm, at most; as many as divide the number of channels."""


class OpenBatchNorm(nn.Module):  # type: ignore[misc]
    """Batch norm over all axes but the last, whose running statistics are parameters."""

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array, mask: Array | None) -> Array:
        size = (x.shape[-1],)
        scale, bias = (self.param(name, make, size) for name, make in (("scale", ones), ("bias", zeros)))
        mean, var = (self.param(name, make, size) for name, make in (("mean", zeros), ("var", ones)))
        if mask is not None:
            axes = tuple(range(x.ndim - 1))
            share = mask.reshape(-1, *(1,) * (x.ndim - 1))
            places = jnp.maximum(1.0, jnp.sum(mask)) * prod(x.shape[1:-1])
            own = jnp.sum(x * share, axes) / places
            spread = jnp.sum(jnp.square(x - own) * share, axes) / places
            seen = (jnp.sum(mask) > 0).astype(x.dtype)
            for kept, found in ((mean, own), (var, spread)):
                lag = jnp.sum(jnp.square(kept - jax.lax.stop_gradient(found))) / 2
                self.sow("lag", "statistics", seen * lag)
            mean, var = own, spread
        result: Array = (x - mean) * (jax.lax.rsqrt(var + EPSILON) * scale) + bias
        return result


class RowGroupNorm(nn.Module):  # type: ignore[misc]
    """Group norm: each row by itself, channels in groups."""

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        channels = x.shape[-1]
        groups = next(count for count in range(min(GROUPS, channels), 0, -1) if channels % count == 0)
        scale, bias = (self.param(name, make, (channels,)) for name, make in (("scale", ones), ("bias", zeros)))
        pixels = x.reshape(x.shape[0], -1, channels)

        def mean_of_group(values: Array) -> Array:
            # Over pixels first, channel by channel: so the compiler adds many numbers at once.
            sums = jnp.sum(values, axis=1).reshape(-1, groups, channels // groups)
            means = jnp.mean(sums, axis=2, keepdims=True) / pixels.shape[1]
            return jnp.broadcast_to(means, sums.shape).reshape(-1, 1, channels)

        centred = pixels - mean_of_group(pixels)
        spread = jax.lax.rsqrt(mean_of_group(jnp.square(centred)) + EPSILON)
        result: Array = (centred * (spread * scale) + bias).reshape(x.shape)
        return result


ones, zeros = nn.initializers.ones, nn.initializers.zeros


def normalized(x: Array, mask: Array | None, kind: Normalization, name: str) -> Array:
    """The layer's output after normalization of this kind."""
    if kind == "none":
        return x
    result: Array = OpenBatchNorm(name=name)(x, mask) if kind == "batch" else RowGroupNorm(name=name)(x)
    return result


def from_normalized(
    module: nn.Module, loss: RowLoss, task: Task, *, statistics_rate: float = 1.0, l2: float = 0.0
) -> Model:
    """A model from a module whose `__call__` takes rows and, while it learns, which of them count."""

    def apply(params: Params, x: Array, mask: Array | None) -> tuple[Array, Array]:
        outputs, told = module.apply({"params": unflatten_dict(params, sep="/")}, x, mask, mutable=["lag"])
        return outputs, jnp.asarray(sum(jax.tree.leaves(told), start=jnp.zeros(())))

    def both(params: Params, batch: Batch) -> tuple[Array, Array]:
        real = batch.mask > 0
        x = jnp.where(real.reshape(-1, *(1,) * (batch.x.ndim - 1)), intensities(batch.x), 0)
        y = jnp.where(real.reshape(-1, *(1,) * (batch.y.ndim - 1)), batch.y, 0)
        outputs, lag = apply(params, x, batch.mask)
        rows = jnp.sum(batch.mask)
        mean = jnp.sum(loss(outputs, y) * batch.mask) / jnp.where(rows == 0, 1.0, rows)
        if l2:
            weights = {name: array for name, array in params.items() if name.rsplit("/", 1)[-1] == "kernel"}
            mean = mean + jnp.where(rows == 0, 0.0, l2 / 2) * trees.squared_norm(weights)
        return mean, lag

    def init(key: Key) -> Params:
        variables = module.init(key, jnp.zeros((1, *task.shape), jnp.float32), None)
        params: Params = flatten_dict(variables["params"], sep="/")
        return params

    def total(params: Params, batch: Batch, key: Key) -> Array:
        mean, lag = both(params, batch)
        return mean + statistics_rate * lag

    def predict(params: Params, x: Array) -> Array:
        outputs, _ = apply(params, intensities(x), None)
        return predictions_of(outputs, task)

    return Model(
        init=init,
        loss=lambda params, batch, key: both(params, batch)[0],
        predict=predict,
        gradient=jax.grad(total),
        coupled=layers_with_statistics(init),
    )


def layers_with_statistics(init: Any) -> tuple[str, ...]:
    """The layers that keep a running mean, in the network's order; traced, not computed."""
    names: list[str] = []
    jax.eval_shape(lambda: names.extend(init(jax.random.key(0))))
    return tuple(name.rsplit("/", 1)[0] for name in names if name.endswith("/mean"))
