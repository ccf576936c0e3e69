"""Rows rebuilt from gradients: they come back without protection, not through noise, and not from a sum of many."""

import jax
import numpy as np
import pytest

from wardround.core.contracts import Batch, Task
from wardround.models.cnn import cnn
from wardround.models.mlp import mlp
from wardround.privacy.attacks.gradient_inversion import closeness, first_dense, invert_analytically, invert_by_matching

TASK = Task((6,), ("no", "yes"))


@pytest.fixture(scope="module")
def network():
    model = mlp(TASK, hidden=(16,))
    return model, model.init(jax.random.key(3)), jax.jit(model.gradient)


def rows_of(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, 6)).astype(np.float32), generator.integers(0, 2, count).astype(np.int32)


def slope_of(network, x, y):
    _, params, gradient = network
    return gradient(params, Batch(x, y, np.ones(len(y), np.float32)), jax.random.key(0))


def test_by_hand():
    # A unit's weights move by 2 (1, 3), its bias by 2: the row was (1, 3). The second unit did not move.
    update = {"dense_0/kernel": np.array([[2.0, 0.0], [6.0, 0.0]]), "dense_0/bias": np.array([2.0, 0.0])}
    assert invert_analytically(update, "dense_0").tolist() == [[1.0, 3.0]]
    found = closeness(np.array([[1.0, 3.0], [9.0, 9.0]]), np.array([[1.0, 3.0], [1.0, 2.0]]), np.zeros(2))
    # The second row is missed by 1, and is sqrt(5) from the middle.
    assert found == (2, 1, 0.0, pytest.approx(1 / np.sqrt(5) / 2))
    assert closeness(np.zeros((0, 2)), np.ones((1, 2)), np.zeros(2)) == (1, 0, 1.0, 1.0)


def test_a_single_row_comes_back_exactly(network):
    for seed in range(3):
        x, y = rows_of(1, seed)
        candidates = invert_analytically(slope_of(network, x, y), "dense_0")
        found = closeness(candidates, x, np.zeros(6))
        assert found.rebuilt == 1
        assert found.nearest < 1e-4


def from_sums(width: int, patients: int, sets: int = 20) -> tuple[float, float]:
    """Share of rows rebuilt from sums of so many, and how near rows inside come, relative to strangers (1: chance)."""
    model = mlp(TASK, hidden=(width,))
    params = model.init(jax.random.key(4))
    gradient = jax.jit(model.gradient)
    rebuilt, nearness = [], []
    for seed in range(sets):
        x, y = rows_of(patients, 10_000 + seed)
        candidates = invert_analytically(slope_of((model, params, gradient), x, y), "dense_0")
        inside = closeness(candidates, x, np.zeros(6))
        strangers = [
            closeness(candidates, rows_of(patients, 50_000 + 100 * seed + n)[0], np.zeros(6)) for n in range(10)
        ]
        rebuilt.append(inside.rebuilt / patients)
        nearness.append(inside.typical / np.mean([one.typical for one in strangers]))
    return float(np.mean(rebuilt)), float(np.mean(nearness))


@pytest.mark.parametrize("width", [16, 64])
def test_a_sum_hides_its_patients_the_better_the_more_there_are(width):
    """Many sets and a measured size: any one set may look like chance, and from few patients it is not.

    From three patients, as three sites with one each have, most come back. From twenty on nobody does. What stays is
    that candidates are mixtures of the rows inside, so these lie a little nearer to them than strangers do: by about a
    tenth at twenty patients, a twentieth at sixty, a hundredth at three hundred. It fades; it is never quite chance.
    """
    found = {patients: from_sums(width, patients) for patients in (3, 20, 60, 300)}
    assert found[3][0] > 0.6
    assert all(found[patients][0] == 0 for patients in (20, 60, 300))
    nearness = [found[patients][1] for patients in (3, 20, 60, 300)]
    assert nearness == sorted(nearness)
    assert nearness[0] < 0.2
    assert 0.8 < nearness[1] < 0.96
    assert 0.92 < nearness[2] < 0.985
    assert 0.98 < nearness[3] < 1.01


def test_noise_hides_a_row(network):
    x, y = rows_of(1, 1)
    slope = slope_of(network, x, y)
    length = np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in slope.values()))
    generator = np.random.default_rng(0)
    # Clipped to length 1 and noised with a multiplier of 1, as DP-SGD does with a batch of one.
    noisy = {
        name: np.asarray(leaf) / max(1.0, length) + generator.normal(size=leaf.shape) for name, leaf in slope.items()
    }
    assert closeness(invert_analytically(noisy, "dense_0"), x, np.zeros(6)).rebuilt == 0


@pytest.mark.slow
def test_matching_rebuilds_an_image_from_a_network_without_a_dense_first_layer():
    model = cnn(Task((5, 5), ("no", "yes")), channels=(16,), kernel=3, dense=64)
    params = model.init(jax.random.key(1))
    assert first_dense(params) is None
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1, 5, 5)).astype(np.float32)
    y = np.array([1], np.int32)
    gradient = jax.jit(model.gradient)(params, Batch(x, y, np.ones(1, np.float32)), jax.random.key(0))
    found = invert_by_matching(model, params, gradient, y, (5, 5), steps=200, starts=4)
    correlation = np.corrcoef(found.ravel(), x.ravel())[0, 1]
    assert correlation > 0.99
    # A gradient of something else leads elsewhere: the success above is not the prior's.
    other = generator.normal(size=(1, 5, 5))
    assert abs(np.corrcoef(found.ravel(), other.ravel())[0, 1]) < 0.5


def test_the_first_layer(network):
    assert first_dense(network[1]) == "dense_0"
    assert first_dense({"dense_0/kernel": np.zeros((2, 2)), "dense_1/bias": np.zeros(2)}) is None
    assert first_dense({}) is None
