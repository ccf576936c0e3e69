"""A Flax module as a model: masks, empty batches, dropout, flat names, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from wardround.core.contracts import Array, Batch, Model, Params, Task
from wardround.core.errors import Refusal
from wardround.models.from_flax import cross_entropy, from_flax, squared_error
from wardround.models.logistic import logistic
from wardround.models.mlp import Perceptron, mlp

KEY = jax.random.key(0)
CLASSES = Task((3,), ("no", "yes"))


def numbers_for(model: Model, seed: int = 0) -> Params:
    """Parameters of the right shapes; drawing them here saves compiling the initializers."""
    generator = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, KEY)
    return {name: generator.normal(0, 0.3, leaf.shape).astype(np.float32) for name, leaf in shapes.items()}


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, 3)).astype(np.float32), generator.integers(0, 2, count).astype(np.int32)


def test_cross_entropy_is_minus_the_log_of_the_right_probability() -> None:
    # softmax(0, ln 3) = (1/4, 3/4), so the losses are ln 4 for class 0 and ln(4/3) for class 1.
    outputs = jnp.array([[0.0, np.log(3.0)], [0.0, np.log(3.0)]])
    np.testing.assert_allclose(cross_entropy(outputs, jnp.array([0, 1])), np.log([4.0, 4 / 3]), rtol=1e-6)


def test_squared_error_has_no_half() -> None:
    np.testing.assert_array_equal(squared_error(jnp.array([[1.0], [5.0]]), jnp.array([4.0, 5.0])), [9.0, 0.0])


@pytest.mark.parametrize("model", [mlp(CLASSES, hidden=(4,), l2=0.3), logistic(CLASSES)], ids=["mlp", "logistic"])
def test_padded_rows_do_not_count_whatever_they_hold(model: Model) -> None:
    x, y = rows(5)
    params = numbers_for(model)
    alone = Batch(x, y, np.ones(5, np.float32))
    # The largest float overflows in any product, and 99 is no class: the mean must stay that of the five rows.
    junk = np.full((3, 3), np.finfo(np.float32).max, np.float32)
    padded = Batch(np.concatenate([x, junk]), np.append(y, [99, 99, -7]), np.array([1] * 5 + [0] * 3, np.float32))
    np.testing.assert_allclose(
        jax.jit(model.loss)(params, padded, KEY), jax.jit(model.loss)(params, alone, KEY), rtol=1e-6
    )
    expected, actual = jax.jit(model.gradient)(params, alone, KEY), jax.jit(model.gradient)(params, padded, KEY)
    for name, slope in expected.items():
        np.testing.assert_allclose(actual[name], slope, rtol=1e-5, atol=1e-7)


def test_the_target_of_a_padded_row_does_not_count_in_a_regression() -> None:
    model = mlp(Task((3,)), hidden=(4,))
    x, _ = rows(2)
    batch = Batch(x, np.array([1.0, 3e38], np.float32), np.array([1.0, 0.0], np.float32))
    slope = jax.jit(model.gradient)(numbers_for(model), batch, KEY)
    expected = jax.jit(model.gradient)(numbers_for(model), Batch(x[:1], batch.y[:1], batch.mask[:1]), KEY)
    for name in slope:
        np.testing.assert_allclose(slope[name], expected[name], rtol=1e-5, atol=1e-6)


def test_an_empty_batch_has_no_loss_and_no_gradient_even_with_a_penalty() -> None:
    model = mlp(CLASSES, hidden=(4,), dropout=0.5, l2=0.3)
    x, y = rows(4)
    batch = Batch(x, y, np.zeros(4, np.float32))
    params = numbers_for(model)
    assert float(jax.jit(model.loss)(params, batch, KEY)) == 0.0
    for slope in jax.jit(model.gradient)(params, batch, KEY).values():
        np.testing.assert_array_equal(slope, np.zeros_like(slope))


def test_the_penalty_is_half_l2_times_the_squared_weights_without_biases() -> None:
    x, y = rows(4)
    batch = Batch(x, y, np.ones(4, np.float32))
    plain, penalized = mlp(CLASSES, hidden=(4,)), mlp(CLASSES, hidden=(4,), l2=0.3)
    params = numbers_for(plain)
    extra = float(jax.jit(penalized.loss)(params, batch, KEY) - jax.jit(plain.loss)(params, batch, KEY))
    squares = sum(float(np.sum(np.square(params[name]))) for name in ("dense_0/kernel", "dense_1/kernel"))
    np.testing.assert_allclose(extra, 0.15 * squares, rtol=1e-4)


def test_parameters_are_flat_and_named_by_their_path() -> None:
    class Inner(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Array) -> Array:
            return nn.Dense(4, name="first")(x)

    class Outer(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Array) -> Array:
            return nn.Dense(2, name="last")(Inner(name="block")(x))

    params = jax.eval_shape(from_flax(Outer(), cross_entropy, CLASSES).init, KEY)
    shapes = {name: array.shape for name, array in params.items()}
    assert shapes == {
        "block/first/kernel": (3, 4),
        "block/first/bias": (4,),
        "last/kernel": (4, 2),
        "last/bias": (2,),
    }


def test_bytes_are_read_as_intensities() -> None:
    model = mlp(Task((3,), ("a", "b")), hidden=(4,))
    params = numbers_for(model)
    dark = np.array([[0, 51, 255]], np.uint8)
    np.testing.assert_allclose(
        jax.jit(model.predict)(params, dark),
        jax.jit(model.predict)(params, np.array([[0.0, 0.2, 1.0]], np.float32)),
        rtol=1e-6,
    )


def test_dropout_leaves_the_expected_output_unchanged_and_predictions_certain() -> None:
    # With the output itself as "loss", the mean over keys must be the undropped output: the units kept are scaled up.
    model = from_flax(Perceptron((8,), 1, 0.5), lambda outputs, y: outputs[:, 0], Task((3,)))
    params = numbers_for(model)
    x, _ = rows(1)
    batch = Batch(x, np.zeros(1, np.float32), np.ones(1, np.float32))
    draws = np.asarray(jax.jit(jax.vmap(lambda key: model.loss(params, batch, key)))(jax.random.split(KEY, 4000)))
    assert draws.std() > 0.01
    certain = float(jax.jit(model.predict)(params, x)[0])
    assert abs(draws.mean() - certain) < 5 * draws.std() / np.sqrt(4000)
    hidden = np.maximum(x @ params["dense_0/kernel"] + params["dense_0/bias"], 0)
    np.testing.assert_allclose(certain, (hidden @ params["dense_1/kernel"] + params["dense_1/bias"])[0, 0], rtol=1e-4)


@pytest.mark.parametrize("flag", ["train", "deterministic"])
def test_modules_that_are_told_whether_to_drop_out_are_told_so(flag: str) -> None:
    class Trained(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Array, train: bool) -> Array:
            return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(x))

    class Deterministic(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Array, deterministic: bool) -> Array:
            return nn.Dense(2)(nn.Dropout(0.5, deterministic=deterministic)(x))

    model = from_flax(Trained() if flag == "train" else Deterministic(), cross_entropy, CLASSES)
    params = numbers_for(model)
    x, y = rows(6)
    batch = Batch(x, y, np.ones(6, np.float32))
    assert float(jax.jit(model.loss)(params, batch, KEY)) == float(jax.jit(model.loss)(params, batch, KEY))
    assert float(jax.jit(model.loss)(params, batch, KEY)) != float(
        jax.jit(model.loss)(params, batch, jax.random.key(1))
    )
    logits = x @ params["Dense_0/kernel"] + params["Dense_0/bias"]
    np.testing.assert_allclose(jax.jit(model.predict)(params, x), jax.nn.softmax(logits), rtol=1e-5)


def test_modules_without_dropout_draw_no_random_numbers() -> None:
    x, y = rows(4)
    batch = Batch(x, y, np.ones(4, np.float32))

    def program(model: Model) -> str:
        return str(jax.make_jaxpr(model.gradient)(numbers_for(model), batch, KEY))

    assert "random_bits" not in program(mlp(CLASSES))
    assert "random_bits" in program(mlp(CLASSES, dropout=0.1))


class WithBatchNorm(nn.Module):  # type: ignore[misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        return nn.Dense(2)(nn.BatchNorm(use_running_average=False)(x))


class Nothing(nn.Module):  # type: ignore[misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        return x[:, :2]


class AlwaysDrops(nn.Module):  # type: ignore[misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=False)(x))


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (WithBatchNorm(), "batch_stats.*GroupNorm"),
        (nn.Dense(5), r"\(2, 5\) for two rows, not \(2, 2\).*nn.Dense\(2\)"),
        (Nothing(), "no parameters"),
        (AlwaysDrops(), "dropout"),
        (nn.Conv(2, (3, 3)), r"rows of shape \(3,\)|for two rows"),
    ],
    ids=["batch norm", "outputs", "no parameters", "always drops", "shape"],
)
def test_what_cannot_be_trained_is_refused_in_words(module: nn.Module, told: str) -> None:
    with pytest.raises(Refusal, match=told) as caught:
        from_flax(module, cross_entropy, CLASSES)
    assert type(module).__name__ in caught.value.where
    assert "\n" not in str(caught.value)
