"""The LSTM against PyTorch's, its size by arithmetic, its narrower forms, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.sub_models import cut_out, put_in, unit_counts
from wardround.models.lstm import lstm, recur

KEY = jax.random.key(0)
TASK = Task((6,), tuple("abcde"), "next")


def numbers_for(model):
    generator = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, KEY)
    return {name: generator.normal(0, 0.5, leaf.shape).astype(np.float32) for name, leaf in shapes.items()}


def test_predicts_what_pytorchs_lstm_predicts():
    torch = pytest.importorskip("torch")
    params = numbers_for(lstm(TASK, hidden=(4, 3), embedding=2))
    x = np.random.default_rng(1).integers(0, 5, (7, 6))
    layers = torch.nn.LSTM(2, 4, batch_first=True), torch.nn.LSTM(4, 3, batch_first=True)
    found = torch.tensor(params["embed/embedding"])[torch.tensor(x)]
    with torch.no_grad():
        for index, layer in enumerate(layers):  # PyTorch's gates have the same order, its matrices are transposed
            layer.weight_ih_l0[:] = torch.tensor(params[f"lstm_{index}/input"].T)
            layer.weight_hh_l0[:] = torch.tensor(params[f"lstm_{index}/hidden"].T)
            layer.bias_ih_l0[:] = torch.tensor(params[f"lstm_{index}/bias"])
            layer.bias_hh_l0[:] = 0
            found, _ = layer(found)
        scores = found[:, -1] @ torch.tensor(params["dense_0/kernel"]) + torch.tensor(params["dense_0/bias"])
        expected = torch.softmax(scores, dim=1).numpy()
    ours = lstm(TASK, hidden=(4, 3), embedding=2).predict(params, x.astype(np.float32))
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)


def test_learns_as_the_same_loop_learns_by_automatic_differentiation():
    """The way back is written by hand (one product for all steps): against JAX's own way through the plain loop."""
    random = np.random.default_rng(2)
    shapes = ((6, 5, 12), (3, 12), (6, 5, 3))
    given, again, weight = (random.normal(0, 0.5, shape).astype(np.float32) for shape in shapes)

    def plain(given, again):
        cell = hidden = jnp.zeros((5, 3))
        shown = []
        for own in given:
            inward, kept, new, outward = jnp.split(own + hidden @ again, 4, axis=1)
            cell = jax.nn.sigmoid(kept) * cell + jax.nn.sigmoid(inward) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(outward) * jnp.tanh(cell)
            shown.append(hidden)
        return jnp.stack(shown)

    for ours, wanted in zip(
        *(jax.jit(jax.grad(lambda *a, f=f: jnp.sum(f(*a) * weight), (0, 1)))(given, again) for f in (recur, plain)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-6)


def test_has_as_many_parameters_as_leafs_network():
    # 80 characters of 8 numbers; a layer of n units behind m inputs has 4 n (m + n + 1); 256 scores 80 characters.
    shapes = jax.eval_shape(lstm(Task((80,), tuple(map(str, range(80))))).init, KEY)
    count = sum(leaf.size for leaf in shapes.values())
    assert count == 80 * 8 + 4 * 256 * (8 + 256 + 1) + 4 * 256 * (256 + 256 + 1) + 256 * 80 + 80 == 817_872


def test_the_forget_gate_begins_open():
    np.testing.assert_array_equal(lstm(TASK, hidden=(2,)).init(KEY)["lstm_0/bias"], [0, 0, 1, 1, 0, 0, 0, 0])


@pytest.mark.slow
def test_a_part_of_the_units_predicts_as_the_whole_with_the_others_silent():
    """A unit without weights into its cell keeps 0 in it, and says nothing."""
    model = lstm(TASK, hidden=(4, 3), embedding=2)
    params = numbers_for(model)
    kept = {"lstm_0": jnp.array([0, 2]), "lstm_1": jnp.array([2])}
    assert unit_counts(model.units, params) == {"lstm_0": 4, "lstm_1": 3}
    assert {name: len(axes) for name, axes in model.units} == {name: leaf.ndim for name, leaf in params.items()}
    small = cut_out(model.units, params, kept)
    assert small["lstm_1/input"].shape == (2, 4)
    assert small["lstm_1/hidden"].shape == (1, 4)
    np.testing.assert_array_equal(small["lstm_1/bias"], params["lstm_1/bias"][[2, 5, 8, 11]])
    x = np.random.default_rng(1).integers(0, 5, (3, 6))
    silent = put_in(model.units, params, small, kept)
    np.testing.assert_allclose(model.predict(small, x), model.predict(silent, x), atol=1e-6)


@pytest.mark.parametrize(
    ("task", "options", "told"),
    [(TASK, {"hidden": ()}, "at least one unit"), (Task((8, 8), ("a", "b")), {}, "rows of tokens.*'cnn'")],
    ids=["no layer", "image"],
)
def test_what_is_no_sequence_is_refused(task, options, told):
    with pytest.raises(Refusal, match=told):
        lstm(task, **options)
