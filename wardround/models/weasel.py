"""WeaSEL: a label model and an end model that learn from each other, from votes of labeling functions and no labels.

Rühling Cachay, Boecking and Dubrawski, "End-to-End Weak Supervision", NeurIPS 2021; federated in Caldas, "Collaborative
learning by leveraging siloed data", 2022, section 5.2.3. The label model weighs the functions for every row, and the
weighted votes with the class balance give probabilities of the classes; the end model predicts from the features alone.
Each takes the other's probabilities for the truth: the sum of both cross entropies, without a gradient through the one
that is taken for the truth. Rows on which no function votes teach nothing. Predictions are those of the end model; with
`predict_from` "votes" those of the label model where a function votes, for records on which the rules are applied too.

The functions' weights on a row are a softmax of the label model's outputs divided by `temperature`, times a scale. The
paper's scale is the root of the number of functions ("root"); with many that rarely fire a vote then hardly counts, so
by default it is their number, where a vote counts as 1 on the average. A high temperature is nearly a majority vote.

Rows carry votes and features side by side: first a column for each function, above 0 where it votes for its class
(`votes` says which; filled in from the study's rules), then the features. So every algorithm, aggregator and transform,
[privacy] and secure sums work as with any model. Costs the numbers of both models a message.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from wardround.core.bounds import NotNegative, Positive
from wardround.core.contracts import Array, Batch, Key, Model, Params, Task
from wardround.core.errors import Refusal
from wardround.models.logistic import Affine
from wardround.models.mlp import Perceptron
from wardround.models.series_cnn import SeriesNetwork
from wardround.models.votes import balance_of, class_places, fired, log_posterior

EndModel = Literal["mlp", "logistic", "series_cnn"]
LearnFrom = Literal["votes", "majority", "labels"]
Scale = Literal["count", "root"]
PredictFrom = Literal["features", "votes"]
LABEL_MODEL, END_MODEL = "label_model", "end_model"


def weasel(
    task: Task,
    *,
    votes: tuple[str, ...] = (),
    balance: tuple[float, ...] = (),
    temperature: Positive = 10.0,
    scale: Scale = "count",
    hidden: tuple[int, ...] = (20, 20),
    end_model: EndModel = "mlp",
    end_hidden: tuple[int, ...] = (20, 20),
    learn_from: LearnFrom = "votes",
    predict_from: PredictFrom = "features",
    l2: NotNegative = 0.0,
) -> Model:
    """Learns from votes of labeling functions (balance: of the classes; learn_from labels: the supervised ceiling)."""
    places, prior = class_places(task, votes, "weasel"), balance_of(task, balance, "weasel")
    many = len(votes)
    if task.shape[0] <= many:
        raise Refusal(
            f"there are {task.shape[0]} columns and {many} of them are votes, so the end model has nothing to see",
            where="model weasel",
            remedy="give the study features beside its rules: columns, or [data.cleaning.texts]",
        )
    if predict_from == "votes" and learn_from == "labels":
        raise Refusal(
            "a model that learns from labels has no label model to predict with",
            where="model weasel",
            remedy='leave predict_from out, or say learn_from = "votes"',
        )
    end, labels = end_network(end_model, tuple(end_hidden), task), Perceptron(tuple(hidden), many, 0.0)

    def apply(module: nn.Module, part: str, params: Params, x: Array) -> Array:
        own = {name.removeprefix(f"{part}/"): one for name, one in params.items() if name.startswith(f"{part}/")}
        outputs: Array = module.apply({"params": unflatten_dict(own, sep="/")}, x)
        return outputs

    def init(key: Key) -> Params:
        one, two = jax.random.split(key)
        made: Params = {}
        for part, module, given, width in (
            (LABEL_MODEL, labels, one, task.shape[0]),
            (END_MODEL, end, two, task.shape[0] - many),
        ):
            found = flatten_dict(module.init(given, jnp.zeros((1, width)))["params"], sep="/")
            made |= {f"{part}/{name}": array for name, array in found.items()}
        return made

    def labelled_by_votes(params: Params, cast: Array, seen: Array) -> Array:
        """(rows, classes): log probabilities by the label model."""
        if learn_from == "majority":
            return log_posterior(cast, jnp.ones(many), places, prior)
        scores = apply(labels, LABEL_MODEL, params, jnp.concatenate([cast, seen], axis=1))
        weights = (many if scale == "count" else many**0.5) * jax.nn.softmax(scores / temperature)
        return log_posterior(cast, weights, places, prior)

    def row_losses(params: Params, x: Array, y: Array) -> Array:
        cast, seen = fired(x[:, :many]), x[:, many:]
        predicted = jax.nn.log_softmax(apply(end, END_MODEL, params, seen))
        if learn_from == "labels":  # an unknown label is -1, for which there is no place
            return -jnp.sum(jax.nn.one_hot(y, len(task.classes)) * predicted, axis=1)
        voted = jnp.max(cast, axis=1)
        if learn_from == "majority":
            return voted * cross(predicted, jnp.exp(labelled_by_votes(params, cast, seen)))
        labelled = labelled_by_votes(params, cast, seen)
        return voted * (cross(predicted, jnp.exp(labelled)) + cross(labelled, jnp.exp(predicted)))

    def loss(params: Params, batch: Batch, key: Key) -> Array:
        real = batch.mask > 0
        losses = row_losses(params, jnp.where(real[:, None], batch.x, 0), jnp.where(real, batch.y, 0))
        rows = jnp.sum(batch.mask)
        mean = jnp.sum(losses * batch.mask) / jnp.where(rows == 0, 1.0, rows)
        if not l2:
            return mean
        weights = [one for name, one in params.items() if not name.endswith("/bias")]
        return mean + jnp.where(rows == 0, 0.0, l2 / 2) * sum(jnp.sum(jnp.square(one)) for one in weights)

    def predict(params: Params, x: Array) -> Array:
        predicted = jax.nn.softmax(apply(end, END_MODEL, params, x[:, many:]))
        if predict_from == "features":
            return predicted
        cast = fired(x[:, :many])
        return jnp.where(
            jnp.any(cast > 0, axis=1, keepdims=True),
            jnp.exp(labelled_by_votes(params, cast, x[:, many:])),
            predicted,
        )

    return Model(init=init, loss=loss, predict=predict, gradient=jax.grad(loss))


def cross(log_probabilities: Array, truth: Array) -> Array:
    """Cross entropy of each row against what is taken for the truth."""
    return -jnp.sum(jax.lax.stop_gradient(truth) * log_probabilities, axis=1)


def end_network(name: EndModel, hidden: tuple[int, ...], task: Task) -> Any:
    if name == "mlp":
        return Perceptron(hidden, task.outputs, 0.0)
    return Affine(task.outputs) if name == "logistic" else SeriesNetwork(4, task.outputs, True)
