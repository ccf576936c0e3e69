"""What every algorithm that the registry finds must do, with every aggregator."""

from functools import cache

import jax
import numpy as np
import pytest

from tests.support.images.algorithms import OF_TABLES
from wardround.core.contracts import Algorithm, Progress
from wardround.core.errors import Diverged
from wardround.engine import registry
from wardround.engine.checkpoint import read_checkpoint, write_checkpoint
from wardround.engine.simulate import Simulation

ALGORITHMS = OF_TABLES
AGGREGATORS = sorted(registry.components("aggregator"))
EVERYONE = np.arange(7)


@cache
def built(name: str, model, aggregator: str = "weighted_mean") -> Algorithm:
    """The same object every time, so that tests share compiled programs."""
    combined = registry.find("aggregator", aggregator).build()
    return registry.find("algorithm", name).build(model, combined)


def trained(algorithm: Algorithm, federation, model, rounds=(1, 2), *, seed=3, cohort=EVERYONE, devices=1) -> Progress:
    with Simulation(federation, seed=seed, device_count=devices) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        progress, _ = engine.train(algorithm, progress, [(number, cohort) for number in rounds])
        return jax.device_get(progress)


def same_bits(a, b) -> bool:
    return all(np.array_equal(p, q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture
def model(model, layered, request):
    """A model that the algorithm can be made with."""
    return layered if request.node.callspec.params.get("name") == "federated_dropout" else model


@pytest.mark.parametrize("name", ALGORITHMS)
def test_learns_and_same_seed_gives_the_same_bits(name, even, model):
    algorithm = built(name, model)
    first, second = trained(algorithm, even, model), trained(algorithm, even, model)
    other = trained(algorithm, even, model, seed=4)
    assert same_bits(first, second)
    # Full-batch FedSGD does not depend on the order of the rows beyond rounding; all others do.
    assert name == "fed_sgd" or not same_bits(first, other)
    with Simulation(even, seed=3) as engine:
        before = engine.begin(algorithm, model.init(jax.random.key(0)))
        untrained = engine.predict(algorithm, before, "train")
        scores = engine.predict(algorithm, jax.tree.map(jax.numpy.asarray, first), "train")
    labels = np.eye(2)[scores.actual]
    assert np.square(scores.predicted - labels).mean() < np.square(untrained.predicted - labels).mean()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_leaves_the_first_model_and_the_data_alone(name, even, model):
    params = model.init(jax.random.key(0))
    kept, x = jax.device_get(params), even.x.copy()
    algorithm = built(name, model)
    with Simulation(even, seed=3) as engine:
        progress = engine.begin(algorithm, params)
        engine.train(algorithm, progress, [(1, EVERYONE)])
    assert same_bits(jax.device_get(params), kept)
    assert np.array_equal(even.x, x)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_survives_the_disk(name, even, model, tmp_path):
    progress = trained(built(name, model), even, model)
    write_checkpoint(tmp_path / "state.safetensors", progress, {"round": 2})
    restored, header = read_checkpoint(tmp_path / "state.safetensors", progress)
    assert header == {"round": 2}
    assert same_bits(restored, progress)
    shapes = [leaf.shape for leaf in jax.tree.leaves(restored)]
    assert shapes == [np.shape(leaf) for leaf in jax.tree.leaves(progress)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_names_the_round_and_the_site_of_a_nan(name, make_federation, model):
    broken = make_federation([48] * 7)  # as many as in `even`, so that the program is compiled already
    broken.x[broken.first[1] + 2] = np.nan
    algorithm = built(name, model)
    with pytest.raises(Diverged) as told:
        trained(algorithm, broken, model)
    assert told.value.round == 1
    assert told.value.sites == (("all",) if algorithm.pools else ("site-1",))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_ragged_empty_and_one_class_sites_train(name, ragged, model):
    progress = trained(built(name, model), ragged, model)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(progress))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_empty_site_changes_nothing(name, even, make_federation, model):
    """Seven sites of which one is empty learn what the six others learn without it."""
    with_empty, without = make_federation([32] * 6 + [0]), make_federation([32] * 6)
    algorithm = built(name, model)
    # SCAFFOLD's control is averaged over all N sites of the study, the empty one too, and steers from round 2 on.
    rounds = (1,) if name == "scaffold" else (1, 2)
    one = trained(algorithm, with_empty, model, rounds, cohort=np.arange(7))
    other = trained(algorithm, without, model, rounds, cohort=np.arange(6))
    models = (jax.tree.leaves(algorithm.params(progress.server)) for progress in (one, other))
    for p, q in zip(*models, strict=True):
        np.testing.assert_allclose(p, q, atol=1e-6)
    if name == "scaffold":
        for key, control in other.server["control"].items():
            assert np.abs(control).max() > 1e-3
            np.testing.assert_allclose(one.server["control"][key], control * 6 / 7, atol=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_devices_give_the_same_model(name, ragged, model, monkeypatch):
    monkeypatch.setattr("wardround.engine.layout.WORTH_A_DEVICE", 0)
    algorithm = built(name, model)
    one, two = (trained(algorithm, ragged, model, devices=count) for count in (1, 2))
    for p, q in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(p, q, atol=2e-6)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("name", ["fed_avg", "scaffold"])
def test_works_with_every_aggregator(name, aggregator, ragged, model):
    algorithm = built(name, model, aggregator)
    first, second = trained(algorithm, ragged, model), trained(algorithm, ragged, model)
    assert same_bits(first, second)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(first))
    start = model.init(jax.random.key(0))
    learned = algorithm.params(first.server)
    assert learned.keys() == start.keys()
    # Array by array, by name: that one of them equals another's start would say nothing.
    moved = {key: float(np.abs(learned[key] - start[key]).max()) for key in start}
    assert min(moved.values()) > 1e-4, moved


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_two_devices_agree_for_every_aggregator(aggregator, ragged, model, monkeypatch):
    monkeypatch.setattr("wardround.engine.layout.WORTH_A_DEVICE", 0)
    algorithm = built("fed_avg", model, aggregator)
    one, two = (trained(algorithm, ragged, model, devices=count) for count in (1, 2))
    for p, q in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(p, q, atol=1e-5)
