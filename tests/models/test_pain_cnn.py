import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.pain_cnn import StridedConv, pain_cnn, row_loss

KEY = jax.random.key(0)
TASK = Task((215, 215, 1), ("no pain", "pain"))
SMALL = Task((24, 24, 1), ("no pain", "pain"))
TINY = {"filters": (2, 3, 4), "dense": 5}
RNG = np.random.default_rng(1)
Y = np.array([0, 1, 0, 1, 1, 0])


def sizes(model):
    return {name: int(np.prod(one.shape)) for name, one in jax.eval_shape(model.init, KEY).items()}


@pytest.mark.parametrize(("architecture", "expected"), [("initial", 2_617_089), ("revised", 3_027_585)])
def test_the_tables_count_of_parameters(architecture, expected):
    # Tables 4.1 and 4.2 of the thesis, running statistics included.
    assert sum(sizes(pain_cnn(TASK, architecture=architecture)).values()) == expected


def test_the_tables_layer_by_layer():
    found = sizes(pain_cnn(TASK))
    by_layer = {layer: sum(n for name, n in found.items() if name.startswith(f"{layer}/")) for layer in (
        "conv_0", "norm_0", "conv_1", "norm_1", "conv_2", "norm_2", "dense_0", "norm_3", "dense_1")}  # fmt: skip
    assert list(by_layer.values()) == [832, 128, 51_264, 256, 204_928, 512, 2_769_024, 512, 129]


@pytest.mark.parametrize("same", [True, False])
def test_the_convolution_is_that_of_flax(same):
    ours, theirs = StridedConv(3, same), nn.Conv(3, (5, 5), 2, padding="SAME" if same else "VALID")
    for side in (14, 15):  # an even and an odd side
        x = jnp.asarray(RNG.random((2, side, side, 2)), jnp.float32)
        params = jax.jit(ours.init)(KEY, x)
        one, other = (jax.jit(layer.apply)(params, x) for layer in (ours, theirs))
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_crop_and_shape():
    model = pain_cnn(Task((30, 30, 1), TASK.classes), **TINY, crop=24, flip=True, rotation=10.0)
    assert sizes(model) == sizes(pain_cnn(SMALL, **TINY))
    shape = jax.eval_shape(lambda key: model.predict(model.init(key), np.zeros((2, 30, 30, 1), np.uint8)), KEY)
    assert shape.shape == (2, 2)


@pytest.mark.parametrize(
    ("loss", "expected"),
    # With z = 0.4 for every row, p = sigmoid(0.4), and as many rows with pain as without.
    [
        ("cross_entropy", lambda p: (-np.log(1 - p) - np.log(p)) / 2),
        ("weighted", lambda p: (-np.log(1 - p) - 3 * np.log(p)) / 2),
        ("hinge", lambda p: ((1 + 0.4) + (1 - 0.4)) / 2),
    ],
)
def test_losses_by_hand(loss, expected):
    outputs = np.tile(np.float32([0.0, 0.4]), (6, 1))
    found = np.mean(row_loss(loss, 3.0)(outputs, Y))
    np.testing.assert_allclose(found, expected(1 / (1 + np.exp(-0.4))), rtol=1e-5)


@pytest.mark.parametrize(
    "task", [Task((24, 24, 1), ("a", "b", "c")), Task((24, 24, 1)), Task((5,), ("a", "b")), Task((6, 6, 1), ("a", "b"))]
)
def test_what_it_cannot_tell_apart_is_refused(task):
    with pytest.raises(Refusal):
        pain_cnn(task)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["initial", "revised"])
def test_one_step_at_full_size_learns(architecture):
    """250 x 250 pixels, turned, flipped and cut to 215: one step of the whole network lowers the loss of its batch."""
    model = pain_cnn(
        Task((250, 250, 1), TASK.classes),
        architecture=architecture,
        crop=215,
        flip=True,
        rotation=10.0,
        statistics_rate=10.0,
    )
    params = jax.jit(model.init)(KEY)
    x = np.round(RNG.random((4, 250, 250, 1)) * 255).astype(np.uint8)
    x[:2, 90:160, 90:160] = 255
    batch = Batch(jnp.asarray(x), jnp.asarray([1, 1, 0, 0]), jnp.ones(4))
    slope = jax.jit(model.gradient)(params, batch, KEY)
    assert sum(np.size(one) for one in slope.values()) == {"initial": 2_617_089, "revised": 3_027_585}[architecture]
    assert all(np.isfinite(one).all() for one in slope.values())
    after = {name: params[name] - 0.01 * slope[name] for name in params}
    loss = jax.jit(model.loss)
    assert loss(after, batch, KEY) < loss(params, batch, KEY)
    assert jax.jit(model.predict)(after, x).shape == (4, 2)
