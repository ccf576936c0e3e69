"""SCAFFOLD against the loop of its algorithm 1, and where FedAvg ends in the wrong place and it does not."""

from typing import Any, Literal

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.scaffold import scaffold
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, Task
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear

Option = Literal["I", "II"]
Numbers = np.ndarray[Any, Any]
SEED, RATE, SERVER, EPOCHS, SIZE = 11, 0.3, 0.75, 2, 10
PLAIN = identity()
ROUNDS = [(1, np.array([0, 1, 3, 5])), (2, np.array([0, 2, 5, 6])), (3, np.array([0, 1, 4, 6]))]
"""Of seven sites; site 2 is empty, site 4 has one row and comes only once."""


def naive(federation: Federation, option: Option) -> list[tuple[Numbers, Numbers, Numbers]]:
    """Karimireddy et al., algorithm 1: after every round the model x, the server's c and the sites' c_i."""
    x, c, sites = START, np.zeros_like(START), len(federation.sites)
    controls = np.zeros((sites, *START.shape))
    after = []
    for number, cohort in ROUNDS:
        moves, changes = [], []
        for site in cohort:
            rows, labels = rows_at(federation, site)
            if not len(labels):
                continue
            y, steps = x, 0
            for order in visiting_order(SEED, number, np.array([site]), np.array([len(labels)]), EPOCHS):
                for begin in range(0, len(labels), SIZE):
                    batch = order[begin : begin + SIZE]
                    y = y - RATE * (slope(y, rows[batch], labels[batch]) - controls[site] + c)
                    steps += 1
            new = slope(x, rows, labels) if option == "I" else controls[site] - c + (x - y) / (steps * RATE)
            moves.append(y - x)
            changes.append(new - controls[site])
            controls[site] = new
        x = x + SERVER * np.mean(moves, axis=0)
        c = c + len(moves) / sites * np.mean(changes, axis=0)
        after.append((x, c, controls.copy()))
    return after


@pytest.mark.parametrize("option", ["I", "II"])
def test_equals_the_loop_while_sites_come_and_go(option: Option, ragged: Federation, model: Model) -> None:
    algorithm = scaffold(
        model,
        weighted_mean(),
        option=option,
        learning_rate=RATE,
        server_learning_rate=SERVER,
        local_epochs=EPOCHS,
        batch_size=SIZE,
    )
    with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(START))
        before = np.zeros((7, *START.shape), np.float32)
        for (number, cohort), (x, c, controls) in zip(ROUNDS, naive(ragged, option), strict=True):
            progress, records = engine.train(algorithm, progress, [(number, cohort)])
            server, clients = jax.device_get((progress.server, progress.clients))
            kept = np.stack([matrix_of({name: table[site] for name, table in clients.items()}) for site in range(7)])
            np.testing.assert_allclose(matrix_of(server["params"]), x, atol=3e-6)
            np.testing.assert_allclose(matrix_of(server["control"]), c, atol=3e-6)
            np.testing.assert_allclose(kept, controls, atol=1e-5)
            # Who was not there, or has no rows, keeps its control variate to the bit; all others have a new one.
            moved = [site for site in range(7) if not np.array_equal(kept[site], before[site])]
            assert moved == [site for site in cohort if site != 2]
            # c starts as the mean of all c_i and moves by |S|/N of the mean change, so it stays their mean.
            np.testing.assert_allclose(matrix_of(server["control"]), kept.mean(axis=0), atol=1e-6)
            before = kept
            # Model and control down, 2 x 32 bytes; up the same and the weight, 68 bytes; four sites.
            assert (records[0].bytes_down, records[0].bytes_up) == (256, 272)
        assert float(server["sites"]) == 7


@pytest.mark.parametrize("option", ["I", "II"])
def test_the_first_round_is_fed_avg_with_one_vote_a_site(option: Option, ragged: Federation, model: Model) -> None:
    """All control variates are 0, so that nothing is corrected yet."""
    controlled = scaffold(
        model, weighted_mean(), option=option, learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE
    )
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE, weights="uniform")
    ends = []
    for algorithm in (controlled, plain):
        with Simulation(ragged, seed=SEED, transform=PLAIN) as engine:
            progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(START)), ROUNDS[:1])
            ends.append(matrix_of(algorithm.params(progress.server)))
    np.testing.assert_allclose(ends[0], ends[1], atol=3e-7)


def two_slopes() -> Federation:
    """Site 0 has rows (1, 1), (-1, -1); site 1 has (2, -2), (-2, 2): through the origin with slopes 1 and -1.

    At intercept 0 the losses are F_0 = (w - 1)^2 and F_1 = 4 (w + 1)^2, and neither pulls the intercept away from 0.
    """
    nothing = (np.zeros((0, 1)), np.zeros(0))
    rows = [(np.array([[s], [-s]]), np.array([s * t, -s * t])) for s, t in ((1.0, 1.0), (2.0, -1.0))]
    return assemble([(f"site-{i}", [piece, nothing, nothing]) for i, piece in enumerate(rows)], Task((1,)))


def after_many_rounds(algorithm: Algorithm, start: float) -> Numbers:
    with Simulation(two_slopes(), transform=PLAIN) as engine:
        progress = engine.begin(algorithm, params_of(np.array([[start], [0.0]])))
        progress, _ = engine.train(algorithm, progress, [(number, np.arange(2)) for number in range(1, 61)])
    return matrix_of(algorithm.params(progress.server))[:, 0]


@pytest.mark.parametrize("start", [3.0, -0.6])
def test_fed_avg_drifts_to_its_known_fixed_point(start: float) -> None:
    """The optimum of F_0 + F_1 is where 2 (w - 1) + 8 (w + 1) = 0: w = -3/5.

    FedAvg, K = 4 full steps at rate 1/16: site 0 shrinks its distance to 1 by 1 - 2/16 = 7/8 a step, site 1 its
    distance to -1 by 1 - 8/16 = 1/2, so w <- ((1 + a (w - 1)) + (-1 + b (w + 1))) / 2 with a = (7/8)^4 = 2401/4096 and
    b = 1/16 = 256/4096. It rests where (1 - a) (w - 1) + (1 - b) (w + 1) = 0, at
    w = ((1 - a) - (1 - b)) / ((1 - a) + (1 - b)) = (1695 - 3840) / (1695 + 3840) = -143/369, also when it starts at the
    optimum; it gets there by (a + b) / 2 = 0.32 a round.
    """
    algorithm = fed_avg(linear(Task((1,))), weighted_mean(), learning_rate=1 / 16, local_epochs=4, batch_size=0)
    np.testing.assert_allclose(after_many_rounds(algorithm, start), [-143 / 369, 0.0], atol=2e-6)


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_converges_to_the_optimum(option: Option) -> None:
    """At rest c_i = F_i'(w) (of which a resting site's steps are the mean as well) and c is their mean.

    A site at rest does not move, so its corrected gradient F_i'(w) - c_i + c = c is 0: (F_0' + F_1') / 2 = 0, w = -3/5.
    """
    algorithm = scaffold(
        linear(Task((1,))), weighted_mean(), option=option, learning_rate=1 / 16, local_epochs=4, batch_size=0
    )
    np.testing.assert_allclose(after_many_rounds(algorithm, 3.0), [-0.6, 0.0], atol=2e-6)
