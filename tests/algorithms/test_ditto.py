"""Ditto against the loop of its algorithm 1, between its limits (alone, FedAvg), and where both of them are worse."""

from typing import Any

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.ditto import ditto
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, Progress, Scores, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear

Numbers = np.ndarray[Any, Any]
SEED, RATE, OWN_RATE, PULL, EPOCHS, OWN_EPOCHS, SIZE = 11, 0.3, 0.2, 0.7, 1, 2, 10
PLAIN = identity()
ROUNDS = [(1, np.array([0, 1, 3, 5])), (2, np.array([0, 2, 5, 6])), (3, np.array([0, 1, 6]))]
"""Of seven sites; site 2 is empty, site 6 joins in the second round, site 4 never."""


def naive(federation: Federation) -> tuple[Numbers, dict[int, Numbers]]:
    """Li et al., algorithm 1: the common model w and the sites' own v_k, which begin where they first meet w."""
    w = START
    own: dict[int, Numbers] = {}
    for number, cohort in ROUNDS:
        moves, counts = [], []
        for site in cohort:
            x, y = rows_at(federation, site)
            if not len(y):
                continue
            orders = visiting_order(SEED, number, np.array([site]), np.array([len(y)]), OWN_EPOCHS)
            u, v = w, own.get(site, w)
            for epoch, order in enumerate(orders):
                for begin in range(0, len(y), SIZE):
                    batch = order[begin : begin + SIZE]
                    if epoch < EPOCHS:
                        u = u - RATE * slope(u, x[batch], y[batch])
                    v = v - OWN_RATE * (slope(v, x[batch], y[batch]) + PULL * (v - w))
            moves.append(u - w)
            counts.append(len(y))
            own[site] = v
        w = w + np.average(moves, axis=0, weights=counts)
    return w, own


def trained(algorithm: Algorithm, federation: Federation, rounds: Any, start: Numbers = START) -> Progress:
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(start)), rounds)
    return jax.device_get(progress)


def scored(algorithm: Algorithm, federation: Federation, rounds: Any, start: Numbers) -> tuple[Progress, Scores]:
    with Simulation(federation, seed=SEED, transform=PLAIN) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(start)), rounds)
        scores = engine.predict(algorithm, progress, "test")
    return jax.device_get(progress), scores


def own_of(progress: Progress, site: int) -> Numbers:
    return matrix_of({name: table[site] for name, table in progress.clients["model"].items()})


def test_equals_the_loop_while_sites_come_and_go(ragged: Federation, model: Model) -> None:
    algorithm = ditto(
        model,
        weighted_mean(),
        pull=PULL,
        personal_epochs=OWN_EPOCHS,
        personal_learning_rate=OWN_RATE,
        learning_rate=RATE,
        local_epochs=EPOCHS,
        batch_size=SIZE,
    )
    progress, scores = scored(algorithm, ragged, ROUNDS, START)
    common, own = naive(ragged)
    np.testing.assert_allclose(matrix_of(progress.server), common, atol=3e-6)
    assert sorted(own) == [0, 1, 3, 5, 6]
    first, count = ragged.part("test")
    for site in range(7):
        if site in own:
            np.testing.assert_allclose(own_of(progress, site), own[site], atol=3e-6)
        # What a site predicts with: its own model, or the common one where it never took part.
        x = np.hstack([ragged.x[first[site] : first[site] + count[site]], np.ones((count[site], 1))])
        odds = np.exp(x @ own.get(site, common))
        predicted = scores.predicted[scores.first[site] : scores.first[site + 1]]
        np.testing.assert_allclose(predicted, odds / odds.sum(axis=1, keepdims=True), atol=3e-6)


def test_without_pull_sites_learn_alone_and_the_common_model_is_always_that_of_fed_avg(
    ragged: Federation, model: Model
) -> None:
    rounds = [(number, np.arange(7)) for number in (1, 2)]
    free = ditto(model, weighted_mean(), pull=0.0, personal_learning_rate=RATE, learning_rate=RATE, batch_size=SIZE)
    alone = local(model, learning_rate=RATE, batch_size=SIZE)
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=SIZE)
    own, apart, common = (trained(algorithm, ragged, rounds) for algorithm in (free, alone, plain))
    for name in ("dense_0/kernel", "dense_0/bias"):
        np.testing.assert_allclose(own.clients["model"][name], apart.clients[name], atol=1e-6)
        assert np.array_equal(own.server[name], common.server[name])


def two_slopes() -> Federation:
    """Rows (1, 1), (-1, -1) at site 0 and (2, -2), (-2, 2) at site 1: F_0 = (w - 1)^2, F_1 = 4 (w + 1)^2."""
    rows = [(np.array([[s], [-s]]), np.array([s * t, -s * t])) for s, t in ((1.0, 1.0), (2.0, -1.0))]
    nothing = (np.zeros((0, 1)), np.zeros(0))
    parts = [(f"site-{i}", [piece, nothing, nothing]) for i, piece in enumerate(rows)]
    return assemble(parts, Task((1,)))


@pytest.mark.parametrize(("pull", "wanted"), [(2.0, (1 / 5, -23 / 25)), (18.0, (-11 / 25, -47 / 65))])
def test_own_models_rest_where_spring_and_patients_balance(pull: float, wanted: tuple[float, float]) -> None:
    """One full step a round: FedAvg rests at the optimum of F_0 + F_1, 2 (w - 1) + 8 (w + 1) = 0, w = -3/5.

    Site 0 rests where 2 (v - 1) + pull (v + 3/5) = 0: v = (2 - 3/5 pull) / (2 + pull), 4/5 / 4 for pull = 2 and
    -44/5 / 20 for 18. Site 1 where 8 (v + 1) + pull (v + 3/5) = 0: v = -(8 + 3/5 pull) / (8 + pull), -46/5 / 10 and
    -94/5 / 26.
    """
    algorithm = ditto(
        linear(Task((1,))), weighted_mean(), pull=pull, personal_learning_rate=0.05, learning_rate=0.1, batch_size=0
    )
    rounds = [(number, np.arange(2)) for number in range(1, 65)]
    progress = trained(algorithm, two_slopes(), rounds, np.array([[3.0], [0.0]]))
    np.testing.assert_allclose(matrix_of(progress.server)[:, 0], [-3 / 5, 0], atol=1e-5)
    for site in range(2):
        np.testing.assert_allclose(own_of(progress, site)[:, 0], [wanted[site], 0], atol=1e-5)


def alike_but_not_the_same() -> Federation:
    """Twelve sites with 15 patients each; their true slopes scatter around common ones."""
    generator = np.random.default_rng(5)
    parts = []
    for site in range(12):
        truth = np.array([1.0, -1.0, 1.0, 0.0, 1.0]) + generator.normal(0, 0.5, 5)
        pieces = []
        for rows in (15, 1, 300):
            x = generator.normal(0, 1, (rows, 5))
            pieces.append((x, x @ truth + generator.normal(0, 1.5, rows)))
        parts.append((f"site-{site}", pieces))
    return assemble(parts, Task((5,)))


@pytest.mark.slow
def test_is_better_than_alone_and_than_the_common_model_where_sites_are_alike_but_not_the_same() -> None:
    federation, model = alike_but_not_the_same(), linear(Task((5,)))
    methods = [
        ditto(model, weighted_mean(), pull=2.0, personal_learning_rate=0.1, batch_size=0),
        local(model, learning_rate=0.1, batch_size=0),
        fed_avg(model, weighted_mean(), learning_rate=0.1, batch_size=0),
    ]
    errors = []
    for algorithm in methods:
        _, scores = scored(algorithm, federation, [(n, np.arange(12)) for n in range(1, 65)], np.zeros((6, 1)))
        errors.append(np.square(scores.predicted - scores.actual).mean())
    assert errors[0] < 0.97 * min(errors[1:])


def test_a_spring_that_overshoots_is_refused(model: Model) -> None:
    """A step multiplies the distance to the common model by 1 - pull x rate: at 2 and beyond it grows."""
    with pytest.raises(Refusal, match=r"personal_learning_rate below 0\.1"):
        ditto(model, weighted_mean(), pull=20.0, personal_learning_rate=0.1)
