import struct
import zlib

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
    # Beyond Pillow's own limit, which says it at length.
    content = (tmp_path / "huge.png").read_bytes()
    head = b"IHDR" + struct.pack(">II", 60_000, 60_000) + content[24:29]
    (tmp_path / "huger.png").write_bytes(content[:12] + head + struct.pack(">I", zlib.crc32(head)) + content[33:])
    with pytest.raises(Unreadable, match="it has more than 100,000,000 pixels"):
        read_image(tmp_path / "huger.png")


def test_a_photograph_with_a_turned_camera_is_seen_upright(tmp_path):
    pixels = np.zeros((8, 16), np.uint8)
    pixels[:, 8:] = 240  # bright on the right
    turned = Image.Exif()
    turned[0x0112] = 6  # to be shown turned to the right: what is on the right comes below
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=turned, quality=100)
    found = read_image(tmp_path / "a.jpg").pixels
    assert found.shape == (16, 8, 1)
    assert (found[8:].min() > 200, found[:8].max() < 40) == (True, True)
    # A note that makes no sense costs nothing.
    content = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(
        content.replace(b"Exif\0\0MM", b"Exif\0\0XX").replace(b"Exif\0\0II", b"Exif\0\0XX")
    )
    assert read_image(tmp_path / "b.jpg").pixels.shape == (8, 16, 1)
