"""Linear regression by least squares: the loss is the mean squared error, without a half.

Starts at zeros; the loss is convex. Costs one number a feature and the intercept a message. With l2 it is ridge
regression whose intercept is left alone.
"""

from wardround.core.bounds import NotNegative
from wardround.core.contracts import Model, Task
from wardround.core.errors import Refusal
from wardround.models.from_flax import from_flax, refuse_masks, squared_error
from wardround.models.logistic import Affine


def linear(task: Task, *, l2: NotNegative = 0.0) -> Model:
    """Linear regression of a number (l2: strength of the pull of the weights towards 0)."""
    refuse_masks(task)
    if not task.regression:
        raise Refusal(
            f"linear regression predicts a number, but the target has {len(task.classes)} classes",
            where=f"target {task.target!r}",
            remedy="take the model 'logistic' or 'mlp', or declare the task a regression",
        )
    return from_flax(Affine(1), squared_error, task, l2=l2)
