"""Labels read off the last layer's gradient."""

import jax
import numpy as np
import pytest

from wardround.core.contracts import Batch, Task
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.privacy.attacks.label_leak import (
    label_of_one,
    label_shares,
    last_bias,
    mean_prediction,
)

TASK = Task((4,), ("a", "b", "c"))


def batch_of(labels: list[int], seed: int = 0) -> Batch:
    x = np.random.default_rng(seed).normal(size=(len(labels), 4)).astype(np.float32)
    return Batch(x, np.array(labels, np.int32), np.ones(len(labels), np.float32))


def test_one_rows_label_is_always_read_off():
    model = mlp(TASK, hidden=(8,))
    params = model.init(jax.random.key(0))
    name = last_bias(params, 3)
    assert name == "dense_1/bias"
    gradient = jax.jit(model.gradient)
    for label in (0, 1, 2):
        for seed in range(4):
            slope = gradient(params, batch_of([label], seed), jax.random.key(0))
            assert label_of_one(slope[name]) == label


def test_shares_at_zeros_are_exact():
    # At zeros every class has 1/3, so the bias gradient is 1/3 - share; of 10 rows here 5, 3 and 2.
    model = logistic(TASK)
    params = model.init(jax.random.key(0))
    slope = jax.jit(model.gradient)(params, batch_of([0] * 5 + [1] * 3 + [2] * 2), jax.random.key(0))
    np.testing.assert_allclose(slope["dense_0/bias"], [1 / 3 - 0.5, 1 / 3 - 0.3, 1 / 3 - 0.2], atol=1e-6)
    guess = mean_prediction(model, params, (4,))
    np.testing.assert_allclose(label_shares(slope["dense_0/bias"], guess), [0.5, 0.3, 0.2], atol=1e-6)


def test_shares_are_shares_whatever_comes_in():
    assert label_shares([5.0, 5.0], [0.5, 0.5]).tolist() == [0.5, 0.5]
    # 0.5 + 0.3 = 0.8, and 0.5 - 0.7 is cut to 0.
    assert label_shares([-0.3, 0.7], [0.5, 0.5]).tolist() == [1.0, 0.0]


def test_the_last_bias_is_the_last_by_number():
    params = {f"dense_{number}/bias": np.zeros(3) for number in (2, 10, 9)} | {"dense_10/kernel": np.zeros((3, 3))}
    assert last_bias(params, 3) == "dense_10/bias"
    assert last_bias(params, 4) is None


@pytest.mark.parametrize("seed", [1, 2])
def test_made_up_patients_give_the_mean_prediction(seed):
    model = mlp(TASK, hidden=(8,))
    params = model.init(jax.random.key(seed))
    x = np.random.default_rng(seed).normal(size=(4000, 4)).astype(np.float32)
    real = np.asarray(model.predict(params, x)).mean(axis=0)
    np.testing.assert_allclose(mean_prediction(model, params, (4,)), real, atol=0.03)
