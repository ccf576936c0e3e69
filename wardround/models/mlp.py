"""A multilayer perceptron: dense layers with ReLU between them, for classes or for a number.

Needs rows of numbers (images are flattened). Layers are named dense_0, dense_1, ... from the input on, so that a
layer split can name them. Costs the sum of the products of neighbouring widths, in numbers a message.
"""

from typing import Annotated

import jax
from flax import linen as nn

from wardround.core.bounds import Bound, NotNegative
from wardround.core.contracts import Array, Model, Params, Task
from wardround.core.errors import Refusal
from wardround.models.from_flax import Widths, from_flax, loss_for
from wardround.models.products import product

DropoutRate = Annotated[float, Bound(low=0, high=1, open_high=True)]


class Perceptron(nn.Module):  # type: ignore[misc]
    """Dense layers with ReLU between them; drops units out only while it is given a key to do so."""

    hidden: tuple[int, ...]
    outputs: int
    dropout: float

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        for index, width in enumerate(self.hidden):
            x = jax.nn.relu(nn.Dense(width, name=f"dense_{index}", dot_general=product)(x))
            if self.dropout:
                x = nn.Dropout(self.dropout, deterministic=not self.has_rng("dropout"))(x)
        result: Array = nn.Dense(self.outputs, name=f"dense_{len(self.hidden)}", dot_general=product)(x)
        return result


def mlp(task: Task, *, hidden: tuple[int, ...] = (64,), dropout: DropoutRate = 0.0, l2: NotNegative = 0.0) -> Model:
    """A neural network of dense layers (hidden: their widths), for classes or for a number."""
    if any(width < 1 for width in hidden):
        raise Refusal(
            f"a hidden layer needs at least one unit, but hidden is {list(hidden)}",
            where="model mlp",
            remedy="give widths of 1 or more, such as hidden = [64, 32]",
        )
    layers = [*(f"dense_{index}" for index in range(len(hidden))), ""]
    units = [
        one
        for index, (before, own) in enumerate(zip(["", *layers], layers, strict=False))
        for one in ((f"dense_{index}/kernel", (before, own)), (f"dense_{index}/bias", (own,)))
    ]

    def module(params: Params) -> Perceptron:
        widths = tuple(params[f"dense_{index}/bias"].shape[-1] for index in range(len(hidden)))
        return Perceptron(widths, task.outputs, dropout)

    whole = Perceptron(tuple(hidden), task.outputs, dropout)
    return from_flax(whole, loss_for(task), task, l2=l2, widths=Widths(tuple(units), module))
