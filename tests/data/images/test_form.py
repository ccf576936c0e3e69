import numpy as np
import pytest
from PIL import Image

from wardround.data.images.codec import Unreadable, read_image
from wardround.data.images.form import ImageForm, equalize


def test_equalization_by_hand():
    # Values 50, 50, 100, 200: c(50) = 2 = c0, c(100) = 3, c(200) = 4, of 4 pixels.
    # 50 -> 0, 100 -> 255 (3 - 2) / (4 - 2) = 127.5 -> 128 (to even), 200 -> 255.
    found = equalize(np.array([[50, 50], [100, 200]], np.uint8)[..., None])
    assert found[..., 0].tolist() == [[0, 0], [128, 255]]


def test_an_image_of_one_value_stays_as_it_is():
    same = np.full((3, 3, 1), 7, np.uint8)
    np.testing.assert_array_equal(equalize(same), same)


def test_the_form_is_grey_then_size_then_contrast():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:, 2:] = 100
    made = ImageForm((2, 2), 1, True).apply(pixels)
    assert made[..., 0].tolist() == [[0, 255], [0, 255]]


def test_a_huge_image_is_not_unpacked(tmp_path):
    Image.new("1", (20000, 6000)).save(tmp_path / "huge.png")
    with pytest.raises(Unreadable, match="20000 x 6000 pixels are more than"):
        read_image(tmp_path / "huge.png")
