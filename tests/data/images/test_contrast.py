"""Images made alike: by hand, dark and light grounds, and an empty image whose noise stays faint."""

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.data.images.contrast import LEAST, standardize
from wardround.data.images.form import ImageForm, form_of


def drawn(ground: int, structure: int) -> np.ndarray:
    """20 x 20, a tenth of it structure."""
    pixels = np.full((20, 20, 1), ground, np.uint8)
    pixels[:2] = structure
    return pixels


def test_dark_on_light_and_light_on_dark_become_the_same_image():
    expected = drawn(0, 255)
    for ground, structure in ((10, 60), (200, 120), (250, 20)):
        np.testing.assert_array_equal(standardize(drawn(ground, structure)), expected)


def test_the_spread_by_hand():
    # Percentiles 1 and 99 of the values 0 to 100, one each: 1 and 99. A value v becomes 255 (v - 1) / 98.
    values = np.arange(101, dtype=np.uint8).reshape(1, 101, 1)
    found = standardize(values)[0, :, 0]
    assert found[[0, 1, 50, 99, 100]].tolist() == [0, 0, round(255 * 49 / 98), 255, 255]


def test_noise_of_an_empty_image_stays_faint():
    noise = np.random.default_rng(0).integers(5, 8, (20, 20, 1)).astype(np.uint8)
    found = standardize(noise)
    assert found.max() == round(255 * 2 / LEAST)


def test_channels_are_spread_each_by_itself():
    # Stained tissue: red hardly varies, blue does. Turned over together, spread apart.
    pixels = np.concatenate([drawn(240, 200), drawn(220, 100)], axis=2)
    np.testing.assert_array_equal(standardize(pixels), np.repeat(drawn(0, 255), 2, axis=2))


def test_it_is_a_form_of_images_and_not_beside_equalize():
    form = form_of((20, 20), 1, False, True, "here")
    assert form == ImageForm((20, 20), 1, False, True)
    np.testing.assert_array_equal(form.apply(drawn(200, 120)), drawn(0, 255))
    with pytest.raises(Refusal, match="both spread out contrast"):
        form_of(8, 1, True, True, "here")
