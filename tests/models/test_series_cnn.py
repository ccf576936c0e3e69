"""The network for series: its size by hand, the same convolution in NumPy, and shapes it tells apart."""

import jax
import numpy as np
import optax
import pytest

from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.series_cnn import SeriesConv, series_cnn

KEY = jax.random.key(0)


def test_number_of_parameters():
    # 8 x 4 + 4, 5 x 4 x 4 + 4, 3 x 4 x 4 + 4; twice 4 for each of three normalizations; 4 x 2 + 2.
    params = jax.eval_shape(series_cnn(Task((30,), ("a", "b"))).init, KEY)
    assert sum(array.size for array in params.values()) == 36 + 84 + 52 + 24 + 10


def test_a_convolution_is_what_numpy_gives():
    x = np.random.default_rng(0).normal(size=(2, 9, 1)).astype(np.float32)
    conv = SeriesConv(features=1, width=3)
    kernel = np.array([[1.0], [2.0], [-1.0]], np.float32)
    found = conv.apply({"params": {"kernel": kernel, "bias": np.zeros(1, np.float32)}}, x)
    expected = [np.correlate(np.pad(row[:, 0], 1), kernel[:, 0], mode="valid") for row in x]
    np.testing.assert_allclose(found[..., 0], expected, rtol=1e-5)


@pytest.mark.slow
def test_tells_shapes_apart_whatever_their_scale():
    generator = np.random.default_rng(1)
    time = np.arange(24)
    slow, quick = np.sin(time / 4), np.sin(time * 1.5)
    y = generator.integers(0, 2, 64)
    scale = generator.uniform(1, 100, (64, 1))
    x = scale * (np.where(y[:, None], quick, slow) + 0.1 * generator.normal(size=(64, 24))) + 7
    model = series_cnn(Task((24,), ("slow", "quick")))
    batch = Batch(x.astype(np.float32), y, np.ones(64, np.float32))
    optimizer = optax.adam(0.02)

    def step(_, carry):
        updates, memory = optimizer.update(model.gradient(carry[0], batch, KEY), carry[1])
        return optax.apply_updates(carry[0], updates), memory

    start = model.init(KEY)
    params = jax.jit(lambda p: jax.lax.fori_loop(0, 120, step, (p, optimizer.init(p)))[0])(start)
    assert (np.asarray(model.predict(params, batch.x)).argmax(axis=1) == y).mean() > 0.95


def test_what_is_no_series_is_refused():
    with pytest.raises(Refusal, match="a row has shape"):
        series_cnn(Task((4, 4), ("a", "b")))
