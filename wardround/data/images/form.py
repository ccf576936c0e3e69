"""The form in which a model sees images: one size, grey or colour, contrast as it is or spread out. The study says it.

Histogram equalisation as in OpenCV: with c(v) the number of pixels up to value v, and c0 that of the darkest value that
occurs, v becomes round(255 (c(v) - c0) / (pixels - c0)). `standardize` is described in `contrast.py`.
"""

from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from wardround.core.errors import Refusal
from wardround.data.images.contrast import standardize

Pixels = np.ndarray[Any, Any]
LARGEST_SIDE = 4096


class ImageForm(NamedTuple):
    """`size` (height, width), or none: images stay as large as they are."""

    size: tuple[int, ...] = ()
    channels: int = 1
    equalize: bool = False
    standardize: bool = False

    def apply(self, pixels: Pixels) -> Pixels:
        """(height, width, 1 or 3) from 0 to 255 in this form: grey or colour first, then size, then contrast."""
        pixels = as_channels(pixels, self.channels)
        if self.size and pixels.shape[:2] != self.size:
            pixels = resize(pixels, self.size, Image.Resampling.BILINEAR)
        if self.standardize:
            return standardize(pixels)
        return equalize(pixels) if self.equalize else pixels


def form_of(size: Any, channels: int, equalize: bool, standardize: bool, where: str) -> ImageForm:
    """The form, its size given as one number or as (height, width)."""
    sides = (size, size) if isinstance(size, int) else tuple(size)
    sides = sides * 2 if len(sides) == 1 else sides
    if len(sides) not in (0, 2) or not all(1 <= side <= LARGEST_SIDE for side in sides):
        raise Refusal(
            f"the size {size!r} is not a height and a width of 1 to {LARGEST_SIDE} pixels",
            where=where,
            remedy="write size = [64, 64]",
        )
    if channels not in (1, 3):
        raise Refusal(f"images cannot have {channels} channels", where=where, remedy="set 1 (grey) or 3 (colour)")
    if equalize and channels == 3:
        raise Refusal("contrast is spread out in grey images only", where=where, remedy="set channels = 1")
    if equalize and standardize:
        raise Refusal(
            "equalize and standardize both spread out contrast", where=where, remedy="set one of them to true"
        )
    return ImageForm(sides, channels, equalize, standardize)


def as_channels(pixels: Pixels, channels: int) -> Pixels:
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    return np.asarray(Image.fromarray(pixels).convert("L"))[..., None]


def resize(pixels: Pixels, size: tuple[int, ...], how: Image.Resampling) -> Pixels:
    plain = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    made = np.asarray(Image.fromarray(plain).resize((size[1], size[0]), how))
    return made.reshape(*size, pixels.shape[2])


def equalize(pixels: Pixels) -> Pixels:
    """The same image with its grey values spread out evenly; one of a single value stays as it is."""
    up_to = np.cumsum(np.bincount(pixels.ravel(), minlength=256))
    darkest = up_to[np.argmax(up_to > 0)]
    rest = pixels.size - darkest
    if not rest:
        return pixels
    table = np.round(np.maximum(up_to - darkest, 0) * (255 / rest)).astype(np.uint8)
    spread: Pixels = table[pixels]
    return spread
