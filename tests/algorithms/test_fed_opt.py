"""FedOpt: the four server optimizers by hand on one number, and behind FedAvg's sites against a NumPy loop."""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.fed_opt import fed_opt
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Message, Model, Progress
from wardround.core.federation import Federation
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation

Optimizer = Literal["avgm", "adagrad", "adam", "yogi"]
OPTIMIZERS: tuple[Optimizer, ...] = ("avgm", "adagrad", "adam", "yogi")
Numbers = np.ndarray[Any, Any]
SEED, RATE, SIZE = 11, 0.3, 10
PLAIN = identity()
ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 4])), (3, np.array([2, 3, 5, 6]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def trained(algorithm: Algorithm, federation: Federation, rounds: list[tuple[int, Numbers]]) -> Progress:
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(START)), rounds)
    return progress


@pytest.mark.parametrize(
    ("optimizer", "path"),
    [
        # m: 0.3, 0.27 - 0.1 = 0.17, 0.153 + 0.2 = 0.353; the steps are half of each.
        ("avgm", [0.15, 0.15 + 0.085, 0.15 + 0.085 + 0.1765]),
        # v: 0.01 + 0.09 = 0.1, + 0.01 = 0.11, + 0.04 = 0.15; the update itself over sqrt(v) + 0.1.
        (
            "adagrad",
            np.cumsum([0.15 / (math.sqrt(0.1) + 0.1), -0.05 / (math.sqrt(0.11) + 0.1), 0.1 / (math.sqrt(0.15) + 0.1)]),
        ),
        # m: 0.03, 0.027 - 0.01 = 0.017, 0.0153 + 0.02 = 0.0353.
        # v with beta2 = 1/2: 0.005 + 0.045 = 0.05, 0.025 + 0.005 = 0.03, 0.015 + 0.02 = 0.035. No bias correction.
        (
            "adam",
            np.cumsum(
                [0.015 / (math.sqrt(0.05) + 0.1), 0.0085 / (math.sqrt(0.03) + 0.1), 0.01765 / (math.sqrt(0.035) + 0.1)]
            ),
        ),
        # m as in Adam. v: 0.01 < 0.09, so + 0.045 = 0.055; 0.055 > 0.01, so - 0.005 = 0.05;
        # 0.05 > 0.04, so - 0.02 = 0.03.
        (
            "yogi",
            np.cumsum(
                [0.015 / (math.sqrt(0.055) + 0.1), 0.0085 / (math.sqrt(0.05) + 0.1), 0.01765 / (math.sqrt(0.03) + 0.1)]
            ),
        ),
    ],
)
def test_three_updates_of_one_number_by_hand(optimizer: Optimizer, path: list[float], model: Model) -> None:
    """Updates 0.3, -0.1, 0.2 from 0; server rate 1/2, beta1 = 0.9, beta2 = 1/2, tau = 0.1, so that v starts at 0.01."""
    algorithm = fed_opt(
        model, weighted_mean(), optimizer=optimizer, server_learning_rate=0.5, beta1=0.9, beta2=0.5, tau=0.1
    )
    state = algorithm.init({"w": jnp.zeros(1)}, 5)
    for update, wanted in zip((0.3, -0.1, 0.2), path, strict=True):
        combined = Message({"update": {"w": jnp.full(1, update)}, "weight": jnp.float32(12)})
        state = algorithm.server(state, combined)
        assert float(algorithm.params(state)["w"][0]) == pytest.approx(wanted, rel=1e-5)


def test_adams_first_step_has_no_bias_correction(model: Model) -> None:
    """With it, the first step would be u / (|u| + tau) times the rate, about 0.1; v starts at tau^2, not at 0."""
    algorithm = fed_opt(model, weighted_mean(), optimizer="adam")
    state = algorithm.init({"w": jnp.zeros(1)}, 5)
    first = algorithm.server(state, Message({"update": {"w": jnp.ones(1)}, "weight": jnp.float32(1)}))
    # Defaults: rate 0.1, beta 0.9 and 0.99, tau 1e-3: 0.1 * 0.1 / (sqrt(0.99e-6 + 0.01) + 0.001).
    assert float(first["params"]["w"][0]) == pytest.approx(0.01 / (math.sqrt(0.01 + 0.99e-6) + 0.001), rel=1e-5)


def naive(federation: Federation, optimizer: Optimizer, eta: float, tau: float) -> Numbers:
    """Reddi et al., algorithm 2, with one pass of mini-batches at every site; avgm as in Hsu et al."""
    w, m, v = START, np.zeros_like(START), np.full_like(START, tau**2)
    for number, cohort in ROUNDS:
        total, patients = np.zeros_like(w), 0
        for site in cohort:
            x, y = rows_at(federation, site)
            own = w
            order = visiting_order(SEED, number, np.array([site]), np.array([len(y)]), 1)[0]
            for begin in range(0, len(y), SIZE):
                batch = order[begin : begin + SIZE]
                own = own - RATE * slope(own, x[batch], y[batch])
            total, patients = total + len(y) * (own - w), patients + len(y)
        update = total / patients
        if optimizer == "avgm":
            m = 0.9 * m + update
            w = w + eta * m
            continue
        m = update if optimizer == "adagrad" else 0.9 * m + 0.1 * update
        if optimizer == "adagrad":
            v = v + update**2
        elif optimizer == "adam":
            v = 0.99 * v + 0.01 * update**2
        else:
            v = v - 0.01 * update**2 * np.sign(v - update**2)
        w = w + eta * m / (np.sqrt(v) + tau)
    return w


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_equals_the_loop_over_ragged_sites(optimizer: Optimizer, ragged: Federation, model: Model) -> None:
    algorithm = fed_opt(
        model,
        weighted_mean(),
        optimizer=optimizer,
        server_learning_rate=0.5,
        tau=0.05,
        learning_rate=RATE,
        batch_size=SIZE,
    )
    wanted = naive(ragged, optimizer, 0.5, 0.05)
    assert np.abs(wanted - START).max() > 0.1
    progress = trained(algorithm, ragged, ROUNDS)
    np.testing.assert_allclose(matrix_of(algorithm.params(progress.server)), wanted, atol=5e-6)


def test_a_full_step_without_momentum_is_fed_avg_to_the_bit(ragged: Federation, model: Model) -> None:
    still = fed_opt(
        model,
        weighted_mean(),
        optimizer="avgm",
        beta1=0.0,
        server_learning_rate=1.0,
        learning_rate=RATE,
        batch_size=SIZE,
    )
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=SIZE)
    one, other = (algorithm.params(trained(algorithm, ragged, ROUNDS).server) for algorithm in (still, plain))
    assert np.array_equal(matrix_of(one), matrix_of(other))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_round_in_which_nobody_has_rows_leaves_the_server_alone(
    optimizer: Optimizer, ragged: Federation, model: Model
) -> None:
    """Momentum would otherwise coast on, and Adam's second moment would fade, without any evidence."""
    algorithm = fed_opt(model, weighted_mean(), optimizer=optimizer, learning_rate=RATE, batch_size=SIZE)
    with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS[:1])
        before = jax.device_get(progress.server)
        for number, cohort in ((2, np.array([2])), (3, np.zeros(0, np.int64))):
            progress, records = engine.train(algorithm, progress, [(number, cohort)])
            assert records[0].rows == 0
            after = jax.device_get(progress.server)
            assert jax.tree.all(jax.tree.map(np.array_equal, before, after))
        assert np.abs(matrix_of(before["m"])).max() > 0
        progress, _ = engine.train(algorithm, progress, [(4, np.arange(7))])
        assert not np.array_equal(matrix_of(before["params"]), matrix_of(progress.server["params"]))
