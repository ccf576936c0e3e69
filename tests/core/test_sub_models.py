"""Sub-models by hand: what is cut out, where it goes back, and who held which entry."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Task
from wardround.core.sub_models import cut_out, held, mean_of_holders, put_in, scale_inputs, unit_counts
from wardround.models.cnn import cnn
from wardround.models.mlp import mlp

UNITS = (("a/kernel", ("", "a")), ("a/bias", ("a",)), ("b/kernel", ("a", "")), ("b/bias", ("",)))
WHOLE = {
    "a/kernel": jnp.arange(6.0).reshape(2, 3),
    "a/bias": jnp.array([10.0, 11.0, 12.0]),
    "b/kernel": jnp.arange(12.0).reshape(6, 2),
    "b/bias": jnp.array([7.0, 8.0]),
}
"""Three units in the layer a; two "pixels" of them lead to two outputs, the units changing fastest."""


def test_cut_by_hand():
    # Units 0 and 2: columns 0 and 2 of a/kernel; rows 0, 2 (first pixel) and 3, 5 (second) of b/kernel.
    small = cut_out(UNITS, WHOLE, {"a": jnp.array([0, 2])})
    np.testing.assert_array_equal(small["a/kernel"], [[0, 2], [3, 5]])
    np.testing.assert_array_equal(small["a/bias"], [10, 12])
    np.testing.assert_array_equal(small["b/kernel"], [[0, 1], [4, 5], [6, 7], [10, 11]])
    np.testing.assert_array_equal(small["b/bias"], [7, 8])


def test_what_is_put_in_stands_where_it_was_cut_out():
    kept = {"a": jnp.array([2, 0])}  # in any order
    back = put_in(UNITS, WHOLE, cut_out(UNITS, WHOLE, kept), kept)
    np.testing.assert_array_equal(back["a/kernel"], [[0, 0, 2], [3, 0, 5]])
    np.testing.assert_array_equal(back["a/bias"], [10, 0, 12])
    np.testing.assert_array_equal(back["b/kernel"], [[0, 1], [0, 0], [4, 5], [6, 7], [0, 0], [10, 11]])
    np.testing.assert_array_equal(back["b/bias"], [7, 8])


def test_holders_by_hand():
    # One with weight 1 holds the units 0 and 1, one with weight 3 holds 1 and 2: unit 1 counts 4.
    parts = [held(UNITS, WHOLE, {"a": jnp.array(kept)}, jnp.float32(w)) for kept, w in (([0, 1], 1), ([1, 2], 3))]
    total = jax.tree.map(lambda p, q: p + q, *parts)
    np.testing.assert_array_equal(total["a/bias"], [1, 4, 3])
    assert total["a/kernel"].shape == (1, 3)
    assert total["b/kernel"].shape == (1, 3, 1)
    assert "b/bias" not in total  # everybody holds it: the mean over all is that over its holders
    # Updates 8 and 16, times their weights 1 and 3: unit 0 moves by 8 / 1, unit 1 by (8 + 48) / 4, unit 2 by 48 / 3.
    update = {**WHOLE, "a/bias": jnp.array([8.0, 8.0 + 48.0, 48.0])}
    np.testing.assert_array_equal(mean_of_holders(UNITS, update, total)["a/bias"], [8, 14, 16])
    nobody = jax.tree.map(jnp.zeros_like, total)
    np.testing.assert_array_equal(mean_of_holders(UNITS, update, nobody)["a/bias"], [0, 0, 0])


def numbers_for(model):
    generator = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return {name: generator.normal(0, 0.3, leaf.shape).astype(np.float32) for name, leaf in shapes.items()}


def test_a_sub_model_predicts_as_the_whole_one_with_the_other_units_silent():
    """Also behind the flattening of a convolution: units whose weights are 0 say nothing."""
    image, row = Task((8, 8), ("a", "b", "c")), Task((5,), ("no", "yes"))
    for model, kept in (
        (cnn(image, channels=(4, 6), dense=5), {"conv_0": [0, 3], "conv_1": [1, 2, 5], "dense_0": [4]}),
        (mlp(row, hidden=(4, 3)), {"dense_0": [1, 2], "dense_1": [0, 2]}),
    ):
        params = numbers_for(model)
        chosen = {layer: jnp.array(own) for layer, own in kept.items()}
        assert unit_counts(model.units, params).keys() == chosen.keys()
        small = cut_out(model.units, params, chosen)
        silent = put_in(model.units, params, small, chosen)
        x = np.random.default_rng(1).normal(size=(3, *(image if len(kept) == 3 else row).shape)).astype(np.float32)
        np.testing.assert_allclose(model.predict(small, x), model.predict(silent, x), atol=1e-6)


def test_every_array_of_a_network_is_declared():
    for model in (cnn(Task((8, 8), ("a", "b")), channels=(2,), dense=3), mlp(Task((5,)), hidden=(3, 2))):
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        assert {name: len(axes) for name, axes in model.units} == {name: leaf.ndim for name, leaf in shapes.items()}


def test_rescaled_parts_compute_on_average_what_the_whole_does():
    """Logits are linear in the units before them, so their mean over all choices of 3 of 5 units is the whole's."""
    model = mlp(Task((4,), tuple("abc")), hidden=(5,))
    params, x = numbers_for(model), np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    counts = unit_counts(model.units, params)

    def logits(given):
        hidden = np.maximum(x @ given["dense_0/kernel"] + given["dense_0/bias"], 0)
        return hidden @ given["dense_1/kernel"] + given["dense_1/bias"]

    def part(kept):
        chosen = {"dense_0": jnp.array(kept)}
        return scale_inputs(model.units, cut_out(model.units, params, chosen), counts, chosen)

    parts = [part(kept) for kept in combinations(range(5), 3)]
    np.testing.assert_allclose(np.mean([logits(one) for one in parts], axis=0), logits(params), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parts[0]["dense_1/kernel"], params["dense_1/kernel"][:3] * 5 / 3, rtol=1e-6)
    np.testing.assert_array_equal(parts[0]["dense_0/kernel"], params["dense_0/kernel"][:, :3])
    jax.tree.map(np.testing.assert_array_equal, part(range(5)), params)


def test_parts_rescaled_by_the_root_are_on_average_as_loud_as_the_whole():
    """Weights of both signs, one output a column: the square over outputs is 4 |h|^2, of 2 of 4 units half of it."""
    signs = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], np.float32)
    model = mlp(Task((1,), tuple("abcd")), hidden=(4,))
    params = {**numbers_for(model), "dense_1/kernel": signs}
    counts, shown = unit_counts(model.units, params), np.array([1, 2, 3, 4], np.float32)

    def mean_square(power):
        squares = []
        for kept in combinations(range(4), 2):
            chosen = {"dense_0": jnp.array(kept)}
            part = scale_inputs(model.units, cut_out(model.units, params, chosen), counts, chosen, power)
            squares.append(np.square(shown[list(kept)] @ part["dense_1/kernel"]).sum())
        return np.mean(squares)

    assert np.square(shown @ signs).sum() == 4 * 30
    np.testing.assert_allclose([mean_square(power) for power in (0.0, 0.5, 1.0)], [60, 120, 240], rtol=1e-6)
