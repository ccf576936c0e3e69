"""What a model of masks marks on new images: a folder of them in, a mask for each out, as large as its image.

What the model marks is brought back to the size of the file. Files that cannot be read are left out and named.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wardround.predict.image_files import read_images
from wardround.predict.predictor import Predictor

Pixels = np.ndarray[Any, Any]


class MarkedImage(NamedTuple):
    """One file of the folder; `mask` is 255 where something is marked. Without one, `problem` says why."""

    file: str
    mask: Pixels | None
    problem: str = ""

    @property
    def marked(self) -> int:
        return 0 if self.mask is None else int(np.count_nonzero(self.mask))

    @property
    def share(self) -> float:
        return 0.0 if self.mask is None else self.marked / self.mask.size


def mark_images(predictor: Predictor, folder: Path, settings: Mapping[str, Any]) -> Iterator[MarkedImage]:
    """Every image file below the folder, in order."""
    for files, pixels in read_images(predictor, folder, settings):
        marks = iter(marked_pixels(predictor, pixels))
        for one in files:
            mask = None if one.problem else enlarged(next(marks), one.size)
            yield MarkedImage(one.file, mask, one.problem)


def marked_pixels(predictor: Predictor, pixels: Pixels) -> Pixels:
    """255 where the probability is at least one half."""
    return np.where(predictor.predict_prepared(pixels) >= 0.5, 255, 0).astype(np.uint8)


def enlarged(mask: Pixels, size: tuple[int, int]) -> Pixels:
    from PIL import Image

    from wardround.data.images.form import resize

    same = mask.shape == tuple(size)
    return mask if same else resize(mask[..., None], size, Image.Resampling.NEAREST)[..., 0]
