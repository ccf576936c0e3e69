"""Clusters of sites against the loop of the papers, at their limits, and where two kinds of sites are to be found."""

from typing import Any

import jax
import numpy as np
import pytest

from tests.support.by_hand.softmax import START, chances, matrix_of, params_of, rows_at, slope
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.cluster import FAINT, cluster, fewest_adequate
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.model_interpolation import fold_of
from wardround.core.chain import identity
from wardround.core.contracts import Algorithm, Message, Model, Params, Progress, Task
from wardround.core.federation import Federation, assemble
from wardround.core.order import visiting_order
from wardround.engine.fit import describe_state
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import one_site
from wardround.models.logistic import logistic
from wardround.transforms.clip import clip

Numbers = np.ndarray[Any, Any]
SEED, RATE, EPOCHS, SIZE = 11, 0.3, 2, 10
PLAIN = identity()


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


@pytest.mark.slow
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
            assert server["chosen"][:, 0].tolist() == chosen
            np.testing.assert_allclose(matrix_of(server["models"]), models, atol=3e-6)
            # Three models of 32 bytes down; one update, three choices and the weight up, 32 + 12 + 4.
            assert (records[0].bytes_down, records[0].bytes_up) == (96 * len(step[1]), 48 * len(step[1]))
        scores = engine.predict(algorithm, progress, "test")
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
        scores = engine.predict(algorithm, progress, "test")
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
            "update": {"w": (weight * update).astype(np.float32)[:, None, None]},
            "choice": (FAINT * weight[:, None] * np.eye(2)[choice]).astype(np.float32),
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
    said = describe_state(algorithm, Progress(state, (), (), ()), ("a", "b", "c", "d"))["told"]
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
    chosen = np.asarray(results["cluster"][0].server["chosen"])[:, 0]
    assert len(set(chosen[::2])) == len(set(chosen[1::2])) == 1
    assert chosen[0] != chosen[1]
    assert results["cluster"][2] < results["plain"][2] - 0.03
    assert len(set(np.asarray(results["stuck"][0].server["chosen"])[:, 0])) == 1


@pytest.mark.slow
def test_the_choice_takes_no_room_in_the_length_to_which_an_answer_is_cut(ragged: Federation, model: Model) -> None:
    """Cut to a tenth of its length, the update is a tenth of itself, and the server still knows whose it is."""
    x, y = rows_at(ragged, 0)
    shard = one_site(x[:, :-1].astype(np.float32), y, np.arange(len(y))[None])
    algorithm = cluster(model, clusters=0, most=3)
    message = algorithm.broadcast(algorithm.init(params_of(START), 1))
    said, _ = algorithm.client(message, (), shard, jax.random.key(0))
    length = np.sqrt(sum(np.square(leaf / len(y)).sum() for leaf in jax.tree.leaves(said.arrays["update"])))
    cut = clip(norm=float(length) / 10).up(message, said, jax.random.key(1))
    for name in said.arrays:
        ratio = 1.0 if name == "weight" else 0.1
        for p, q in zip(jax.tree.leaves(cut.arrays[name]), jax.tree.leaves(said.arrays[name]), strict=True):
            np.testing.assert_allclose(p, ratio * q, rtol=1e-5)
    states = [
        algorithm.server(
            algorithm.init(params_of(START), 1),
            Message({**jax.tree.map(lambda a: np.asarray(a)[None], one.arrays), "site": np.zeros(1, np.int32)}),
        )
        for one in (said, cut)
    ]
    assert np.array_equal(states[0]["chosen"], states[1]["chosen"])
    np.testing.assert_allclose(states[0]["losses"], states[1]["losses"], rtol=1e-5)
    assert np.array_equal(states[0]["votes"], states[1]["votes"])


def test_the_fewest_that_serve_by_hand() -> None:
    """Losses of four sites with 1, 2 and 3 clusters; the last site has no vote.

    Means over three equal votes: 0.6, 0.5, 0.49. Against the best, 1 is worse by (0.2, 0.09, 0.04): mean 0.11, standard
    error sqrt(sum (d - 0.11)^2 / (3 * 2)) = sqrt((0.0081 + 0.0004 + 0.0049) / 6) = 0.04726. 2 is worse by (0.03, 0, 0):
    mean 0.01, standard error sqrt((0.0004 + 0.0001 + 0.0001) / 6) = 0.01. So 0.9 errors ask for 3, one error for 2
    (up to rounding: 1.01), and 1 serves from 0.11 / 0.04726 = 2.33 errors on.
    """
    losses = np.array([[0.70, 0.53, 0.50], [0.59, 0.50, 0.50], [0.51, 0.47, 0.47], [0.0, 9.0, 9.0]], np.float32)
    votes = np.array([5, 5, 5, 0], np.float32)
    found = {caution: int(fewest_adequate(losses, votes, caution)) + 1 for caution in (0, 0.9, 1.01, 2.3, 2.4)}
    assert found == {0: 3, 0.9: 3, 1.01: 2, 2.3: 2, 2.4: 1}
    # Nobody has voted yet: one cluster. A single voter has no error to speak of: the best.
    assert int(fewest_adequate(losses, np.zeros(4, np.float32), 1.0)) == 0
    assert int(fewest_adequate(losses, np.array([0, 1, 0, 0], np.float32), 1.0)) == 1


@pytest.mark.parametrize("batch_size", [10, 0])
def test_the_number_is_judged_on_rows_that_nothing_was_learned_from(
    ragged: Federation, model: Model, batch_size: int
) -> None:
    """Outcomes of the rows kept aside change what a site says about the numbers, and nothing else."""
    x, y = rows_at(ragged, 5)
    x = x[:, :-1].astype(np.float32)
    aside = np.asarray(fold_of(x, 5)) == 0
    assert 5 < aside.sum() < 25
    algorithm = cluster(model, clusters=0, most=3, spread=0.5, learning_rate=RATE, batch_size=batch_size)
    state = algorithm.init(params_of(START), 1)
    answers = []
    for outcome in (y, np.where(aside, 1 - y, y)):
        shard = one_site(x, outcome.astype(np.int32), np.arange(len(y))[None])
        answers.append(algorithm.client(algorithm.broadcast(state), (), shard, jax.random.key(0))[0].arrays)
    for name in ("update", "choice", "weight"):
        jax.tree.map(np.testing.assert_array_equal, answers[0][name], answers[1][name])
    # The loss aside is that of each number's model with the smallest loss on the other rows.
    models = matrix_of(jax.device_get(state["models"]))
    wide = np.hstack([x, np.ones((len(y), 1))])
    for said, outcome in zip(answers, (y, np.where(aside, 1 - y, y)), strict=True):
        sums = np.asarray(said["aside"]) / (FAINT * len(y))
        assert sums[-1] == pytest.approx(aside.sum())
        for number, own in enumerate((models[:1], models[1:3], models[3:])):
            best = own[np.argmin([loss(w, wide[~aside], outcome[~aside]) for w in own])]
            assert sums[number] == pytest.approx(aside.sum() * loss(best, wide[aside], outcome[aside]), rel=1e-5)


def kinds(many: int) -> Federation:
    """Nine sites of 80 rows and one that is empty; the truths of the kinds are 3 away from their middle."""
    generator = np.random.default_rng(many)
    middle, apart = generator.normal(0, 1, 5), np.linalg.qr(generator.normal(0, 1, (5, 5)))[0]

    def rows(count: int, truth: Numbers) -> tuple[Numbers, Numbers]:
        x = generator.normal(0, 1, (count, 5))
        return x, generator.random(count) < 1 / (1 + np.exp(-x @ truth))

    truths = [middle + (3 * apart[site % many] if many > 1 else 0) for site in range(10)]
    parts = [(f"site-{i}", [rows(80 if i < 9 else 0, w), rows(1, w), rows(20, w)]) for i, w in enumerate(truths)]
    return assemble(parts, Task((5,), ("no", "yes")))


@pytest.mark.slow
def test_finds_the_number_of_kinds() -> None:
    """One, two and three kinds; the sites of one kind, and only they, end in one cluster."""
    network = logistic(Task((5,), ("no", "yes")))
    algorithm = cluster(network, clusters=0, most=4, learning_rate=RATE)
    for many in (1, 2, 3):
        progress, predicted, _ = trained(algorithm, kinds(many), network.init(jax.random.key(0)), 30)
        said = describe_state(algorithm, progress, [f"site-{i}" for i in range(10)])["told"]
        assert said["clusters"] == many, said
        own = list(said["cluster"].values())
        assert own[9] == 0
        assert [own[i] == own[j] for i in range(9) for j in range(i)] == [
            i % many == j % many for i in range(9) for j in range(i)
        ]
        sizes = {1: [0, 0, 0, 9], 2: [0, 0, 4, 5], 3: [0, 3, 3, 3]}
        assert sorted(said[f"sites_in_cluster_{number}"] for number in range(1, 5)) == sizes[many]
        # What a site predicts with is a model of that number: as many different ones as there are kinds.
        model_of = np.asarray(progress.server["models"]["dense_0/bias"])[many * (many - 1) // 2 :][:many]
        common = algorithm.params(progress.server)["dense_0/bias"]
        assert any(np.array_equal(common, bias) for bias in model_of)
        assert np.isfinite(predicted).all()
