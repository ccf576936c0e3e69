"""What a model of masks marks on new images: a folder of them in, a mask for each out, as large as its image.

Images are brought to the form of training one by one, so that a folder need not fit into the memory; what the model
marks is brought back to the size of the file. Files that cannot be read are left out and named.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.predict.predictor import Predictor

AT_ONCE = 32
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
    from wardround.data.images.codec import SUFFIXES, Unreadable, read_image
    from wardround.data.images.form import form_of

    shape, reading = predictor.facts.shape, {**predictor.facts.reading, **settings}
    equalize, standardize = (bool(reading.get(one, False)) for one in ("equalize", "standardize"))
    form = form_of(shape[:2], shape[2], equalize, standardize, str(folder))
    window = tuple(reading.get("window") or ())
    if len(window) not in (0, 2):
        raise Refusal(f"the window {list(window)} is not [low, high]", where=str(folder), remedy="correct it")
    paths = sorted(one for one in folder.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
    if not paths:
        raise Refusal(
            "there is no image file (PNG, JPEG, DICOM) in this folder", where=str(folder), remedy="correct the path"
        )
    for begin in range(0, len(paths), AT_ONCE):
        found: list[MarkedImage] = []
        pixels: list[Pixels] = []
        sizes: list[tuple[int, int]] = []
        for path in paths[begin : begin + AT_ONCE]:
            name = path.relative_to(folder).as_posix()
            try:
                raw = read_image(path, window).pixels
            except Unreadable as why:
                found.append(MarkedImage(name, None, str(why)))
                continue
            pixels.append(form.apply(raw))
            sizes.append(raw.shape[:2])
            found.append(MarkedImage(name, None))
        marks = iter(zip(marked_pixels(predictor, pixels), sizes, strict=True))
        yield from (one if one.problem else one._replace(mask=enlarged(*next(marks))) for one in found)


def marked_pixels(predictor: Predictor, pixels: list[Pixels]) -> Pixels:
    """255 where the probability is at least one half."""
    if not pixels:
        return np.zeros((0, *predictor.facts.shape[:2]), np.uint8)
    return np.where(predictor.predict_prepared(np.stack(pixels)) >= 0.5, 255, 0).astype(np.uint8)


def enlarged(mask: Pixels, size: tuple[int, int]) -> Pixels:
    from PIL import Image

    from wardround.data.images.form import resize

    same = mask.shape == tuple(size)
    return mask if same else resize(mask[..., None], size, Image.Resampling.NEAREST)[..., 0]
