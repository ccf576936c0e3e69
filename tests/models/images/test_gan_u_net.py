"""A U-Net with a generator: masks by geometry, three networks that do not touch each other, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core.components.generation import arrays_of
from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.images.ellipses import Ellipses, masks
from wardround.models.images.gan_u_net import gan_u_net
from wardround.models.images.u_net import u_net

TASK = Task((8, 8, 1), (), "mask", segmentation=True)
SMALL = {"filters": 2, "depth": 1, "generator_filters": 2, "discriminator_filters": 2, "styles": 3}


def test_an_ellipse_has_the_area_of_its_radius_whatever_its_shape():
    # Half axes r s and r / s: the area is pi r^2 = 50.27 for r = 4. Only those that touch no border are whole.
    for elongation in (1.0, 3.0):
        of = Ellipses(most=1, presence=1.0, radius=4.0, spread=0.0, elongation=elongation)
        drawn = np.asarray(jax.jit(lambda key, of=of: masks(of, 200, (40, 40), key))(jax.random.key(0)))
        edges = drawn[:, 0].sum(1) + drawn[:, -1].sum(1) + drawn[:, :, 0].sum(1) + drawn[:, :, -1].sum(1)
        whole = drawn[edges == 0].sum(axis=(1, 2))
        assert len(whole) > 80
        np.testing.assert_allclose(whole.mean(), 50.27, rtol=0.02)
    assert not np.asarray(masks(Ellipses(presence=0.0), 3, (8, 8), jax.random.key(0))).any()
    # Two ellipses, each there by chance 1/2: none in a quarter of the images.
    drawn = np.asarray(masks(Ellipses(2, 0.5, 2.0, 0.0, 1.0), 400, (16, 16), jax.random.key(1)))
    assert abs((drawn.sum(axis=(1, 2)) == 0).mean() - 0.25) < 0.08


def test_three_networks_that_do_not_touch_each_other():
    model = gan_u_net(TASK, **SMALL)
    made, params = model.generation, jax.jit(model.init)(jax.random.key(0))
    parts = [arrays_of(params, prefix) for prefix in (made.generator, made.discriminator, made.segmenter)]
    assert sum(map(len, parts)) == len(params)
    generator, discriminator, segmenter = parts
    style, key = jnp.array([0, 0, 1, 2]), jax.random.key(1)
    generate = jax.jit(made.generate)
    images, drawn = generate(generator, style, key)
    assert images.shape == (4, 8, 8, 1)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    assert set(np.unique(drawn)) == {0, 1}
    # The same masks and noise in another style are another image; the same key gives the same images.
    other, same = generate(generator, jnp.array([1, 0, 1, 2]), key)
    assert np.array_equal(same, drawn)
    assert float(jnp.abs(other[0] - images[0]).max()) > 1e-3
    np.testing.assert_allclose(other[1:], images[1:], atol=1e-6)
    # The loss of the discriminator's arrays alone is how unreal rows look: the mean of log(1 + exp(-odds)).
    batch = Batch(images, drawn, jnp.ones(4))
    odds = jax.jit(made.realness)({**generator, **discriminator}, style, key)
    expected = np.log1p(np.exp(-np.asarray(odds, np.float64))).mean()
    loss = jax.jit(model.loss)
    np.testing.assert_allclose(loss(discriminator, batch, key), expected, rtol=1e-5)
    # Rows past the end do not count, whatever stands in them.
    broken = Batch(images.at[2:].set(jnp.nan), drawn, jnp.array([1.0, 1, 0, 0]))
    expected = np.log1p(np.exp(-np.asarray(odds[:2], np.float64))).mean()
    np.testing.assert_allclose(loss(discriminator, broken, key), expected, rtol=1e-5)
    # With the segmenter's arrays it is a U-Net on real rows, and nothing else moves.
    plain = u_net(TASK, filters=2, depth=1)
    own = {name.removeprefix(made.segmenter): array for name, array in segmenter.items()}
    predicted = jax.jit(model.predict)(params, images), jax.jit(plain.predict)(own, images)
    np.testing.assert_allclose(*predicted, atol=1e-6)
    slope = jax.jit(model.gradient)(params, batch, key)
    for name, array in jax.jit(plain.gradient)(own, batch, key).items():
        np.testing.assert_allclose(slope[made.segmenter + name], array, atol=1e-5)
    assert not any(np.asarray(slope[name]).any() for name in {**generator, **discriminator})


def test_what_is_refused():
    with pytest.raises(Refusal, match="halves images twice, and 10 x 8 leaves a rest"):
        gan_u_net(Task((10, 8, 1), (), "mask", segmentation=True), **SMALL)
    with pytest.raises(Refusal, match="learns masks"):
        gan_u_net(Task((8, 8, 1), ("no", "yes")), **SMALL)
