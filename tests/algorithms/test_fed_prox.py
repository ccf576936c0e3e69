"""FedProx: without its spring FedAvg to the bit, with it the loop of its formula and numbers by hand."""

from typing import Any

import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fed_prox import fed_prox
from wardround.core.answers import Weights
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, Task
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear

Numbers = np.ndarray[Any, Any]
SEED = 11
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 4])), (3, np.array([2, 3, 5, 6]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def learned(algorithm: Algorithm, federation: Federation, start: Numbers, rounds: list[tuple[int, Numbers]]) -> Numbers:
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(start)), rounds)
    return matrix_of(algorithm.params(progress.server))


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_without_a_spring_it_is_fed_avg_to_the_bit(weights: Weights, ragged: Federation, model: Model) -> None:
    slack = fed_prox(
        model,
        weighted_mean(),
        mu=0.0,
        learning_rate=0.3,
        local_epochs=2,
        batch_size=10,
        momentum=0.5,
        weights=weights,
    )
    plain = fed_avg(
        model, weighted_mean(), learning_rate=0.3, local_epochs=2, batch_size=10, momentum=0.5, weights=weights
    )
    assert np.array_equal(learned(slack, ragged, START, ROUNDS), learned(plain, ragged, START, ROUNDS))


def test_equals_the_loop_over_ragged_sites(ragged: Federation, model: Model) -> None:
    """Li et al., algorithm 2 with mini-batch descent as the local solver: h(w) = F(w) + mu/2 |w - w_t|^2."""
    mu, rate, momentum, epochs, size = 2.0, 0.2, 0.5, 2, 10
    w = START
    for number, cohort in ROUNDS:
        total, patients = np.zeros_like(w), 0
        for site in cohort:
            x, y = rows_at(ragged, site)
            own, velocity = w, np.zeros_like(w)
            for order in visiting_order(SEED, number, np.array([site]), np.array([len(y)]), epochs):
                for begin in range(0, len(y), size):
                    batch = order[begin : begin + size]
                    velocity = momentum * velocity + slope(own, x[batch], y[batch]) + mu * (own - w)
                    own = own - rate * velocity
            total, patients = total + len(y) * own, patients + len(y)
        w = total / patients
    algorithm = fed_prox(
        model, weighted_mean(), mu=mu, learning_rate=rate, local_epochs=epochs, batch_size=size, momentum=momentum
    )
    assert np.abs(w - START).max() > 0.05
    np.testing.assert_allclose(learned(algorithm, ragged, START, ROUNDS), w, atol=2e-6)


def one_line() -> Federation:
    """Rows (-1, 0) and (1, 2): y = 1 + x, and mean (w x + b - y)^2 = (w - 1)^2 + (b - 1)^2."""
    nothing = (np.zeros((0, 1)), np.zeros(0))
    rows = (np.array([[-1.0], [1.0]]), np.array([0.0, 2.0]))
    return assemble([("va", [rows, nothing, nothing])], Task((1,)))


@pytest.mark.parametrize(("mu", "wanted"), [(0.0, 0.75), (1.0, 0.625), (2.0, 0.5)])
def test_two_steps_by_hand(mu: float, wanted: float) -> None:
    """From 0 at rate 1/4, weight and intercept alike: the gradient of (w - 1)^2 + mu/2 w^2 is 2 (w - 1) + mu w.

    The first step feels no spring: 0 + 2/4 = 1/2. The second: 1/2 - (-1 + mu/2) / 4 = 3/4 - mu/8.
    """
    task = one_line()
    algorithm = fed_prox(linear(task.task), weighted_mean(), mu=mu, learning_rate=0.25, local_epochs=2, batch_size=0)
    assert learned(algorithm, task, np.zeros((2, 1)), [(1, np.arange(1))])[:, 0].tolist() == [wanted, wanted]


@pytest.mark.parametrize("mu", [2.0, 38.0, 398.0])
def test_a_strong_spring_keeps_sites_near_the_common_model(mu: float) -> None:
    """Many passes end at the minimum of (w - 1)^2 + mu/2 w^2, which is 2 / (2 + mu): 1/2, 1/20, 1/200.

    At rate 1 / (2 (2 + mu)) every pass halves the distance to it; after 30 passes nothing is left in float32.
    """
    task = one_line()
    rate = 1 / (2 * (2 + mu))
    algorithm = fed_prox(linear(task.task), weighted_mean(), mu=mu, learning_rate=rate, local_epochs=30, batch_size=0)
    after = learned(algorithm, task, np.zeros((2, 1)), [(1, np.arange(1))])[:, 0]
    np.testing.assert_allclose(after, 2 / (2 + mu), rtol=1e-5)
