"""Logistic regression against the formula by hand and against scikit-learn on real patients."""

import jax
import numpy as np
import optax
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from wardround.core.contracts import Batch, Model, Params, Task
from wardround.core.errors import Refusal
from wardround.models.logistic import logistic

KEY = jax.random.key(0)


def converged(model: Model, x: np.ndarray, y: np.ndarray, steps: int) -> Params:
    batch = Batch(x, y, np.ones(len(y), np.float32))
    optimizer = optax.sgd(0.2, momentum=0.9, nesterov=True)

    def step(_: int, carry: tuple[Params, optax.OptState]) -> tuple[Params, optax.OptState]:
        updates, memory = optimizer.update(model.gradient(carry[0], batch, KEY), carry[1])
        return optax.apply_updates(carry[0], updates), memory

    params = model.init(KEY)
    return jax.jit(lambda p: jax.lax.fori_loop(0, steps, step, (p, optimizer.init(p)))[0])(params)


def test_starts_at_zeros_where_all_classes_are_equally_likely() -> None:
    model = logistic(Task((2,), ("a", "b", "c")))
    params = model.init(KEY)
    assert {name: array.shape for name, array in params.items()} == {"dense_0/kernel": (2, 3), "dense_0/bias": (3,)}
    np.testing.assert_allclose(model.predict(params, np.ones((4, 2), np.float32)), np.full((4, 3), 1 / 3), rtol=1e-6)


def test_first_gradient_by_hand() -> None:
    # At zeros p = (1/2, 1/2); the gradient is the mean of x (p - onehot(y)). For x = (2, 4), y = 1 it is
    # (2, 4)^T (1/2, -1/2) = ((1, -1), (2, -2)); for x = (6, 0), y = 0 it is ((-3, 3), (0, 0)).
    # Their mean is ((-1, 1), (1, -1)).
    model = logistic(Task((2,), ("no", "yes")))
    batch = Batch(np.array([[2.0, 4.0], [6.0, 0.0]], np.float32), np.array([1, 0]), np.ones(2, np.float32))
    slope = jax.jit(model.gradient)(model.init(KEY), batch, KEY)
    np.testing.assert_allclose(slope["dense_0/kernel"], [[-1, 1], [1, -1]], rtol=1e-6)
    np.testing.assert_allclose(slope["dense_0/bias"], [0, 0], atol=1e-7)
    np.testing.assert_allclose(model.loss(model.init(KEY), batch, KEY), np.log(2), rtol=1e-6)


def test_two_classes_agree_with_scikit_learn_on_breast_cancer() -> None:
    # Two columns of weights reach w1 = -w0 = v/2, v being the classical single column. Their penalty is
    # l2/2 (|v/2|^2 + |v/2|^2) = l2/4 |v|^2; scikit-learn minimizes 1/2 |v|^2 + C n (mean loss), so C = 2 / (l2 n).
    data = load_breast_cancer()
    x, y = StandardScaler().fit_transform(data.data).astype(np.float32), data.target.astype(np.int32)
    l2 = 0.05
    theirs = LogisticRegression(C=2 / (l2 * len(y)), tol=1e-10, max_iter=10_000).fit(x, y)
    model = logistic(Task((30,), ("malignant", "benign")), l2=l2)
    params = converged(model, x, y, 3000)
    kernel, bias = np.asarray(params["dense_0/kernel"]), np.asarray(params["dense_0/bias"])
    np.testing.assert_allclose(kernel[:, 1] - kernel[:, 0], theirs.coef_[0], atol=1e-3)
    np.testing.assert_allclose(bias[1] - bias[0], theirs.intercept_[0], atol=1e-3)
    np.testing.assert_allclose(model.predict(params, x), theirs.predict_proba(x), atol=1e-3)


def test_three_classes_agree_with_scikit_learn_on_iris() -> None:
    # Here both have a column a class: mean loss + l2/2 |W|^2 is theirs with C = 1 / (l2 n).
    x, y = load_iris(return_X_y=True)
    x = StandardScaler().fit_transform(x).astype(np.float32)
    l2 = 0.05
    theirs = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-10, max_iter=10_000).fit(x, y)
    params = converged(logistic(Task((4,), ("a", "b", "c")), l2=l2), x, y.astype(np.int32), 3000)
    np.testing.assert_allclose(np.asarray(params["dense_0/kernel"]).T, theirs.coef_, atol=1e-3)


def test_a_number_as_target_is_refused_with_the_name_of_the_right_model() -> None:
    with pytest.raises(Refusal, match=r"'blood_pressure'.*'linear'"):
        logistic(Task((2,), (), "blood_pressure"))
