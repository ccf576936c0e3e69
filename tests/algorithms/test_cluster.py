"""Clusters of sites against the loop of the papers, at their limits, and where two kinds of sites are to be found."""

from typing import Any

import jax
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.cluster import cluster
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Message, Model, Params, Progress, Task
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.fit import told
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic

Numbers = np.ndarray[Any, Any]
SEED, RATE, EPOCHS, SIZE = 11, 0.3, 2, 10
PLAIN = identity()
START = np.random.default_rng(0).normal(0, 0.5, (4, 2))


def params_of(w: Numbers) -> Params:
    """The model's parameters from one matrix: a row a feature, and the intercepts as the last row."""
    return {"dense_0/kernel": w[:-1].astype(np.float32), "dense_0/bias": w[-1].astype(np.float32)}


def matrix_of(params: Params) -> Numbers:
    """The matrix again; of stacked models, a stack of matrices."""
    return np.concatenate([params["dense_0/kernel"], np.asarray(params["dense_0/bias"])[..., None, :]], axis=-2)


def rows_at(federation: Federation, site: int, part: str = "train") -> tuple[Numbers, Numbers]:
    """A site's rows with a column of ones for the intercept, and its labels."""
    first, count = (column[site] for column in federation.part(part))
    x = federation.x[first : first + count].astype(np.float64)
    return np.hstack([x, np.ones((count, 1))]), federation.y[first : first + count]


def chances(w: Numbers, x: Numbers) -> Numbers:
    odds = np.exp(x @ w)
    return odds / odds.sum(axis=1, keepdims=True)


def slope(w: Numbers, x: Numbers, y: Numbers) -> Numbers:
    """The mean gradient of softmax regression: x^T (p - onehot(y)) / n."""
    return x.T @ (chances(w, x) - np.eye(2)[y]) / len(y)


ROUNDS = [(1, np.arange(7)), (2, np.array([0, 2, 5, 6])), (3, np.array([0, 1, 3, 4]))]
"""Site 2 is empty, site 4 has one row, site 3 one class only."""


def loss(w: Numbers, x: Numbers, y: Numbers) -> float:
    return float(-np.log(chances(w, x)[np.arange(len(y)), y]).mean())


def naive(federation: Federation, models: Numbers) -> list[tuple[Numbers, list[int]]]:
    """HypCluster: after every round the models, and what each site chose last (-1: nothing yet)."""
    chosen = [-1] * len(federation.sites)
    after = []
    for number, cohort in ROUNDS:
        total, patients = np.zeros_like(models), np.zeros(len(models))
        for site in cohort:
            x, y = rows_at(federation, site)
            if not len(y):
                continue
            best = chosen[site] = int(np.argmin([loss(w, x, y) for w in models]))
            w = models[best]
            for order in visiting_order(SEED, number, np.array([site]), np.array([len(y)]), EPOCHS):
                for begin in range(0, len(y), SIZE):
                    batch = order[begin : begin + SIZE]
                    w = w - RATE * slope(w, x[batch], y[batch])
            total[best] += len(y) * (w - models[best])
            patients[best] += len(y)
        models = models + total / np.maximum(patients, 1)[:, None, None]
        after.append((models, list(chosen)))
    return after


def test_equals_the_loop_while_sites_come_and_go(ragged: Federation, model: Model) -> None:
    algorithm = cluster(
        model, clusters=3, spread=0.6, revive=False, learning_rate=RATE, local_epochs=EPOCHS, batch_size=SIZE
    )
    with Simulation(ragged, seed=SEED, transform=PLAIN, device_count=1) as engine:
        progress = engine.begin(algorithm, params_of(START))
        starts = matrix_of(jax.device_get(progress.server["models"])).astype(np.float64)
        wanted = naive(ragged, starts)
        assert len(set(wanted[-1][1])) >= 3  # the empty site's -1 and two clusters at least: else this tests little
        for step, (models, chosen) in zip(ROUNDS, wanted, strict=True):
            progress, records = engine.train(algorithm, progress, [step])
            server = jax.device_get(progress.server)
            assert server["chosen"].tolist() == chosen
            np.testing.assert_allclose(matrix_of(server["models"]), models, atol=3e-6)
            # Three models of 32 bytes down; one update, three choices and the weight up, 32 + 12 + 4.
            assert (records[0].bytes_down, records[0].bytes_up) == (96 * len(step[1]), 48 * len(step[1]))
        scores = engine.evaluate(algorithm, progress, "test")
    for site in range(7):
        (x, y), (held_out, _) = rows_at(ragged, site), rows_at(ragged, site, "test")
        best = 0 if site == 2 else int(np.argmin([loss(w, x, y) for w in models]))
        predicted = scores.predicted[scores.first[site] : scores.first[site + 1]]
        np.testing.assert_allclose(predicted, chances(models[best], held_out), atol=3e-6)


def test_starts_differ_and_their_mean_is_the_first_model(model: Model) -> None:
    first, same, other = (
        matrix_of(jax.device_get(cluster(model, clusters=4, spread=0.5, draw=draw).init(params_of(START), 7)["models"]))
        for draw in (0, 0, 1)
    )
    assert np.array_equal(first, same)
    assert np.abs(first - other).max() > 0.1
    np.testing.assert_allclose(first.mean(axis=0), START, atol=1e-6)
    assert min(np.abs(first[i] - first[j]).max() for i in range(4) for j in range(i)) > 0.1


def trained(
    algorithm: Algorithm, federation: Federation, start: Params, rounds: int
) -> tuple[Progress, Numbers, float]:
    """The state, all predictions on test rows, and their mean squared distance from the truth."""
    everyone = np.arange(len(federation.sites))
    with Simulation(federation, seed=SEED, transform=PLAIN, device_count=1) as engine:
        progress = engine.begin(algorithm, start)
        progress, _ = engine.train(algorithm, progress, [(number, everyone) for number in range(1, rounds + 1)])
        scores = engine.evaluate(algorithm, progress, "test")
    return progress, scores.predicted, float(np.square(scores.predicted[:, 1] - scores.actual).mean())


def test_one_cluster_is_fed_avg(ragged: Federation, model: Model) -> None:
    one = cluster(model, clusters=1, learning_rate=RATE, batch_size=SIZE, momentum=0.5, weights="uniform")
    plain = fed_avg(model, weighted_mean(), learning_rate=RATE, batch_size=SIZE, momentum=0.5, weights="uniform")
    ends = [trained(algorithm, ragged, params_of(START), 3) for algorithm in (one, plain)]
    models = [matrix_of(jax.device_get(a.params(end[0].server))) for a, end in zip((one, plain), ends, strict=True)]
    np.testing.assert_allclose(models[0], models[1], atol=1e-6)
    np.testing.assert_allclose(ends[0][1], ends[1][1], atol=1e-6)


def stack_of(answers: list[tuple[int, float, float, int]]) -> Message:
    """Answers of (site, weight, update, choice) to two clusters of a model with one number, as they arrive."""
    site, weight, update, choice = (np.array(column) for column in zip(*answers, strict=True))
    return Message(
        {
            "update": {"w": (weight * update).astype(np.float32)[:, None]},
            "choice": (weight[:, None] * np.eye(2)[choice]).astype(np.float32),
            "weight": weight.astype(np.float32),
            "site": site.astype(np.int32),
        }
    )


def test_the_server_step_by_hand(model: Model) -> None:
    """Sites 2, 0 and 1 with weights 1, 3, 2 move by 6, 2, 5; the first two chose cluster 0. Site 3 sits there empty.

    Cluster 0 moves by (1*6 + 3*2) / 4 = 3, cluster 1 by 2*5 / 2 = 5.
    """
    algorithm = cluster(model, spread=0.5)
    state = algorithm.init({"w": np.zeros(1, np.float32)}, 4)
    before = np.asarray(state["models"]["w"])[:, 0]
    state = algorithm.server(state, stack_of([(2, 1, 6, 0), (0, 3, 2, 0), (1, 2, 5, 1), (3, 0, 9, 1), (4, 0, 9, 0)]))
    after = np.asarray(state["models"]["w"])[:, 0]
    np.testing.assert_allclose(after - before, [3, 5], atol=1e-6)
    assert algorithm.tells is not None
    said = told(algorithm, Progress(state, (), (), ()), ("a", "b", "c", "d"))["told"]
    assert said == {
        "cluster": {"a": 1, "b": 2, "c": 1, "d": 0},
        "sites_in_cluster_1": 2,
        "sites_in_cluster_2": 1,
    }
    # The common model is that of the cluster with most patients, 4 against 2.
    assert float(algorithm.params(state)["w"][0]) == after[0]

    # Only site 2 answers: cluster 1 is nobody's choice in this round, but still site 1's last one, and stays as it is.
    state = algorithm.server(state, stack_of([(2, 1, 1, 0)]))
    later = np.asarray(state["models"]["w"])[:, 0]
    np.testing.assert_allclose(later[0], after[0] + 1, atol=1e-6)
    assert later[1] == after[1]


@pytest.mark.parametrize("revive", [True, False])
def test_a_cluster_without_sites_starts_anew_beside_the_largest(revive: bool, model: Model) -> None:
    algorithm = cluster(model, spread=0.01, revive=revive)
    state = algorithm.init({"w": np.zeros(1, np.float32)}, 2)
    before = np.asarray(state["models"]["w"])[:, 0]
    state = algorithm.server(state, stack_of([(0, 1, 8, 1), (1, 1, 8, 1)]))
    after = np.asarray(state["models"]["w"])[:, 0]
    np.testing.assert_allclose(after[1], before[1] + 8, atol=1e-6)
    if revive:
        assert 0 < abs(after[0] - after[1]) < 0.06  # six standard deviations
        again = np.asarray(algorithm.server(state, stack_of([(0, 1, 0, 1)]))["models"]["w"])[:, 0]
        assert again[0] != after[0]  # another step aside in every round
    else:
        assert after[0] == before[0]


def two_kinds() -> Federation:
    """Eight sites of 60 rows; odd and even ones have truths that differ by 3, about a truth they have in common."""
    generator = np.random.default_rng(1)
    middle, apart = generator.normal(0, 1, 5), generator.normal(0, 1, 5)
    apart *= 1.5 / np.linalg.norm(apart)

    def rows(count: int, truth: Numbers) -> tuple[Numbers, Numbers]:
        x = generator.normal(0, 1, (count, 5))
        return x, generator.random(count) < 1 / (1 + np.exp(-x @ truth))

    kinds = [middle + (apart if site % 2 else -apart) for site in range(8)]
    parts = [(f"site-{i}", [rows(60, w), rows(1, w), rows(300, w)]) for i, w in enumerate(kinds)]
    return assemble(parts, Task((5,), ("no", "yes")))


def test_finds_two_kinds_of_sites_and_serves_both() -> None:
    """With much in common all sites first crowd into one cluster; without a revival they stay there."""
    federation = two_kinds()
    network = logistic(federation.task)
    start = network.init(jax.random.key(0))
    results = {
        name: trained(algorithm, federation, start, 40)
        for name, algorithm in {
            "plain": fed_avg(network, weighted_mean(), learning_rate=RATE),
            "cluster": cluster(network, learning_rate=RATE),
            "stuck": cluster(network, learning_rate=RATE, revive=False),
        }.items()
    }
    chosen = np.asarray(results["cluster"][0].server["chosen"])
    assert len(set(chosen[::2])) == len(set(chosen[1::2])) == 1
    assert chosen[0] != chosen[1]
    assert results["cluster"][2] < results["plain"][2] - 0.03
    assert len(set(np.asarray(results["stuck"][0].server["chosen"]))) == 1
