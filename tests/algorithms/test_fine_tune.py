"""Fine-tuning: FedAvg's model to the bit, and personal models that equal a loop over each site's own rows."""

from typing import Any

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fine_tune import fine_tune
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Message, Model, Params, Progress, Shard
from wardround.core.federation import Federation
from wardround.core.order import visiting_order
from wardround.engine.predictions import PERSONAL_ROUND
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.mlp import mlp

Numbers = np.ndarray[Any, Any]
SEED, RATE, SIZE = 11, 0.3, 10
PERSONAL_RATE, PERSONAL_EPOCHS, MOMENTUM = 0.2, 3, 0.5
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 4]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def tuned(common: Numbers, x: Numbers, y: Numbers, orders: Numbers) -> Numbers:
    """The common model trained on with one site's rows, batch after batch."""
    own, velocity = common.astype(np.float64), np.zeros(common.shape)
    for order in orders:
        for begin in range(0, len(y), SIZE):
            batch = order[begin : begin + SIZE]
            velocity = MOMENTUM * velocity + slope(own, x[batch], y[batch])
            own = own - PERSONAL_RATE * velocity
    return own


@pytest.fixture(scope="module")
def personal(model: Model) -> Algorithm:
    return fine_tune(
        model,
        weighted_mean(),
        personal_epochs=PERSONAL_EPOCHS,
        personal_learning_rate=PERSONAL_RATE,
        learning_rate=RATE,
        batch_size=SIZE,
        momentum=MOMENTUM,
    )


def trained(algorithm: Algorithm, federation: Federation) -> tuple[Progress, Numbers, Numbers]:
    """The state after the rounds, every site's predictions on its test rows, and where each site's begin."""
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS)
        scores = engine.predict(algorithm, progress, "test")
    return progress, scores.predicted, scores.first


@pytest.fixture(scope="module")
def after(personal: Algorithm, ragged: Federation) -> tuple[Progress, Numbers, Numbers]:
    return trained(personal, ragged)


def test_the_common_model_is_that_of_fed_avg(
    after: tuple[Progress, Numbers, Numbers], personal: Algorithm, ragged: Federation, model: Model
) -> None:
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=SIZE, momentum=MOMENTUM)
    progress, predicted, _ = trained(plain, ragged)
    one, other = matrix_of(personal.params(after[0].server)), matrix_of(plain.params(progress.server))
    assert np.array_equal(one, other)
    assert np.abs(predicted - after[1]).max() > 0.05


def test_personal_predictions_equal_a_loop_at_every_site(
    after: tuple[Progress, Numbers, Numbers], personal: Algorithm, ragged: Federation
) -> None:
    progress, predicted, edges = after
    common = matrix_of(personal.params(progress.server))
    first, count = ragged.part("test")
    for site in range(7):
        x, y = rows_at(ragged, site)
        orders = visiting_order(SEED, PERSONAL_ROUND, np.array([site]), np.array([len(y)]), PERSONAL_EPOCHS)
        held_out = ragged.x[first[site] : first[site] + count[site]]
        odds = np.exp(np.hstack([held_out, np.ones((count[site], 1))]) @ tuned(common, x, y, orders))
        wanted = odds / odds.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(predicted[edges[site] : edges[site + 1]], wanted, atol=3e-6)


def shard_at(federation: Federation, site: int, orders: Numbers) -> Shard:
    first, rows = (int(column[site]) for column in federation.part("train"))
    return one_site(federation.x[first : first + rows], federation.y[first : first + rows], orders, site=site)


def fitted(algorithm: Algorithm, params: Params, shard: Shard) -> Params:
    assert algorithm.personal is not None
    return jax.device_get(algorithm.personal.fit(Message({"params": params}), (), shard, jax.random.key(0)))


def test_frozen_weights_stay_and_the_rest_is_trained_as_by_hand(ragged: Federation, model: Model) -> None:
    """With the kernel frozen only the intercepts move: the loop, with the gradient of all other rows struck out."""
    algorithm = fine_tune(
        model,
        weighted_mean(),
        personal_epochs=2,
        personal_learning_rate=PERSONAL_RATE,
        frozen=("dense_0/kernel",),
        batch_size=SIZE,
        momentum=MOMENTUM,
    )
    assert algorithm.personal is not None
    assert algorithm.personal.passes == 2
    x, y = rows_at(ragged, 3)
    orders = visiting_order(SEED, 1, np.array([3]), np.array([len(y)]), 2)
    own, velocity = START.astype(np.float32).astype(np.float64), np.zeros((4, 2))
    for order in orders:
        for begin in range(0, len(y), SIZE):
            batch = order[begin : begin + SIZE]
            velocity = MOMENTUM * velocity + slope(own, x[batch], y[batch]) * np.array([[0], [0], [0], [1]])
            own = own - PERSONAL_RATE * velocity
    after = fitted(algorithm, params_of(START), shard_at(ragged, 3, orders))
    assert np.array_equal(after["dense_0/kernel"], START[:3].astype(np.float32))
    assert np.abs(after["dense_0/bias"] - START[3]).max() > 0.05
    np.testing.assert_allclose(after["dense_0/bias"], own[3], atol=1e-6)


@pytest.mark.parametrize(
    ("frozen", "still"),
    [(("dense_0",), {"dense_0"}), (("dense_0", "dense_1"), {"dense_0", "dense_1"}), ((), set())],
)
def test_a_frozen_layer_keeps_its_bits(frozen: tuple[str, ...], still: set[str], ragged: Federation) -> None:
    network = mlp(ragged.task, hidden=(4,))
    algorithm = fine_tune(network, weighted_mean(), personal_epochs=1, frozen=frozen, batch_size=SIZE, momentum=0.9)
    before = jax.device_get(network.init(jax.random.key(2)))
    after = fitted(algorithm, before, shard_at(ragged, 0, visiting_order(1, 1, np.array([0]), np.array([40]), 1)))
    unchanged = {name for name in before if np.array_equal(before[name], after[name])}
    assert unchanged == {name for name in before if name.split("/")[0] in still}
