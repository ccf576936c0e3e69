"""Linear regression against least squares and ridge on real patients."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from wardround.core.contracts import Batch, Params, Task
from wardround.core.errors import Refusal
from wardround.models.linear import linear

KEY = jax.random.key(0)


def patients() -> tuple[np.ndarray, np.ndarray]:
    """442 diabetes patients, ten features; s1 to s4 are left out, being nearly collinear."""
    data = load_diabetes()
    x = StandardScaler().fit_transform(data.data[:, [0, 1, 2, 3, 8, 9]]).astype(np.float32)
    return x, (data.target / 100).astype(np.float32)


def converged(l2: float, x: np.ndarray, y: np.ndarray) -> Params:
    model = linear(Task((x.shape[1],)), l2=l2)
    batch = Batch(x, y, np.ones(len(y), np.float32))

    def step(_: int, params: Params) -> Params:
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, model.gradient(params, batch, KEY))

    return jax.jit(lambda params: jax.lax.fori_loop(0, 1000, step, params))(model.init(KEY))


def test_first_loss_and_gradient_by_hand() -> None:
    # At zeros the error is -3: loss 9, gradient 2 (-3) x = (-6, -12), bias 2 (-3) = -6.
    model = linear(Task((2,)))
    batch = Batch(np.array([[1.0, 2.0]], np.float32), np.array([3.0], np.float32), np.ones(1, np.float32))
    params = model.init(KEY)
    assert float(jax.jit(model.loss)(params, batch, KEY)) == 9.0
    slope = jax.jit(model.gradient)(params, batch, KEY)
    np.testing.assert_array_equal(slope["dense_0/kernel"], [[-6.0], [-12.0]])
    np.testing.assert_array_equal(slope["dense_0/bias"], [-6.0])
    assert model.predict(params, batch.x).shape == (1,)


def test_agrees_with_least_squares() -> None:
    x, y = patients()
    expected = np.linalg.lstsq(np.column_stack([x, np.ones(len(y))]), y, rcond=None)[0]
    params = converged(0.0, x, y)
    np.testing.assert_allclose(np.asarray(params["dense_0/kernel"])[:, 0], expected[:-1], atol=1e-3)
    np.testing.assert_allclose(np.asarray(params["dense_0/bias"])[0], expected[-1], atol=1e-3)


def test_l2_agrees_with_ridge() -> None:
    # Stationary where 2/n X'(Xw - y) + l2 w = 0, that is (X'X + n l2/2) w = X'y: ridge with alpha = n l2 / 2.
    x, y = patients()
    theirs = Ridge(alpha=len(y) * 0.5 / 2).fit(x, y)
    params = converged(0.5, x, y)
    np.testing.assert_allclose(np.asarray(params["dense_0/kernel"])[:, 0], theirs.coef_, atol=1e-3)
    np.testing.assert_allclose(np.asarray(params["dense_0/bias"])[0], theirs.intercept_, atol=1e-3)


def test_classes_as_target_are_refused_with_the_name_of_the_right_model() -> None:
    with pytest.raises(Refusal, match=r"2 classes.*'outcome'.*'logistic'"):
        linear(Task((2,), ("no", "yes"), "outcome"))
