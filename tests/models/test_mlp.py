"""The multilayer perceptron against the same products in NumPy, and where a linear model must fail."""

import jax
import numpy as np
import optax
import pytest

from wardround.core.contracts import Batch, Model, Params, Task
from wardround.core.errors import Refusal
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp

KEY = jax.random.key(3)


def numbers_for(model: Model, seed: int = 0) -> Params:
    """Parameters of the right shapes; drawing them here saves compiling the initializers."""
    generator = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, KEY)
    return {name: generator.normal(0, 0.3, leaf.shape).astype(np.float32) for name, leaf in shapes.items()}


def test_names_and_number_of_parameters() -> None:
    # 3 x 5 + 5, 5 x 4 + 4, 4 x 2 + 2: 20 + 24 + 10 = 54.
    params = jax.eval_shape(mlp(Task((3,), ("no", "yes")), hidden=(5, 4)).init, KEY)
    assert sorted(params) == [f"dense_{i}/{kind}" for i in range(3) for kind in ("bias", "kernel")]
    assert sum(array.size for array in params.values()) == 54


@pytest.mark.parametrize("classes", [(), ("a", "b", "c")], ids=["number", "classes"])
def test_prediction_is_the_products_with_relu_between(classes: tuple[str, ...]) -> None:
    model = mlp(Task((2, 2), classes), hidden=(5, 4))
    params = numbers_for(model)
    x = np.random.default_rng(0).normal(size=(6, 2, 2)).astype(np.float32)
    hidden = x.reshape(6, 4)
    for layer in ("dense_0", "dense_1"):
        hidden = np.maximum(hidden @ params[f"{layer}/kernel"] + params[f"{layer}/bias"], 0)
    outputs = hidden @ params["dense_2/kernel"] + params["dense_2/bias"]
    odds = np.exp(outputs)
    expected = odds / odds.sum(axis=1, keepdims=True) if classes else outputs[:, 0]
    np.testing.assert_allclose(jax.jit(model.predict)(params, x), expected, rtol=1e-4, atol=1e-6)


def test_learns_exclusive_or_which_no_linear_model_can() -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    batch = Batch(x, np.array([0, 1, 1, 0]), np.ones(4, np.float32))
    task = Task((2,), ("same", "different"))

    def final_loss(model: Model) -> float:
        optimizer = optax.sgd(0.3, momentum=0.9)

        def step(_: int, carry: tuple[Params, optax.OptState]) -> tuple[Params, optax.OptState]:
            updates, memory = optimizer.update(model.gradient(carry[0], batch, KEY), carry[1])
            return optax.apply_updates(carry[0], updates), memory

        params = jax.jit(model.init)(KEY)
        params = jax.jit(lambda p: jax.lax.fori_loop(0, 500, step, (p, optimizer.init(p)))[0])(params)
        return float(jax.jit(model.loss)(params, batch, KEY))

    assert final_loss(mlp(task, hidden=(16,))) < 0.01
    # By symmetry the best a linear model can do is one half for everything, a loss of ln 2.
    np.testing.assert_allclose(final_loss(logistic(task)), np.log(2), rtol=1e-4)


def test_without_hidden_layers_it_is_logistic_regression() -> None:
    task = Task((3,), ("no", "yes"))
    params = {
        "dense_0/kernel": np.arange(6, dtype=np.float32).reshape(3, 2) / 7,
        "dense_0/bias": np.ones(2, np.float32),
    }
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(mlp(task, hidden=()).predict(params, x), logistic(task).predict(params, x), rtol=1e-6)


def test_a_layer_without_units_is_refused() -> None:
    with pytest.raises(Refusal, match=r"\[8, 0\]"):
        mlp(Task((3,)), hidden=(8, 0))
