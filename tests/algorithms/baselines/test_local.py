"""Every site for itself: each equals its own loop, nobody feels the others, and nothing is sent."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.algorithms.baselines.local import local
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, RoundRecord
from wardround.core.federation import Federation
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation

Numbers = np.ndarray[Any, Any]
SEED, RATE, SIZE, EPOCHS, MOMENTUM = 11, 0.3, 10, 2, 0.5
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 4])), (3, np.array([2, 3, 5, 6]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


@pytest.fixture(scope="module")
def alone(model: Model) -> Algorithm:
    return local(model, learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE, momentum=MOMENTUM)


def trained(algorithm: Algorithm, federation: Federation) -> tuple[Numbers, Numbers, Numbers, list[RoundRecord]]:
    """The common model, every site's own model, all predictions on test rows, and the records."""
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress, records = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS)
        predicted = engine.predict(algorithm, progress, "test").predicted
    clients = jax.device_get(progress.clients)
    own = np.stack([matrix_of({name: table[site] for name, table in clients.items()}) for site in range(7)])
    return matrix_of(algorithm.params(progress.server)), own, predicted, records


@pytest.fixture(scope="module")
def after(alone: Algorithm, ragged: Federation) -> tuple[Numbers, Numbers, Numbers, list[RoundRecord]]:
    return trained(alone, ragged)


def test_every_site_equals_its_own_loop(
    after: tuple[Numbers, Numbers, Numbers, list[RoundRecord]], ragged: Federation
) -> None:
    """Rounds are only more passes; a site that is away in a round does not train in it; momentum starts anew."""
    for site in range(7):
        x, y = rows_at(ragged, site)
        w = START
        for number, cohort in ROUNDS:
            if site not in cohort:
                continue
            velocity = np.zeros_like(w)
            for order in visiting_order(SEED, number, np.array([site]), np.array([len(y)]), EPOCHS):
                for begin in range(0, len(y), SIZE):
                    batch = order[begin : begin + SIZE]
                    velocity = MOMENTUM * velocity + slope(w, x[batch], y[batch])
                    w = w - RATE * velocity
        np.testing.assert_allclose(after[1][site], w, atol=2e-6)
        assert np.abs(w - START).max() > 0.1 or site == 2


def test_each_predicts_with_its_own_model(
    after: tuple[Numbers, Numbers, Numbers, list[RoundRecord]], ragged: Federation
) -> None:
    first, count = ragged.part("test")
    wanted = []
    for site in range(7):
        x = np.hstack([ragged.x[first[site] : first[site] + count[site]], np.ones((count[site], 1))])
        odds = np.exp(x @ after[1][site])
        wanted.append(odds / odds.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(after[2], np.concatenate(wanted), atol=1e-6)


def test_nothing_is_sent_and_the_common_model_never_moves(
    after: tuple[Numbers, Numbers, Numbers, list[RoundRecord]],
) -> None:
    assert [(record.bytes_down, record.bytes_up) for record in after[3]] == [(0, 0)] * 3
    # 40 + 7 + 23 + 1 + 64 + 30 rows; then 40 + 7 + 1; then 23 + 64 + 30.
    assert [record.rows for record in after[3]] == [165, 48, 117]
    assert np.array_equal(after[0], START.astype(np.float32))


def test_a_site_does_not_feel_what_the_others_hold(
    after: tuple[Numbers, Numbers, Numbers, list[RoundRecord]], alone: Algorithm, ragged: Federation
) -> None:
    """All other sites' rows replaced by large numbers with the opposite labels: site 0 stays as it is, to the bit."""
    x, y = ragged.x.copy(), ragged.y.copy()
    x[ragged.first[1] :] *= -3
    y[ragged.first[1] :] = 1 - y[ragged.first[1] :]
    _, own, _, _ = trained(alone, replace(ragged, x=x, y=y))
    assert np.array_equal(own[0], after[1][0])
    assert [site for site in range(7) if np.array_equal(own[site], after[1][site])] == [0, 2]
