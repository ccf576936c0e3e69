"""Logistic regression: one weight a feature and class, the model clinicians know best.

Two classes get two columns of weights and a softmax, like any other number; the classical single column is their
difference. Starts at zeros, where every class is equally likely; the loss is convex, so the start does not matter in
the end. Costs features times classes numbers a message.
"""

from flax import linen as nn

from wardround.core.bounds import NotNegative
from wardround.core.contracts import Array, Model, Task
from wardround.core.errors import Refusal
from wardround.models.from_flax import from_flax, loss_for
from wardround.models.products import product


class Affine(nn.Module):  # type: ignore[misc]
    """Weights times features plus a bias, both starting at zero."""

    outputs: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        flat = x.reshape(x.shape[0], -1)
        layer = nn.Dense(self.outputs, kernel_init=nn.initializers.zeros, name="dense_0", dot_general=product)
        result: Array = layer(flat)
        return result


def logistic(task: Task, *, l2: NotNegative = 0.0) -> Model:
    """Logistic regression for two or more classes (l2: strength of the pull of the weights towards 0)."""
    if task.regression:
        raise Refusal(
            "logistic regression predicts classes, but the target is a number",
            where=f"target {task.target!r}",
            remedy="take the model 'linear' or 'mlp', or declare the task a classification",
        )
    return from_flax(Affine(task.outputs), loss_for(task), task, l2=l2)
