"""U-Net: its size by hand, its slope by differences, padding that does not count, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.cnn import cnn
from wardround.models.images.u_net import doubled, u_net
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.models.mlp import mlp

TASK = Task((8, 8, 1), (), "mask", segmentation=True)


def batch_of(rows=3, side=8, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.uniform(size=(rows, side, side, 1)).astype(np.float32)
    return Batch(x, (generator.uniform(size=(rows, side, side)) > 0.6).astype(np.uint8), np.ones(rows, np.float32))


def test_parameters_by_hand():
    # filters 2, depth 1, one channel, no normalization. down_0: 9 * 1 * 2 + 2 = 20 and 9 * 2 * 2 + 2 = 38;
    # middle: 9 * 2 * 4 + 4 = 76 and 9 * 4 * 4 + 4 = 148; up_0 sees 2 + 4: 9 * 6 * 2 + 2 = 110 and 38; mark: 2 + 1 = 3.
    params = jax.eval_shape(u_net(TASK, filters=2, depth=1, normalization="none").init, jax.random.key(0))
    assert sum(array.size for array in params.values()) == 20 + 38 + 76 + 148 + 110 + 38 + 3 == 433
    # Group norm adds 2 a filter: 2 * (2 + 2 + 4 + 4 + 2 + 2) = 32; batch norm 4.
    for kind, more in (("group", 32), ("batch", 64)):
        params = jax.eval_shape(u_net(TASK, filters=2, depth=1, normalization=kind).init, jax.random.key(0))
        assert sum(array.size for array in params.values()) == 433 + more
    # The default on 64 x 64 colour: f = 16, d = 3, by the formula in the module.
    whole = u_net(Task((64, 64, 3), (), "mask", segmentation=True), normalization="none")
    whole = jax.eval_shape(whole.init, jax.random.key(0))
    f = [16, 32, 64, 128]
    down = 9 * (3 * 16 + 16 * 16) + 32 + sum(9 * (f[k - 1] * f[k] + f[k] ** 2) + 2 * f[k] for k in (1, 2, 3))
    up = sum(9 * (3 * f[k] * f[k] + f[k] ** 2) + 2 * f[k] for k in (0, 1, 2))
    assert sum(array.size for array in whole.values()) == down + up + 17


def test_shapes_and_probabilities():
    model = u_net(TASK, filters=2, depth=2)
    params = jax.jit(model.init)(jax.random.key(1))
    p = jax.jit(model.predict)(params, batch_of().x)
    assert p.shape == (3, 8, 8)
    assert float(p.min()) > 0
    assert float(p.max()) < 1
    # What the last layer sees is what the outputs are made from.
    seen = jax.jit(model.features)(params, batch_of().x)
    assert seen.shape == (3, 8, 8, 2)
    again = jax.nn.sigmoid((seen @ params["mark/kernel"])[..., 0] + params["mark/bias"])
    np.testing.assert_allclose(again, p, rtol=1e-5)
    assert doubled(jnp.arange(4.0).reshape(1, 2, 2, 1))[0, :, :, 0].tolist() == [
        [0, 0, 1, 1],
        [0, 0, 1, 1],
        [2, 2, 3, 3],
        [2, 2, 3, 3],
    ]


@pytest.mark.parametrize("loss", ["both", "dice", "cross_entropy"])
def test_the_slope_is_that_of_finite_differences(loss):
    model = u_net(TASK, filters=2, depth=1, normalization="group", loss=loss)
    with jax.enable_x64():
        params = {
            name: jnp.asarray(array, jnp.float64) for name, array in jax.jit(model.init)(jax.random.key(2)).items()
        }
        batch = batch_of()
        batch = batch._replace(x=jnp.asarray(batch.x, jnp.float64), mask=jnp.asarray(batch.mask, jnp.float64))
        slope = jax.jit(model.gradient)(params, batch, jax.random.key(0))
        generator = np.random.default_rng(5)
        way = {name: generator.normal(size=array.shape) for name, array in params.items()}
        step = 1e-5
        ahead, behind = (
            float(model.loss({n: params[n] + s * way[n] for n in params}, batch, jax.random.key(0)))
            for s in (step, -step)
        )
        along = sum(float(jnp.sum(slope[name] * way[name])) for name in params)
        np.testing.assert_allclose(along, (ahead - behind) / (2 * step), rtol=2e-4)


def test_padded_rows_change_nothing():
    model = u_net(TASK, filters=2, depth=1)
    params = jax.jit(model.init)(jax.random.key(1))
    batch = batch_of(rows=2)
    padded = Batch(
        np.concatenate([batch.x, np.full((2, 8, 8, 1), np.nan, np.float32)]),
        np.concatenate([batch.y, np.full((2, 8, 8), 255, np.uint8)]),
        np.array([1, 1, 0, 0], np.float32),
    )
    gradient = jax.jit(model.gradient)
    one, other = (gradient(params, each, jax.random.key(0)) for each in (batch, padded))
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=1e-6)
    empty = padded._replace(mask=np.zeros(4, np.float32))
    assert float(jax.jit(model.loss)(params, empty, jax.random.key(0))) == 0


def test_an_image_and_its_mask_move_together():
    # The mask is where the image is bright: so it must be after any flip and turn.
    model = u_net(TASK, filters=2, depth=1, flip=True, turn=True)
    plain = u_net(TASK, filters=2, depth=1)
    from wardround.models.images.mask_augmentation import MaskAugmentation, moved

    x = np.zeros((64, 8, 8, 1), np.float32)
    x[:, 1:3, 4:8] = 0.9
    batch = Batch(x, (x[..., 0] > 0.5).astype(np.uint8), np.ones(64, np.float32))
    seen = moved(batch, jax.random.key(3), MaskAugmentation(True, True))
    np.testing.assert_array_equal(np.asarray(seen.x)[..., 0] > 0.5, np.asarray(seen.y) > 0)
    assert len({np.asarray(one).tobytes() for one in seen.y}) == 8  # all symmetries of a square occur
    params = jax.jit(plain.init)(jax.random.key(0))
    np.testing.assert_array_equal(*(jax.jit(one.predict)(params, x) for one in (model, plain)))


def test_what_it_refuses():
    with pytest.raises(Refusal, match="learns masks of images, but the task is a classification"):
        u_net(Task((8, 8, 1), ("no", "yes")))
    with pytest.raises(Refusal, match="Images of 12 x 8 cannot be halved 3 times") as found:
        u_net(Task((12, 8, 1), (), "mask", segmentation=True))
    assert "multiples of 8" in str(found.value)
    with pytest.raises(Refusal, match="cannot be turned by 90 degrees"):
        u_net(Task((8, 16, 1), (), "mask", segmentation=True), turn=True)
    for model in (cnn, mlp, logistic, linear):
        with pytest.raises(Refusal, match="take the model 'u_net'"):
            model(TASK)
