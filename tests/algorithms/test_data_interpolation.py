"""Data interpolation against a plain loop, at both limits, at its known fixed points, and where a mixture is best."""

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, chances, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.baselines.local import local
from wardround.algorithms.data_interpolation import data_interpolation
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Model, Progress, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.fit import describe_state
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic

Numbers = np.ndarray[Any, Any]
SEED, RATE, EPOCHS, SIZE = 11, 0.3, 2, 10
PLAIN = identity()


ROUNDS = [(1, np.arange(7)), (2, np.array([0, 1, 2, 4])), (3, np.array([0, 3, 5]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only; site 5 is missing in round 2."""


def run(
    algorithm: Algorithm, federation: Federation, start: Numbers, rounds: list[tuple[int, Numbers]]
) -> tuple[Progress, Numbers]:
    with Simulation(federation, seed=SEED, transform=PLAIN, device_count=1) as engine:
        progress, _ = engine.train(algorithm, engine.begin(algorithm, params_of(start)), rounds)
    return progress, matrix_of(jax.device_get(algorithm.params(progress.server)))


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_equals_a_loop_and_waits_for_the_asking_site(weights: Any, ragged: Federation, model: Model) -> None:
    algorithm = data_interpolation(
        model, user=5, own_share=0.7, learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE, weights=weights
    )
    common = START
    for number, cohort in ROUNDS:
        if 5 not in cohort:
            continue
        own, others, counts = np.zeros_like(START), [], []
        for site in cohort:
            x, y = rows_at(ragged, site)
            if not len(y):
                continue
            w = common
            for order in visiting_order(SEED, number, np.array([site]), np.array([len(y)]), EPOCHS):
                for begin in range(0, len(y), SIZE):
                    batch = order[begin : begin + SIZE]
                    w = w - RATE * slope(w, x[batch], y[batch])
            if site == 5:
                own = w
            else:
                others.append(w)
                counts.append(len(y) if weights == "samples" else 1)
        common = 0.7 * own + 0.3 * np.average(others, axis=0, weights=counts)
    progress, model_after = run(algorithm, ragged, START, ROUNDS)
    np.testing.assert_allclose(model_after, common, atol=3e-6)
    # In the last round that counted, sites 0, 3 and 5 had 40, 23 and 64 rows: alike, 5 would count 64/127, or 1/3.
    words = describe_state(algorithm, progress, ragged.sites)["told"]
    assert words["own_share"] == pytest.approx(0.7)
    assert words["own_share_in_common_model"] == pytest.approx(64 / 127 if weights == "samples" else 1 / 3)


def test_its_own_share_of_all_rows_is_fed_avg(ragged: Federation, model: Model) -> None:
    """Site 5 has 64 of 165 rows."""
    mixed = data_interpolation(model, user=5, own_share=64 / 165, learning_rate=RATE, batch_size=SIZE, momentum=0.5)
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=SIZE, momentum=0.5)
    rounds = [(number, np.arange(7)) for number in (1, 2, 3)]
    ends = [run(algorithm, ragged, START, rounds)[1] for algorithm in (mixed, plain)]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)
    assert np.abs(ends[0] - START).max() > 0.1


def test_an_own_share_of_one_is_training_alone(ragged: Federation, model: Model) -> None:
    mixed = data_interpolation(model, user=5, own_share=1.0, learning_rate=RATE, batch_size=SIZE, momentum=0.5)
    alone = local(model, learning_rate=RATE, batch_size=SIZE, momentum=0.5)
    clients = jax.device_get(run(alone, ragged, START, ROUNDS)[0].clients)
    own = matrix_of({name: table[5] for name, table in clients.items()})
    np.testing.assert_allclose(run(mixed, ragged, START, ROUNDS)[1], own, atol=1e-6)


def test_an_own_share_of_nothing_leaves_the_asking_site_out(ragged: Federation, model: Model) -> None:
    mixed = data_interpolation(model, user=5, own_share=0.0, learning_rate=RATE, batch_size=SIZE)
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=SIZE)
    others = np.array([0, 1, 2, 3, 4, 6])
    one = run(mixed, ragged, START, [(1, np.arange(7)), (2, np.arange(7))])[1]
    np.testing.assert_allclose(one, run(plain, ragged, START, [(1, others), (2, others)])[1], atol=1e-6)


def test_who_has_no_rows_gets_the_others_model_and_who_is_alone_its_own(ragged: Federation, model: Model) -> None:
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=SIZE)
    empty, large = (
        data_interpolation(model, user=user, own_share=0.4, learning_rate=RATE, batch_size=SIZE) for user in (2, 5)
    )
    for mixed, cohort in ((empty, np.arange(7)), (large, np.array([5])), (large, np.array([2, 5]))):
        ends = [run(algorithm, ragged, START, [(1, cohort)])[1] for algorithm in (mixed, plain)]
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)


@pytest.mark.parametrize(("user", "own_share", "wanted"), [(0, 0.9, 5 / 13), (1, 0.5, -0.6)])
def test_rests_where_the_weighted_gradients_cancel(user: int, own_share: float, wanted: float) -> None:
    """Rows (1, 1), (-1, -1) and (2, -2), (-2, 2): F_0 = (w - 1)^2 and F_1 = 4 (w + 1)^2 at intercept 0.

    With weights a and b on the sites it rests where 2 a (w - 1) + 8 b (w + 1) = 0, at w = (2a - 8b) / (2a + 8b):
    a = 0.9: (1.8 - 0.8) / 2.6 = 5/13; a = b = 0.5: -3 / 5.
    """
    nothing = (np.zeros((0, 1)), np.zeros(0))
    rows = [(np.array([[s], [-s]]), np.array([s * t, -s * t])) for s, t in ((1.0, 1.0), (2.0, -1.0))]
    federation = assemble([(f"site-{i}", [piece, nothing, nothing]) for i, piece in enumerate(rows)], Task((1,)))
    algorithm = data_interpolation(
        linear(federation.task), user=user, own_share=own_share, learning_rate=1 / 16, batch_size=0
    )
    rounds = [(number, np.arange(2)) for number in range(1, 121)]
    end = run(algorithm, federation, np.array([[3.0], [0.0]]), rounds)[1]
    np.testing.assert_allclose(end[:, 0], [wanted, 0.0], atol=2e-6)


@pytest.mark.slow
def test_a_mixture_beats_both_ends_for_a_small_site_that_differs_a_little() -> None:
    """20 rows at the asking site, 4 x 100 elsewhere with a truth 1.2 away: mean test loss over 8 drawn federations."""
    losses: dict[float, list[float]] = {0.02: [], 0.4: [], 1.0: []}
    task = Task((5,), ("no", "yes"))
    network = logistic(task)
    algorithms = {share: data_interpolation(network, own_share=share, learning_rate=RATE) for share in losses}
    for seed in range(8):
        generator = np.random.default_rng(seed)
        others = generator.normal(0, 1, 5)
        step = generator.normal(0, 1, 5)
        truths = [others + 1.2 * step / np.linalg.norm(step)] + [others] * 4
        parts = []
        for site, truth in enumerate(truths):
            x = generator.normal(0, 1, (620, 5))
            y = generator.random(620) < 1 / (1 + np.exp(-x @ truth))
            ends = (0, 20 if site == 0 else 100, 120, 620)
            parts.append((f"site-{site}", [(x[a:b], y[a:b]) for a, b in pairwise(ends)]))
        federation = assemble(parts, task)
        x, y = rows_at(federation, 0, "test")
        for share, algorithm in algorithms.items():
            rounds = [(number, np.arange(5)) for number in range(1, 61)]
            w = run(algorithm, federation, np.zeros((6, 2)), rounds)[1]
            losses[share].append(float(-np.log(chances(w, x)[np.arange(500), y]).mean()))
    means = {share: np.mean(values) for share, values in losses.items()}
    assert means[0.4] < means[0.02] - 0.02
    assert means[0.4] < means[1.0] - 0.02


@pytest.mark.parametrize("user", [-1, 7])
def test_an_asking_site_that_is_not_there_is_refused(user: int, ragged: Federation, model: Model) -> None:
    algorithm = data_interpolation(model, user=user)
    with pytest.raises(Refusal, match="0 to 6"), Simulation(ragged, transform=PLAIN) as engine:
        engine.begin(algorithm, params_of(START))
