"""Majority vote: the class for which most labeling functions vote. Nothing is learned: the baseline to beat.

Each vote counts the same. Where votes tie, or none is cast, the tied classes are as likely as their balance says. Rows
carry a column for each function first, above 0 where it votes (see `weasel`).
"""

import jax.numpy as jnp

from wardround.core.contracts import Array, Batch, Key, Model, Params, Task
from wardround.models.votes import balance_of, class_places, fired

SMALL = 1e-3
"""Weight of the balance beside a vote: it breaks ties and never outvotes anybody."""


def majority_vote(task: Task, *, votes: tuple[str, ...] = (), balance: tuple[float, ...] = ()) -> Model:
    """The class that most labeling functions vote for; a baseline that learns nothing."""
    places, prior = class_places(task, votes, "majority_vote"), balance_of(task, balance, "majority_vote")

    def predict(params: Params, x: Array) -> Array:
        counts = fired(x[:, : len(votes)]) @ places
        shares = counts + SMALL * prior
        return shares / jnp.sum(shares, axis=1, keepdims=True) + 0.0 * params["unused"]

    def loss(params: Params, batch: Batch, key: Key) -> Array:
        return 0.0 * jnp.sum(params["unused"])

    def gradient(params: Params, batch: Batch, key: Key) -> Params:
        return {"unused": jnp.zeros(1)}

    return Model(init=lambda key: {"unused": jnp.zeros(1)}, loss=loss, predict=predict, gradient=gradient)
