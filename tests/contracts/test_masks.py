"""Every algorithm that fits learns masks: simulated, and with each site by itself as between real hospitals."""

import jax
import numpy as np
import pytest

from tests.contracts.test_halves import deployed, simulated
from tests.support.images.folder import disc
from wardround.core.chain import identity
from wardround.core.contracts import Scores, Task
from wardround.core.errors import Diverged, Refusal
from wardround.core.federation import assemble
from wardround.core.overlap import dice_of
from wardround.engine import registry
from wardround.engine.simulate import Simulation
from wardround.models.images.u_net import u_net

SIDE, TASK = 8, Task((8, 8, 1), (), "mask", segmentation=True)
REFUSED = {
    "partial_pooling": "one answer for every pixel",
    "fed_ma": "fed_ma|layers",
    "federated_dropout": "units",
    "asyn_dgan": "this model makes none",
    "fed_sim": "this model has none",
    "context_features": "how many numbers a row has",
}


def federation_of(counts=(16, 12, 16, 0, 12, 16, 12)):
    pieces = []
    for site, count in enumerate(counts):
        parts = []
        for part, size in enumerate((count, 0, min(count, 4))):
            drawn = [disc(1000 * site + 100 * part + row, SIDE, 200 - 15 * site) for row in range(size)]
            x = np.array([one[0] for one in drawn], np.uint8).reshape(size, SIDE, SIDE, 1)
            parts.append((x, np.array([one[1] > 0 for one in drawn], np.uint8).reshape(size, SIDE, SIDE)))
        pieces.append((f"site-{site}", parts))
    return assemble(pieces, TASK)


def made(name, aggregator="weighted_mean", **settings):
    model = u_net(TASK, filters=2, depth=1)
    combined = registry.find("aggregator", aggregator).build()
    return model, registry.find("algorithm", name).build(model, combined, **settings)


def check_both_halves(name, **settings):
    """What the sites learn over real distances is what the simulation learns, and it is finite."""
    model, algorithm = made(name, **settings)
    params, data = model.init(jax.random.key(0)), federation_of()
    plain = identity()
    progress, scores = simulated(algorithm, plain, data, params)
    other, _, _ = deployed(algorithm, plain, data, params, predicts=False)
    for one, two in zip(jax.tree.leaves(progress.server), jax.tree.leaves(other.server), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-5)
    assert isinstance(scores, Scores)
    assert scores.predicted.shape == (24, 3)
    assert np.isfinite(dice_of(scores.predicted, scores.actual)).all()


@pytest.mark.parametrize(("name", "settings"), [("fed_avg", {}), ("fed_dg", {"second_order": False})])
def test_some_algorithms_learn_masks_in_both_engines(name, settings):
    check_both_halves(name, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(registry.components("algorithm")) - {"fed_avg", "centralized"}))
def test_every_algorithm_learns_masks_or_is_refused(name):
    if name not in REFUSED:
        check_both_halves(name)
        return
    with pytest.raises(Refusal, match=REFUSED[name]):
        check_both_halves(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(registry.components("aggregator")))
def test_every_aggregator_but_one_adds_up_masks(name):
    model, algorithm = made("fed_avg", name)
    with Simulation(federation_of(), seed=3) as engine:
        if name == "class_weighted":
            with pytest.raises(Refusal, match="the task has no classes"):
                engine.begin(algorithm, model.init(jax.random.key(0)))
            return
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        after, _ = engine.train(algorithm, progress, [(1, np.arange(7))])
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.device_get(after)))


@pytest.mark.slow
def test_fed_dg_repeats_ignores_an_empty_site_and_names_a_broken_one():
    model, algorithm = made("fed_dg", second_order=False)

    def trained(counts, seed=3, broken=None):
        data = federation_of(counts)
        with Simulation(data, seed=seed) as engine:
            params = model.init(jax.random.key(0))
            if broken is not None:
                params = {name: array * np.nan for name, array in params.items()}
            progress = engine.begin(algorithm, params)
            rounds = [(number, np.arange(len(counts))) for number in (1, 2)]
            return jax.device_get(algorithm.params(engine.train(algorithm, progress, rounds)[0].server))

    one, again, other = trained((12, 16)), trained((12, 16)), trained((12, 16), seed=4)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert any(not np.array_equal(one[name], other[name]) for name in one)
    empty = trained((12, 16, 0))
    for name in one:
        np.testing.assert_allclose(one[name], empty[name], atol=2e-5)
    with pytest.raises(Diverged):
        trained((12, 16), broken=True)
