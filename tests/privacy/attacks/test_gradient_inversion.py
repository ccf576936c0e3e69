"""Rows rebuilt from gradients: they come back without protection, and not from a sum or through noise."""

import jax
import numpy as np
import pytest

from wardround.core.contracts import Batch, Task
from wardround.models.cnn import cnn
from wardround.models.mlp import mlp
from wardround.privacy.attacks.gradient_inversion import analytic, by_matching, closeness, first_dense

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
    assert analytic(update, "dense_0").tolist() == [[1.0, 3.0]]
    found = closeness(np.array([[1.0, 3.0], [9.0, 9.0]]), np.array([[1.0, 3.0], [1.0, 2.0]]), np.zeros(2))
    # The second row is missed by 1, and is sqrt(5) from the middle.
    assert found == (2, 1, 0.0, pytest.approx(1 / np.sqrt(5) / 2))
    assert closeness(np.zeros((0, 2)), np.ones((1, 2)), np.zeros(2)) == (1, 0, 1.0, 1.0)


def test_a_single_row_comes_back_exactly(network):
    for seed in range(3):
        x, y = rows_of(1, seed)
        candidates = analytic(slope_of(network, x, y), "dense_0")
        found = closeness(candidates, x, np.zeros(6))
        assert found.rebuilt == 1
        assert found.nearest < 1e-4


def test_under_a_sum_of_twenty_sites_it_is_at_chance(network):
    """The sum of 20 gradients of one row each: what comes out fits the rows in it no better than others."""
    x, y = rows_of(20, 7)
    total = slope_of(network, x, y)  # the mean of the 20, as a secure sum opens it
    candidates = analytic(total, "dense_0")
    inside = closeness(candidates, x, np.zeros(6))
    others = [closeness(candidates, rows_of(20, seed)[0], np.zeros(6)) for seed in range(100, 140)]
    assert inside.rebuilt == 0
    # Ranked among 40 sets of rows that were not in the sum: neither the best row nor the typical one stands out.
    assert np.mean([inside.typical < other.typical for other in others]) < 0.95
    assert np.mean([inside.nearest < other.nearest for other in others]) < 0.95


def test_noise_hides_a_row(network):
    x, y = rows_of(1, 1)
    slope = slope_of(network, x, y)
    length = np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in slope.values()))
    generator = np.random.default_rng(0)
    # Clipped to length 1 and noised with a multiplier of 1, as DP-SGD does with a batch of one.
    noisy = {
        name: np.asarray(leaf) / max(1.0, length) + generator.normal(size=leaf.shape) for name, leaf in slope.items()
    }
    assert closeness(analytic(noisy, "dense_0"), x, np.zeros(6)).rebuilt == 0


def test_matching_rebuilds_an_image_from_a_network_without_a_dense_first_layer():
    model = cnn(Task((5, 5), ("no", "yes")), channels=(16,), kernel=3, dense=64)
    params = model.init(jax.random.key(1))
    assert first_dense(params) is None
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1, 5, 5)).astype(np.float32)
    y = np.array([1], np.int32)
    gradient = jax.jit(model.gradient)(params, Batch(x, y, np.ones(1, np.float32)), jax.random.key(0))
    found = by_matching(model, params, gradient, y, (5, 5), steps=200, starts=4)
    correlation = np.corrcoef(found.ravel(), x.ravel())[0, 1]
    assert correlation > 0.99
    # A gradient of something else leads elsewhere: the success above is not the prior's.
    other = generator.normal(size=(1, 5, 5))
    assert abs(np.corrcoef(found.ravel(), other.ravel())[0, 1]) < 0.5


def test_the_first_layer(network):
    assert first_dense(network[1]) == "dense_0"
    assert first_dense({"dense_0/kernel": np.zeros((2, 2)), "dense_1/bias": np.zeros(2)}) is None
    assert first_dense({}) is None
