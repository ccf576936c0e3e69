"""A model from any Flax module that maps rows to raw outputs: logits for a classification, one value for a regression,
for a segmentation one log-odds a pixel, (rows, height, width).

Needs a `flax.linen` module whose only variables are parameters (no batch norm: its running statistics would have to
travel and be averaged too). Dropout works in either of Flax's ways: the module asks `self.has_rng("dropout")`, or its
`__call__` takes `train` or `deterministic`. A module without dropout never touches the key and pays nothing for it.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from wardround.core import trees
from wardround.core.bounds import NotNegative
from wardround.core.contracts import Array, Batch, Key, Model, Params, Task, Units, intensities
from wardround.core.errors import Refusal

RowLoss = Callable[[Array, Array], Array]
"""(outputs, y) to one loss a row."""


def cross_entropy(outputs: Array, y: Array) -> Array:
    """Minus the logarithm of the probability that the softmax of the outputs gives to the right class."""
    # One-hot, not integer labels: the gradient of a gather is a scatter, up to twice as slow inside compiled loops.
    losses: Array = optax.softmax_cross_entropy(outputs, jax.nn.one_hot(y, outputs.shape[-1]))
    return losses


def squared_error(outputs: Array, y: Array) -> Array:
    """The squared difference, without a half."""
    return jnp.square(outputs[:, 0] - y)


def interval_entropy(outputs: Array, y: Array) -> Array:
    """Cross entropy over intervals of time: a label of (intervals + k) says that the event comes in k or a later one.

    Kvamme and Borgan, "Continuous and discrete-time survival prediction with neural networks", 2021: the likelihood of
    a discrete time whose probabilities are a softmax.
    """
    classes = outputs.shape[-1]
    own, censored = jnp.arange(classes), (y >= classes)[:, None]
    first = y[:, None] - jnp.where(censored, classes, 0)
    possible = (own == first) | ((own > first) & censored)
    return -jax.nn.logsumexp(jax.nn.log_softmax(outputs), axis=-1, where=possible)


def loss_for(task: Task) -> RowLoss:
    """The usual loss of a task: squared error for a regression, cross entropy for classes and intervals of time."""
    refuse_masks(task)
    return squared_error if task.regression else interval_entropy if task.survival else cross_entropy


def refuse_masks(task: Task) -> None:
    """Refuse, for a model that gives one answer a row, a task that asks for one a pixel."""
    if task.segmentation:
        raise Refusal(
            "this model gives one answer for an image, and the target is a mask with one for each pixel",
            where=f"target {task.target!r}",
            remedy="take the model 'u_net', or name a column of the labels as the target",
        )


class Widths(NamedTuple):
    """Where the units of a module lie in its arrays, and the module for arrays with more or fewer of them."""

    units: Units
    module: Callable[[Params], nn.Module]


def from_flax(
    module: nn.Module, loss: RowLoss, task: Task, *, l2: NotNegative = 0.0, widths: Widths | None = None
) -> Model:
    """A model from a Flax module and a loss for each row; l2 adds l2/2 times the squared weights, biases left out."""
    training, resting = _modes(module)
    _check(module, task, training, resting)

    def apply(params: Params, x: Array, **options: Any) -> Array:
        fitting = module if widths is None else widths.module(params)
        outputs: Array = fitting.apply({"params": unflatten_dict(params, sep="/")}, intensities(x), **options)
        return outputs

    def init(key: Key) -> Params:
        params: Params = flatten_dict(_variables(module, task, key, resting)["params"], sep="/")
        return params

    def mean_loss(params: Params, batch: Batch, key: Key) -> Array:
        # What stands in padded rows is replaced before the model sees it: 0 times an overflow would be NaN.
        real = batch.mask > 0
        x = jnp.where(real.reshape(-1, *(1,) * (batch.x.ndim - 1)), batch.x, 0)
        y = jnp.where(real.reshape(-1, *(1,) * (batch.y.ndim - 1)), batch.y, 0)
        losses = loss(apply(params, x, rngs={"dropout": key}, **training), y)
        rows = jnp.sum(batch.mask)
        mean = jnp.sum(losses * batch.mask) / jnp.where(rows == 0, 1.0, rows)
        if not l2:
            return mean
        weights = {name: array for name, array in params.items() if name.rsplit("/", 1)[-1] != "bias"}
        return mean + jnp.where(rows == 0, 0.0, l2 / 2) * trees.squared_norm(weights)

    def predict(params: Params, x: Array) -> Array:
        return predictions_of(apply(params, x, **resting), task)

    units = () if widths is None else widths.units
    return Model(init=init, loss=mean_loss, predict=predict, gradient=jax.grad(mean_loss), units=units)


def predictions_of(outputs: Array, task: Task) -> Array:
    """What a task predicts, from the raw outputs of a network."""
    if task.segmentation:
        return jax.nn.sigmoid(outputs)
    return outputs[:, 0] if task.regression else jax.nn.softmax(outputs)


def _modes(module: nn.Module) -> tuple[dict[str, bool], dict[str, bool]]:
    """What to pass to the module while it learns and while it predicts, told from the names of its arguments."""
    arguments = inspect.signature(type(module).__call__).parameters
    if "train" in arguments:
        return {"train": True}, {"train": False}
    if "deterministic" in arguments:
        return {"deterministic": False}, {"deterministic": True}
    return {}, {}


def _variables(module: nn.Module, task: Task, key: Key, resting: dict[str, bool]) -> dict[str, Any]:
    variables: dict[str, Any] = module.init(key, jnp.zeros((1, *task.shape), jnp.float32), **resting)
    return variables


def _check(module: nn.Module, task: Task, training: dict[str, bool], resting: dict[str, bool]) -> None:
    """Refuses what cannot be trained as a flat set of parameters, before the first round and without computing."""
    where = f"Flax module {type(module).__name__}"

    def shapes(key: Key) -> tuple[dict[str, Any], Array, Array]:
        x = jnp.zeros((2, *task.shape), jnp.float32)
        variables = _variables(module, task, key, resting)
        learning = module.apply(variables, x, rngs={"dropout": key}, mutable=True, **training)[0]
        predicting = module.apply(variables, x, mutable=True, **resting)[0]
        return variables, learning, predicting

    try:
        variables, learning, predicting = jax.eval_shape(lambda: shapes(jax.random.key(0)))
    except Exception as error:
        raise Refusal(
            f"the module does not take rows of shape {task.shape}: {(str(error) or repr(error)).splitlines()[0]}",
            where=where,
            remedy="let it map (rows, *shape) to (rows, outputs), with dropout off unless self.has_rng('dropout')",
        ) from error
    others = sorted(set(variables) - {"params"})
    if others:
        layers = sorted(
            {"/".join(path[:-1]) or "the module" for kind in others for path in flatten_dict(variables[kind])}
        )
        raise Refusal(
            f"the module keeps variables that are not parameters: {', '.join(others)} of {', '.join(layers)}",
            where=where,
            remedy="use a normalization without running statistics, such as nn.GroupNorm or nn.LayerNorm",
        )
    if not variables:
        raise Refusal("the module has no parameters to learn", where=where, remedy="add a layer such as nn.Dense")
    wanted = (2, *task.label_shape) if task.segmentation else (2, task.outputs)
    for outputs in (learning, predicting):
        if getattr(outputs, "shape", None) != wanted:
            end = "one log-odds a pixel, without sigmoid" if task.segmentation else f"nn.Dense({task.outputs})"
            raise Refusal(
                f"the module gives {getattr(outputs, 'shape', 'no array')} for two rows, not {wanted}",
                where=where,
                remedy=f"end it with {end}{'' if task.segmentation else ', without softmax'}",
            )
