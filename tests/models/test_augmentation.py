import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from wardround.core.contracts import Batch, Task
from wardround.core.errors import Refusal
from wardround.models.augmentation import Augmentation, Turn, augment, looked_at, with_augmentation
from wardround.models.mlp import mlp

TASK = Task((8, 8, 1), ("no", "yes"))
RNG = np.random.default_rng(3)
IMAGES = RNG.random((64, 8, 8, 1), np.float32)
KEY = jax.random.key(5)


def test_nothing_said_is_the_plain_model():
    plain = mlp(TASK, hidden=(2,))
    assert with_augmentation(lambda task: plain, TASK, Augmentation()) is plain


def test_a_flip_is_a_mirror_for_about_half_of_the_looks():
    made = augment(jnp.asarray(IMAGES), KEY, Augmentation(flip=True), (8, 8, 1), None)
    mirrored = np.array([np.array_equal(one, image[:, ::-1]) for one, image in zip(made, IMAGES, strict=True)])
    same = np.array([np.array_equal(one, image) for one, image in zip(made, IMAGES, strict=True)])
    assert (mirrored ^ same).all()
    # 64 fair draws are within 4 standard deviations of 32, that is 16, but for 1 in 16,000 seeds.
    assert 16 < mirrored.sum() < 48


def test_a_quarter_turn_by_hand():
    # Turned to the left by 90 degrees, the right column becomes the top row: NumPy's rot90.
    turn = Turn.of((8, 8, 1), (8, 8, 1), 90.0)
    np.testing.assert_allclose(turn.apply(jnp.asarray(IMAGES)), np.rot90(IMAGES, axes=(1, 2)), atol=1e-5)


def test_ten_degrees_as_pillow_turns():
    # A smooth image, since Pillow rounds to bytes; the middle, since Pillow treats the rim otherwise.
    down, right = np.mgrid[0:40, 0:40]
    image = (127 + 60 * np.sin(down / 5) + 60 * np.cos(right / 7)).astype(np.uint8)
    theirs = np.asarray(Image.fromarray(image).rotate(10, Image.Resampling.BILINEAR))[6:34, 6:34]
    ours = Turn.of((40, 40, 1), (28, 28, 1), 10.0).apply(jnp.asarray(image[None, ..., None], jnp.float32))
    assert np.abs(np.asarray(ours)[0, ..., 0] - theirs).max() <= 1.5


def test_turns_go_both_ways_and_a_right_turn_is_a_mirrored_left_one():
    change = Augmentation(rotation=90.0)
    turn = Turn.of((8, 8, 1), (8, 8, 1), 90.0)
    made = np.asarray(augment(jnp.asarray(IMAGES), KEY, change, (8, 8, 1), turn))
    counts = [
        sum(np.allclose(one, np.rot90(image, k), atol=1e-5) for one, image in zip(made, IMAGES, strict=True))
        for k in (0, 1, -1)
    ]
    # Half as they are, a quarter each way: 32, 16, 16 of 64, within four standard deviations.
    assert sum(counts) == 64
    assert 16 < counts[0] < 48
    assert min(counts[1:]) > 2


def test_brightness_stays_within_its_bound():
    made = np.asarray(augment(jnp.full((64, 8, 8, 1), 0.5), KEY, Augmentation(brightness=0.2), (8, 8, 1), None))
    assert (np.ptp(made, axis=(1, 2, 3)) < 1e-6).all()
    assert 0.3 <= made.min() < 0.35
    assert 0.65 < made.max() <= 0.7


def test_a_prediction_sees_the_middle_and_a_step_repeats():
    model = with_augmentation(lambda task: mlp(task, hidden=(2,)), TASK, Augmentation(flip=True, rotation=10, crop=4))
    params = jax.jit(model.init)(KEY)
    assert params["dense_0/kernel"].shape == (16, 2)
    inner = mlp(Task((4, 4, 1), TASK.classes), hidden=(2,))
    np.testing.assert_array_equal(model.predict(params, IMAGES), inner.predict(params, IMAGES[:, 2:6, 2:6]))
    batch = Batch(IMAGES, np.arange(64) % 2, np.ones(64, np.float32))
    slope = jax.jit(model.gradient)
    one, again, other = (slope(params, batch, jax.random.key(k))["dense_0/kernel"] for k in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(("shape", "crop"), [((8,), 0), ((8, 8, 1), 9)])
def test_what_cannot_be_augmented_is_refused(shape, crop):
    with pytest.raises(Refusal):
        with_augmentation(mlp, Task(shape, ("no", "yes")), Augmentation(flip=True, crop=crop))


def test_downsampling_passes_over_images_without_the_outcome():
    y = np.int32([0] * 2000 + [1] * 100)
    kept = np.asarray(looked_at(jnp.asarray(y), KEY, 0.05))
    assert kept[2000:].all()
    # 2000 draws of 0.05: 100 on average, within four standard deviations of 9.7.
    assert 61 < kept[:2000].sum() < 139
    plain = mlp(TASK, hidden=(2,))
    model = with_augmentation(lambda task: plain, TASK, Augmentation(downsample=0.5))
    params = jax.jit(plain.init)(KEY)
    batch = Batch(IMAGES, np.int32(np.arange(64) % 2), np.ones(64, np.float32))
    slope = jax.jit(model.gradient)
    one, again, other = (slope(params, batch, jax.random.key(k))["dense_0/kernel"] for k in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    # As if the rows that were passed over were not there.
    own = jax.random.fold_in(jax.random.split(jax.random.key(1))[0], 1)
    there = looked_at(jnp.asarray(batch.y), own, 0.5)
    assert 32 < float(there.sum()) < 64
    few = jax.jit(plain.gradient)(params, batch._replace(mask=there), KEY)
    np.testing.assert_allclose(one, few["dense_0/kernel"], atol=1e-6)
