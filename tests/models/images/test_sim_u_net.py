"""A simulator of images: bounds, limits, blur and counts against SciPy, statistics by hand; a U-Net beside it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from wardround.core.components.generation import arrays_of
from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.images.image_statistics import (
    STATISTICS,
    bumps,
    describe_images,
    euler_number,
    of_images,
    of_masks,
)
from wardround.models.images.sim_u_net import sim_u_net
from wardround.models.images.simulator import BOUNDS, Scene, blurred, numbers_of, row_of, simulate
from wardround.models.images.u_net import u_net

TASK = Task((8, 8, 1), (), "mask", segmentation=True)
PLAIN = dict(zip(BOUNDS, (0.3, 0.4, 4.0, 0.3, 1.8, 0.1, 0.3, 0.3, 0.3, 0.2, 0.8, 0.02), strict=True))
"""density, radius, elongation, ground, contrast, light, own brightness, blur and noise, in the order of `BOUNDS`."""


def drawn(rows=60, size=(32, 32), dark=False, seed=0, **numbers):
    row = row_of({**PLAIN, **numbers})
    scene = Scene(size, 8, dark)
    made = jax.jit(lambda row, key: simulate(jnp.broadcast_to(row, (rows, len(row))), scene, key))
    return tuple(np.asarray(one) for one in made(row, jax.random.key(seed)))


def values(found):
    return {name: np.asarray(value) for name, (value, _) in found.items()}


def square(*places, side=16, size=3):
    mask = np.zeros((1, side, side), np.float32)
    for down, right in places:
        mask[0, down : down + size, right : right + size] = 1
    return mask


def test_numbers_lie_between_their_bounds_and_come_back():
    for name, value in numbers_of(row_of(PLAIN)).items():
        np.testing.assert_allclose(value, PLAIN[name], rtol=1e-4)
    for far, side in ((-50.0, 0), (50.0, 1)):
        for name, value in numbers_of(jnp.full(len(BOUNDS), far)).items():
            np.testing.assert_allclose(value, BOUNDS[name][side] + (name == "elongation"), rtol=1e-4)


def test_images_are_what_their_numbers_say():
    still = {"light_spread": 0.0, "ground_spread": 0.0, "own_spread": 0.0, "noise": 0.0, "blur": 0.0, "contrast": 0.4}
    # Spreads cannot be 0: the least are 3 % between images, and noise of a quarter of a byte's step.
    images, masks = drawn(**still, ground=0.2)
    assert set(np.unique(masks)) == {0, 1}
    np.testing.assert_allclose(images[masks > 0].mean(), 0.6, rtol=0.02)
    np.testing.assert_allclose(images[masks == 0].mean(), 0.2, rtol=0.02)
    np.testing.assert_allclose(np.round(255 * images), 255 * images, atol=1e-3)  # bytes
    images, masks = drawn(**still, ground=0.7, dark=True)
    np.testing.assert_allclose(images[masks > 0].mean(), 0.3, rtol=0.04)
    # Each of 8 ellipses is there by chance 0.3, nearly the same for all images: none in 0.7^8 = 5.8 % of them.
    _, masks = drawn(rows=600, density=0.3, density_spread=0.0, radius=2.0, radius_spread=0.0)
    assert abs((masks.sum(axis=(1, 2)) == 0).mean() - 0.7**8) < 0.03


def test_blur_is_that_of_scipy():
    images = np.random.default_rng(0).random((3, 20, 24)).astype(np.float32)
    widths = np.array([0.3, 0.9, 2.0], np.float32)
    found = np.asarray(jax.jit(blurred)(images, widths))
    for one, width, image in zip(found, widths, images, strict=True):
        expected = ndimage.gaussian_filter(image, float(width), mode="nearest", radius=6)
        np.testing.assert_allclose(one, expected, atol=1e-5)


def test_statistics_of_masks_by_hand_and_by_scipy():
    one = values(jax.jit(of_masks)(square((4, 4))))
    # A square of 3 x 3 has 6 upright and 6 level edges of pixels, and 1 pixel after an erosion; its radius as a disc is
    # sqrt(9 / pi) = 1.693.
    np.testing.assert_allclose(one["root of covered"], 3 / 16)
    np.testing.assert_allclose(one["edges"], 2 * 12 / 256)
    np.testing.assert_allclose(one["components"], np.log(2) / np.log(32), rtol=1e-5)
    np.testing.assert_allclose(one["component radius"], np.log(1.6926) / np.log(32), rtol=1e-4)
    np.testing.assert_allclose(one["left after 1"], 1 / 256)
    assert one["left after 2"] == one["upright less level"] == one["falling less rising"] == 0
    assert jax.jit(euler_number)(square((2, 2), (9, 9))) == 2
    bar = np.zeros((1, 16, 16), np.float32)
    bar[0, 5:7, 2:10] = 1  # 2 x 8: 16 level edges, 4 upright ones
    np.testing.assert_allclose(values(jax.jit(of_masks)(bar))["upright less level"], 12 / 16)
    # Components (joined along sides) less holes (joined along sides and corners), counted by another library.
    _, masks = drawn(density=0.9, radius=3.0)
    for mask, euler in zip(masks, np.asarray(jax.jit(euler_number)(masks.astype(np.float32))), strict=True):
        open_sky = np.pad(1 - mask, 1, constant_values=1)
        holes = ndimage.label(open_sky, np.ones((3, 3)))[1] - 1
        assert euler == ndimage.label(mask)[1] - holes


def test_statistics_of_images_by_hand():
    mask = square((8, 8), side=24, size=8)
    image = np.where(mask > 0, 0.6, 0.1).astype(np.float32)
    one = values(jax.jit(of_images)(image, mask))

    def logarithm(brightness):
        return np.log(brightness / 0.01 + 1) / np.log(101)

    np.testing.assert_allclose(one["outside"], logarithm(0.1), rtol=1e-5)
    np.testing.assert_allclose(one["inside"], logarithm(0.6), rtol=1e-5)
    np.testing.assert_allclose(one["contrast"], (1 + logarithm(0.6) - logarithm(0.1)) / 2, rtol=1e-5)
    np.testing.assert_allclose(one["inner ring"], logarithm(0.6), rtol=1e-5)  # in focus: rings are as what they lie in
    np.testing.assert_allclose(one["outer ring"], logarithm(0.1), rtol=1e-5)
    np.testing.assert_allclose(one["inside spread"], 0, atol=1e-4)
    np.testing.assert_allclose(one["noise"], np.log(1e-3) / 7 + 1, rtol=1e-5)
    # Differences of independent normal noise are on average 2 / sqrt(pi) of its standard deviation.
    noisy = (image + np.random.default_rng(0).normal(0, 0.03, (200, 24, 24))).astype(np.float32)
    found = values(jax.jit(of_images)(noisy, np.repeat(mask, 200, axis=0)))["noise"].mean()
    np.testing.assert_allclose(found, np.log(0.03 * 2 / np.sqrt(np.pi) + 1e-3) / 7 + 1, rtol=0.01)


def test_what_varies_is_told_as_a_soft_histogram_and_what_is_not_there_as_nothing():
    # Places 0, 1/2 and 1: a value of 1/2 is at one and a spacing from both others.
    found = bumps(jnp.array([0.5, 0.9]), jnp.array([1.0, 0.0]), 3)
    np.testing.assert_allclose(found, [[np.exp(-0.5), 1, np.exp(-0.5)], [0, 0, 0]], rtol=1e-5)
    flat, nothing = np.full((1, 16, 16), 0.5, np.float32), np.zeros((1, 16, 16), np.uint8)
    told = dict(zip(STATISTICS, np.asarray(jax.jit(describe_images)(flat, nothing))[0], strict=True))
    words = ("any", "left", "component", "inside", "inner", "outer", "second", "contrast", "root")
    assert not any(value for name, value in told.items() if name.startswith(words))
    assert told["outside, 8"] > 0.5
    # All of it lies between 0 and 1, whatever the image.
    images, masks = drawn(rows=40, contrast=1.0, light_spread=1.5, own_spread=1.0, density=1.0)
    every = np.asarray(jax.jit(describe_images)(images, masks))
    assert every.shape == (40, len(STATISTICS))
    assert (every >= 0).all()
    assert (every <= 1).all()


def test_variety_widens_what_is_learned_from():
    style, table = jnp.zeros(200, jnp.int32), {"simulator/styles": jnp.zeros((1, len(BOUNDS)))}

    @jax.jit
    def spreads(key):
        models = (sim_u_net(TASK, filters=2, depth=1, structures=2, variety=one) for one in (0.0, 1.0))
        images = [one.generation.generate(table, style, key)[0] for one in models]
        return [jnp.std(jnp.log(jnp.mean(one, axis=(1, 2, 3)))) for one in images]

    plain, wide = spreads(jax.random.key(1))
    assert wide > 1.5 * plain


def test_a_u_net_beside_a_simulator_that_does_not_touch_it():
    model = sim_u_net(TASK, filters=2, depth=1, styles=3, structures=2)
    made, params = model.generation, jax.jit(model.init)(jax.random.key(0))
    assert params["simulator/styles"].shape == (3, len(BOUNDS))
    table = np.array(params["simulator/styles"])
    table[1] = 3.0
    images, masks = jax.jit(made.generate)({**params, "simulator/styles": table}, jnp.array([0, 1]), jax.random.key(1))
    assert images.shape == (2, 8, 8, 1)
    assert float(images[1].mean()) > float(images[0].mean())  # everything near its upper bound: brighter
    assert jax.jit(made.describe)(images, masks).shape == (2, len(STATISTICS))
    plain = u_net(TASK, filters=2, depth=1)
    own = {name.removeprefix("segmenter/"): array for name, array in arrays_of(params, "segmenter/").items()}
    np.testing.assert_allclose(jax.jit(model.predict)(params, images), jax.jit(plain.predict)(own, images), atol=1e-6)
    batch = Batch(images, masks, jnp.ones(2))
    slope = jax.jit(model.gradient)(params, batch, jax.random.key(0))
    assert slope.keys() == params.keys()
    assert not slope["simulator/styles"].any()
    for name, array in jax.jit(plain.gradient)(own, batch, jax.random.key(0)).items():
        np.testing.assert_allclose(slope["segmenter/" + name], array, atol=1e-5)
    with pytest.raises(Refusal, match="learns masks"):
        sim_u_net(Task((8, 8, 1), ("no", "yes")))
