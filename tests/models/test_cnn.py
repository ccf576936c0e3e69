"""The convolutional network: its patches against Flax's convolution, its pooling by hand, its size against LEAF's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from wardround.core.contracts import Array, Batch, Model, Params, Task, Tree
from wardround.core.errors import Refusal
from wardround.models.cnn import PatchConv, cnn, max_pool

KEY = jax.random.key(0)
DIGITS = Task((28, 28), tuple("0123456789"))


def numbers_for(model: Model, seed: int = 0) -> Params:
    """Parameters of the right shapes; drawing them here saves compiling the initializers."""
    generator = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, KEY)
    return {name: generator.normal(0, 0.3, leaf.shape).astype(np.float32) for name, leaf in shapes.items()}


@pytest.mark.parametrize(
    ("size", "channels", "stride"),
    [((5, 5), 1, 1), ((3, 4), 3, 1), ((1, 2), 3, 1), ((1, 2), 1, 1), ((3, 3), 3, 2), ((5, 4), 1, 2), ((1, 1), 2, 2)],
    ids=str,
)
def test_patches_times_matrix_equal_the_convolution_of_flax(size: tuple[int, int], channels: int, stride: int) -> None:
    ours, theirs = PatchConv(4, size, stride), nn.Conv(4, size, strides=stride)
    x = np.random.default_rng(0).normal(size=(2, 7, 6, channels)).astype(np.float32)
    left = (-(-7 // stride), -(-6 // stride))
    weights = np.random.default_rng(1).normal(size=(2, *left, 4)).astype(np.float32)
    generator = np.random.default_rng(2)
    shapes = jax.eval_shape(ours.init, KEY, x)
    assert shapes == jax.eval_shape(theirs.init, KEY, x)
    variables = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape).astype(np.float32), shapes)

    def both_ways(module: nn.Module) -> Tree:
        def pulled(v: Tree, x: Array) -> tuple[Array, Array]:
            outputs = module.apply(v, x)
            return jnp.sum(weights * jnp.sin(outputs)), outputs

        return jax.jit(jax.value_and_grad(pulled, argnums=(0, 1), has_aux=True))(variables, x)

    for mine, other in zip(jax.tree.leaves(both_ways(ours)), jax.tree.leaves(both_ways(theirs)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)


def test_patches_start_like_the_convolution_of_flax() -> None:
    x = jnp.zeros((1, 6, 6, 3))
    ours = jax.jit(PatchConv(4, (5, 5)).init)(KEY, x)
    theirs = jax.jit(nn.Conv(4, (5, 5)).init)(KEY, x)
    np.testing.assert_array_equal(ours["params"]["kernel"], theirs["params"]["kernel"])


def test_pooling_takes_the_largest_of_each_window_and_leaves_an_odd_edge_out() -> None:
    x = jnp.array([[1.0, 2.0, 9.0], [4.0, 3.0, 9.0], [9.0, 9.0, 9.0]])[None, :, :, None]
    np.testing.assert_array_equal(max_pool(x), [[[[4.0]]]])
    images = np.random.default_rng(0).normal(size=(2, 7, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(max_pool(images), nn.max_pool(images, (2, 2), (2, 2)))


def test_the_gradient_of_pooling_goes_to_the_largest_and_is_split_between_equals() -> None:
    x = jnp.array([[1.0, 2.0, 5.0, 5.0], [4.0, 3.0, 0.0, 5.0]])[None, :, :, None]
    slope = jax.jit(jax.grad(lambda x: jnp.sum(max_pool(x) * np.array([6.0, 9.0])[:, None])))(x)
    np.testing.assert_allclose(slope[0, :, :, 0], [[0, 0, 3, 3], [6, 0, 0, 3]])


def test_has_as_many_parameters_as_leafs_network() -> None:
    shapes = jax.eval_shape(cnn(DIGITS).init, KEY)
    count = sum(array.size for array in shapes.values())
    # Two convolutions of 5 x 5, 28 halved twice is 7, dense 512, ten classes.
    assert count == 5 * 5 * 1 * 32 + 32 + 5 * 5 * 32 * 64 + 64 + 7 * 7 * 64 * 512 + 512 + 512 * 10 + 10 == 1_663_370
    assert sorted(shapes) == [
        f"{layer}/{kind}" for layer in ("conv_0", "conv_1", "dense_0", "dense_1") for kind in ("bias", "kernel")
    ]


class Reference(nn.Module):  # type: ignore[misc]
    """The same network from Flax's own layers."""

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array) -> Array:
        for index, features in enumerate((2, 3)):
            x = nn.max_pool(nn.relu(nn.Conv(features, (5, 5), name=f"conv_{index}")(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(6, name="dense_0")(x.reshape(len(x), -1)))
        return nn.Dense(10, name="dense_1")(x)


def test_predicts_what_the_same_network_from_flaxs_layers_predicts() -> None:
    model = cnn(Task((9, 8), DIGITS.classes), channels=(2, 3), dense=6)
    params = numbers_for(model)
    x = np.random.default_rng(0).normal(size=(4, 9, 8)).astype(np.float32)
    nested: dict[str, dict[str, Array]] = {}
    for name, array in params.items():
        layer, kind = name.split("/")
        nested.setdefault(layer, {})[kind] = array
    expected = jax.jit(lambda v, x: jax.nn.softmax(Reference().apply(v, x)))({"params": nested}, x[..., None])
    np.testing.assert_allclose(jax.jit(model.predict)(params, x), expected, rtol=1e-4, atol=1e-6)
    with_channel = cnn(Task((9, 8, 1), DIGITS.classes), channels=(2, 3), dense=6)
    np.testing.assert_allclose(jax.jit(with_channel.predict)(params, x[..., None]), expected, rtol=1e-4)


def test_sites_side_by_side_get_the_gradients_each_gets_alone() -> None:
    model = cnn(Task((8, 8), ("no", "yes")), channels=(2, 3), dense=6)
    params = [numbers_for(model, seed) for seed in range(2)]
    x = np.random.default_rng(0).normal(size=(2, 4, 8, 8)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.float32)
    batch = Batch(x, np.array([[0, 1, 0, 1], [1, 1, 0, 0]]), mask)
    stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *params)
    both = jax.jit(jax.vmap(model.gradient, in_axes=(0, 0, None)))(stacked, batch, KEY)
    gradient = jax.jit(model.gradient)
    for i in range(2):
        alone = gradient(params[i], Batch(batch.x[i], batch.y[i], batch.mask[i]), KEY)
        for name, slope in alone.items():
            np.testing.assert_allclose(both[name][i], slope, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "options", "told"),
    [
        (Task((13,), ("no", "yes")), {}, r"needs images.*\(13,\).*'mlp'"),
        (Task((3, 28), ("no", "yes")), {}, "3 x 28 are too small to be halved 2 times"),
        (DIGITS, {"channels": (8, 0)}, r"\[8, 0\]"),
    ],
    ids=["no image", "too small", "no filter"],
)
def test_what_cannot_be_convolved_is_refused(task: Task, options: dict[str, Any], told: str) -> None:
    with pytest.raises(Refusal, match=told):
        cnn(task, **options)
