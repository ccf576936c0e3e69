"""New images for a model: a folder, brought to the form of training file by file, so that it need not fit into memory.

Files that cannot be read are named and counted by whoever reads on.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal
from wardround.predict.predictor import Predictor

AT_ONCE = 32
Pixels = np.ndarray[Any, Any]


class ImageFile(NamedTuple):
    """One file of the folder; `problem` says why it cannot be read."""

    file: str
    size: tuple[int, int] = (0, 0)
    problem: str = ""


def read_images(
    predictor: Predictor, folder: Path, settings: Mapping[str, Any]
) -> Iterator[tuple[list[ImageFile], Pixels]]:
    """Every image file below the folder, in order, some at a time, and the pixels of those that could be read."""
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
        found: list[ImageFile] = []
        pixels: list[Pixels] = []
        for path in paths[begin : begin + AT_ONCE]:
            name = path.relative_to(folder).as_posix()
            try:
                raw = read_image(path, window).pixels
            except Unreadable as why:
                found.append(ImageFile(name, problem=str(why)))
                continue
            pixels.append(form.apply(raw))
            found.append(ImageFile(name, raw.shape[:2]))
        yield found, np.stack(pixels) if pixels else np.zeros((0, *shape), np.uint8)
