"""Cut gradients by hand in NumPy, and the quick way against the plain one for every kind of layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from wardround.core.contracts import Batch, Model, Task
from wardround.models.cnn import cnn
from wardround.models.from_flax import cross_entropy, from_flax
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp
from wardround.privacy import row_gradients
from wardround.privacy.row_gradients import clipped_sum

KEY = jax.random.key(3)
TASK = Task((5,), ("a", "b", "c"))


class Shared(nn.Module):
    """One kernel used twice, an embedding-like product on the left, and an unused parameter."""

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (5, 5))
        self.param("unused", nn.initializers.ones, (3,))
        return nn.Dense(3)(jnp.tanh(x @ kernel) @ kernel)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.LayerNorm()(nn.relu(nn.Dense(7)(x))))


class OnTheLeft(nn.Module):
    """Weights as the left factor, transposed, and over several places of a row."""

    @nn.compact
    def __call__(self, x):
        first = self.param("first", nn.initializers.lecun_normal(), (4, 5))
        places = jnp.stack([x, 2 * x, x**2], axis=-1)  # (rows, 5, 3)
        mixed = jax.vmap(lambda one: jnp.tanh(first @ one))(places)  # (rows, 4, 3)
        weights = self.param("second", nn.initializers.lecun_normal(), (3, 12))
        return mixed.reshape(x.shape[0], -1) @ weights.T


MODELS: dict[str, Model] = {
    "logistic": logistic(TASK),
    "linear": linear(Task((5,))),
    "mlp": mlp(TASK, hidden=(7, 4)),
    "mlp with l2": mlp(TASK, hidden=(7,), l2=0.3),
    "mlp with dropout": mlp(TASK, hidden=(7,), dropout=0.5),
    "cnn": cnn(Task((8, 8), ("a", "b", "c")), channels=(3, 4), kernel=3, dense=6),
    "layer norm": from_flax(Normed(), cross_entropy, TASK),
    "weights used twice": from_flax(Shared(), cross_entropy, TASK),
    "weights on the left": from_flax(OnTheLeft(), cross_entropy, TASK),
}
QUICK = {"logistic", "linear", "mlp", "mlp with dropout", "cnn", "weights on the left"}


def rows_for(name: str, count: int = 9) -> Batch:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(count, *((8, 8) if name == "cnn" else (5,)))).astype(np.float32)
    y = generator.normal(size=count).astype(np.float32) if name == "linear" else generator.integers(0, 3, count)
    return Batch(x, y.astype(np.float32 if name == "linear" else np.int32), np.ones(count, np.float32))


def params_of(model: Model):
    """Away from zero, so that no two uses happen to agree."""
    start = model.init(jax.random.key(0))
    noise = jax.random.normal(jax.random.key(1), (10_000,))
    return {name: a + 0.3 * noise[: a.size].reshape(a.shape) for name, a in start.items()}


def one_by_one(model: Model, params, batch: Batch, clip: float):
    """The definition, row by row: gradient of the row's own loss, cut to the length, added up in double precision."""
    keys = jax.random.split(KEY, len(batch.y))
    slope, total = jax.jit(jax.grad(model.loss)), {name: np.zeros(np.shape(a)) for name, a in params.items()}
    lengths = []
    for row in np.flatnonzero(batch.mask):
        own = Batch(batch.x[row : row + 1], batch.y[row : row + 1], np.ones(1, np.float32))
        gradient = {name: np.asarray(a, np.float64) for name, a in slope(params, own, keys[row]).items()}
        lengths.append(np.sqrt(sum(np.sum(a**2) for a in gradient.values())))
        for name, a in gradient.items():
            total[name] += a * min(1.0, clip / lengths[-1])
    return total, lengths


@pytest.mark.parametrize("name", MODELS)
def test_every_model_against_the_definition(name: str) -> None:
    model, batch = MODELS[name], rows_for(name)
    batch = batch._replace(mask=np.array([1, 1, 0, 1, 1, 1, 0, 1, 1], np.float32))
    params = params_of(model)
    _, lengths = one_by_one(model, params, batch, np.inf)
    clip = float(np.median(lengths))  # so that some rows are cut and some are not
    expected, _ = one_by_one(model, params, batch, clip)
    got = jax.jit(lambda p: clipped_sum(model.loss, p, batch, clip, KEY))(params)
    assert set(got) == set(params)
    for part, array in expected.items():
        np.testing.assert_allclose(got[part], array, rtol=2e-4, atol=2e-5 * clip, err_msg=part)


@pytest.mark.parametrize("name", MODELS)
def test_which_models_go_the_quick_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Exception):
        pass

    def slow(*given):
        raise Slow

    monkeypatch.setattr(row_gradients, "_from_gradients", slow)
    model = MODELS[name]
    if name in QUICK:
        jax.eval_shape(lambda p: clipped_sum(model.loss, p, rows_for(name), 1.0, KEY), params_of(model))
    else:
        with pytest.raises(Slow):
            jax.eval_shape(lambda p: clipped_sum(model.loss, p, rows_for(name), 1.0, KEY), params_of(model))


def test_two_rows_by_hand() -> None:
    # Logistic regression at zeros with two classes: both probabilities are 1/2, so a row's gradient in the logits is
    # (-1/2, 1/2) for class 0 and (1/2, -1/2) for class 1; in the weights it is x times that, in the biases that itself.
    # Row (3, 0), class 0: |g|^2 = (9 + 1) * 1/2 = 5. Row (0, 0), class 1: |g|^2 = 1/2, shorter than 1.
    model = logistic(Task((2,), ("a", "b")))
    batch = Batch(np.array([[3, 0], [0, 0]], np.float32), np.array([0, 1], np.int32), np.ones(2, np.float32))
    got = clipped_sum(model.loss, model.init(KEY), batch, 1.0, KEY)
    cut = 1 / np.sqrt(5)
    np.testing.assert_allclose(got["dense_0/kernel"], [[-1.5 * cut, 1.5 * cut], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(got["dense_0/bias"], [-cut / 2 + 0.5, cut / 2 - 0.5], rtol=1e-6)


@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.slow), "layer norm"])
def test_without_a_bound_it_is_the_plain_sum(name: str) -> None:
    model, batch = MODELS[name], rows_for(name)
    params = params_of(model)
    mean = model.gradient(params, batch, KEY)
    got = jax.jit(lambda p: clipped_sum(model.loss, p, batch, float("inf"), KEY))(params)
    for part, array in got.items():
        np.testing.assert_allclose(array, 9 * mean[part], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "cnn", "mlp with l2"])
@pytest.mark.parametrize("clip", [0.01, 1.0])
def test_one_row_more_changes_the_sum_by_the_bound_at_most(name: str, clip: float) -> None:
    model, batch, params = MODELS[name], rows_for(name), params_of(MODELS[name])
    wild = batch._replace(x=1000 * batch.x)  # gradients far longer than the bound
    summed = jax.jit(lambda mask: clipped_sum(model.loss, params, wild._replace(mask=mask), clip, KEY))
    full = summed(np.ones(9, np.float32))
    changes = []
    for row in range(9):
        without = summed(np.delete(np.eye(9, dtype=np.float32), row, axis=0).sum(axis=0))
        apart = [np.asarray(full[part], np.float64) - np.asarray(without[part], np.float64) for part in full]
        changes.append(np.sqrt(sum(np.sum(a**2) for a in apart)))
    assert max(changes) <= clip * (1 + 1e-4)
    assert max(changes) > 0.9 * clip, "the bound is reached, so the test could fail"


def test_what_stands_in_rows_that_do_not_count_does_no_harm() -> None:
    model, batch, params = MODELS["mlp"], rows_for("mlp"), params_of(MODELS["mlp"])
    mask = np.array([1, 1, 0, 1, 1, 1, 1, 1, 1], np.float32)
    broken = batch.x.copy()
    broken[2] = np.nan
    one = clipped_sum(model.loss, params, batch._replace(x=broken, mask=mask), 1.0, KEY)
    other = clipped_sum(model.loss, params, batch._replace(mask=mask), 1.0, KEY)
    jax.tree.map(np.testing.assert_array_equal, one, other)
    # A row that is not finite counts as zero: that it is not would tell of the patient.
    spoilt = clipped_sum(model.loss, params, batch._replace(x=broken), 1.0, KEY)
    jax.tree.map(np.testing.assert_array_equal, spoilt, other)
    nobody = clipped_sum(model.loss, params, batch._replace(mask=np.zeros(9, np.float32)), 1.0, KEY)
    assert not any(np.asarray(a).any() for a in nobody.values())


@pytest.mark.slow
def test_sites_side_by_side_give_what_each_gives_alone() -> None:
    model, batch = MODELS["mlp"], rows_for("mlp")
    many = [params_of(model), {name: 2 * a for name, a in params_of(model).items()}]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *many)
    together = jax.vmap(lambda p: clipped_sum(model.loss, p, batch, 0.5, KEY))(stacked)
    for place, params in enumerate(many):
        alone = clipped_sum(model.loss, params, batch, 0.5, KEY)
        jax.tree.map(lambda a, b, i=place: np.testing.assert_allclose(a[i], b, rtol=1e-5, atol=1e-6), together, alone)


def change_by_row(model: Model, params: dict, batch: Batch, row: int, clip: float) -> float:
    """How far the sum moves where one row no longer counts."""
    with_it = clipped_sum(model.loss, params, batch, clip, KEY)
    without = clipped_sum(
        model.loss,
        params,
        batch._replace(mask=np.delete(np.eye(len(batch.mask), dtype=np.float32), row, axis=0).sum(axis=0)),
        clip,
        KEY,
    )
    assert all(np.isfinite(np.asarray(array)).all() for array in with_it.values())
    apart = [np.asarray(with_it[part], np.float64) - np.asarray(without[part], np.float64) for part in with_it]
    return float(np.sqrt(sum(np.sum(a**2) for a in apart)))


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize(
    "size", [pytest.param(1e12, marks=pytest.mark.slow), pytest.param(1e19, marks=pytest.mark.slow), 3e38]
)
def test_no_parameters_make_a_row_count_for_more_than_the_clip(name: str, size: float) -> None:
    """Also where numbers overflow, or only their squares do."""
    model, batch = MODELS[name], rows_for(name)
    params = jax.tree.map(lambda a: np.sign(np.asarray(a)) * np.float32(size), params_of(model))
    for row in range(3):
        assert change_by_row(model, params, batch, row, 1.0) <= 1.0 + 1e-4


def test_a_small_square_beside_a_large_one_does_not_hide_a_long_gradient() -> None:
    """Inputs of 1.5e19 and what comes back of 1e-19 make a gradient of 1.5; the square of 1e-19 is 0 in floats."""

    def loss(params, batch, key):
        return 1e-19 * jnp.sum(batch.x @ params["w"])

    x = np.full((2, 1), 1.5e19, np.float32)
    found = clipped_sum(
        loss, {"w": np.zeros((1, 1), np.float32)}, Batch(x, np.zeros(2), np.ones(2, np.float32)), 1.0, KEY
    )
    np.testing.assert_allclose(found["w"], [[2.0]], rtol=1e-5)


def test_places_that_cancel_but_for_rounding_are_taken_to_be_long() -> None:
    """Two places whose products are 1e8 and -1e8 (1 + 2^-24): what is left is rounding, and may not exceed the clip."""

    def loss(params, batch, key):
        places = jnp.stack([batch.x, -batch.x * (1 + 2.0**-23)], axis=1)
        out = jnp.einsum("npk,kf->npf", places, params["w"])
        return 1e4 * jnp.sum(out * jnp.linspace(0.3, 0.7, 40))

    x = np.random.default_rng(0).normal(size=(2, 40)).astype(np.float32) * 1e4
    for row in range(2):
        mask = np.eye(2, dtype=np.float32)[row]
        found = clipped_sum(loss, {"w": np.zeros((40, 40), np.float32)}, Batch(x, np.zeros(2), mask), 1.0, KEY)
        assert np.linalg.norm(np.asarray(found["w"], np.float64)) <= 1.0 + 1e-4
