"""The compiled round: the same model however the sites are laid out, and compiled once."""

import jax
import numpy as np
import pytest

from wardround.aggregators.krum import krum
from wardround.aggregators.median import median
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.algorithms.scaffold import scaffold
from wardround.core.chain import identity
from wardround.core.contracts import Message, Task
from wardround.core.errors import Diverged, Refusal
from wardround.core.federation import Federation, NumberedSites
from wardround.engine import layout, simulate
from wardround.engine.participation import random_cohort
from wardround.engine.program import fused_rounds, round_programs
from wardround.engine.simulate import Simulation


def train(federation, algorithm, model, cohorts, **settings):
    with Simulation(federation, seed=3, **settings) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        shape = engine.shape(algorithm, algorithm.params(progress.server))
        progress, records = engine.train(algorithm, progress, list(enumerate(cohorts, start=1)))
        return jax.device_get(progress), records, shape


def assert_close(one, other, atol=2e-6):
    for p, q in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(p, q, atol=atol)


@pytest.mark.parametrize("aggregator", [weighted_mean, median])
def test_a_cohort_in_pieces_gives_the_model_of_a_cohort_at_once(aggregator, ragged, model, monkeypatch):
    algorithm = scaffold(model, aggregator(), batch_size=8)
    cohorts = [np.arange(7)] * 3
    whole, _, shape = train(ragged, algorithm, model, cohorts)
    assert (shape.devices, shape.pieces) == (1, 1)
    monkeypatch.setattr(layout, "WORTH_A_DEVICE", 0)
    monkeypatch.setattr(layout, "PIECE_BYTES", 700)  # 165 rows of 16 bytes: about four pieces
    monkeypatch.setattr(layout, "MOST_LANES", 2)
    cut, _, shape = train(ragged, algorithm, model, cohorts)
    assert shape.devices == 2
    assert shape.pieces > 1
    assert_close(whole, cut)


def test_several_rounds_in_a_call_are_the_rounds_one_by_one(even, model):
    algorithm = fed_avg(model, weighted_mean(), batch_size=16)
    cohorts = [np.arange(7), np.array([1, 4]), np.array([0, 2, 3, 6]), np.array([5])]
    together, _, _ = train(even, algorithm, model, cohorts)
    with Simulation(even, seed=3) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        for number, cohort in enumerate(cohorts, start=1):
            progress, _ = engine.train(algorithm, progress, [(number, cohort)])
    assert_close(together, jax.device_get(progress), atol=0)


def test_compiles_once_whoever_takes_part(even, model):
    algorithm = fed_avg(model, weighted_mean(), batch_size=16)
    with Simulation(even, seed=3) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        for number in range(1, 9):
            cohort = np.random.default_rng(number).permutation(7)[: 1 + number % 7]
            progress, _ = engine.train(algorithm, progress, [(1, np.arange(7))] if number == 1 else [(number, cohort)])
    assert fused_rounds(algorithm, identity(), 1, 64)._cache_size() == 1


@pytest.mark.parametrize("quick", [True, False])
def test_compiles_once_on_two_devices(quick, even, model, monkeypatch):
    monkeypatch.setattr(layout, "WORTH_A_DEVICE", 0)
    monkeypatch.setattr(simulate, "QUICK_ENOUGH", 10**9 if quick else 0)
    algorithm = fed_avg(model, weighted_mean(), batch_size=16)
    with Simulation(even, seed=3) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        way = engine._round_traffic(algorithm, progress)
        for number in range(1, 6):
            progress, _ = engine.train(algorithm, progress, [(number, np.arange(7))])
        shape = engine.shape(algorithm, algorithm.params(progress.server))
    assert shape.devices == 2
    if quick:
        assert fused_rounds(algorithm, identity(), 2, 64)._cache_size() == 1
        return
    programs = round_programs(algorithm, identity(), shape, 64, True, way.said, way.added, 0)
    assert programs.train._cache_size() == 1
    assert programs.conclude._cache_size() == 1
    assert programs.send._cache_size() == 1


@pytest.mark.parametrize("aggregator", [weighted_mean, median])
def test_rounds_in_one_call_are_the_rounds_cut_and_always_the_same_bits(aggregator, ragged, model, monkeypatch):
    """Two devices: exchanging sums inside the program, or adding them outside; what sites keep included."""
    monkeypatch.setattr(layout, "WORTH_A_DEVICE", 0)
    algorithm = scaffold(model, aggregator(), batch_size=8)
    cohorts = [np.arange(7), np.array([0, 3, 5]), np.arange(7)]
    quick, _, shape = train(ragged, algorithm, model, cohorts)
    again, _, _ = train(ragged, algorithm, model, cohorts)
    assert shape.devices == 2
    assert_close(quick, again, atol=0)
    monkeypatch.setattr(simulate, "QUICK_ENOUGH", 0)
    cut, _, _ = train(ragged, algorithm, model, cohorts)
    assert_close(quick, cut)


def test_a_later_and_larger_cohort_fits(make_federation, model):
    uneven = make_federation([5, 5, 200, 90])
    algorithm = fed_avg(model, weighted_mean(), batch_size=16)
    cohorts = [np.array([0, 1]), np.arange(4)]
    together, _, _ = train(uneven, algorithm, model, cohorts)
    with Simulation(uneven, seed=3) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        for number, cohort in enumerate(cohorts, start=1):
            progress, _ = engine.train(algorithm, progress, [(number, cohort)])
    assert_close(together, jax.device_get(progress))


def test_absent_sites_keep_what_they_had(even, model):
    algorithm = scaffold(model, weighted_mean(), batch_size=16)
    progress, records, _ = train(even, algorithm, model, [np.array([1, 5])])
    for table in jax.tree.leaves(progress.clients):
        assert np.abs(table[[1, 5]]).min(axis=tuple(range(1, table.ndim))).max() > 0
        assert not table[[0, 2, 3, 4, 6]].any()
    assert records[0].sites == ("site-1", "site-5")
    assert (records[0].count, records[0].rows) == (2, 96)


def test_traffic_is_the_bytes_of_the_messages(even, model):
    """A logistic of 3 features and 2 classes has 8 numbers: 32 bytes down; 32 and the weight's 4 up, each a site."""
    _, records, _ = train(even, fed_avg(model, weighted_mean()), model, [np.arange(7), np.array([2])])
    assert [(r.bytes_down, r.bytes_up) for r in records] == [(7 * 32, 7 * 36), (32, 36)]


def test_traffic_counts_what_a_transform_leaves(even, model):
    half = identity()._replace(
        up=lambda received, answer, key: Message(jax.tree.map(lambda a: a.astype(np.float16), answer.arrays)),
        release=lambda state, answer: Message(jax.tree.map(lambda a: a.astype(np.float32), answer.arrays)),
    )
    _, records, _ = train(even, fed_avg(model, weighted_mean()), model, [np.arange(7)], transform=half)
    assert records[0].bytes_up == 7 * 18


def test_divergence_is_named_from_pieces_too(make_federation, model, monkeypatch):
    monkeypatch.setattr(layout, "WORTH_A_DEVICE", 0)
    broken = make_federation([20, 20, 20, 20])
    broken.x[broken.first[2]] = np.inf
    with pytest.raises(Diverged, match="round 2: the answer of site-2"):
        train(broken, fed_avg(model, weighted_mean()), model, [np.array([0, 1]), np.arange(4)])


def test_a_million_clients_of_which_a_hundred_are_drawn(model):
    """Each client has two rows; the draw, the seats and the rows cost what the cohort costs."""
    clients = 1_000_000
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2 * clients, 3)).astype(np.float32)
    task = Task((3,), ("no", "yes"))
    counts = np.zeros((clients, 3), np.int64)
    counts[:, 0] = 2
    federation = Federation(
        NumberedSites("client", clients), x, (x[:, 0] > 0).astype(np.int32), 2 * np.arange(clients), counts, task
    )
    who = random_cohort(clients, 100, seed=1)
    algorithm = fed_avg(model, weighted_mean(), learning_rate=0.5)
    settings = {"largest_cohort": 100, "evaluated": np.arange(50)}
    with Simulation(federation, seed=3, **settings) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, records = engine.train(algorithm, progress, [(n, who.cohort(n)) for n in range(1, 41)])
        scores = engine.predict(algorithm, progress, "train")
    assert records[0].count == 100
    assert len(set(records[0].sites)) == 100
    assert len(scores.actual) == 100
    assert (scores.predicted.argmax(axis=1) == scores.actual).mean() > 0.9


def test_refuses_what_cannot_be_right_before_the_first_round(even, model):
    sums_only = identity()._replace(sum_only=True)
    with pytest.raises(Refusal, match="reveals only the sum"):
        train(even, fed_avg(model, median()), model, [np.arange(7)], transform=sums_only)
    with pytest.raises(Refusal, match="at least 5 sites"):
        train(even, fed_avg(model, krum(bad=1)), model, [np.arange(4)], largest_cohort=4)
    with pytest.raises(Refusal, match="5 sites take part in round 1"):
        train(even, fed_avg(model, weighted_mean()), model, [np.arange(5)], largest_cohort=4)
    with pytest.raises(Refusal, match="out of range"):
        Simulation(even, seed=-1)
