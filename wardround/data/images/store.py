"""The pixels of a folder, read once into a file that has no name and vanishes with the process: never all in memory.

Files that cannot be read are left out, named and counted; so are masks that do not fit their image.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any
from warnings import catch_warnings

import numpy as np
from PIL import Image

from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.data.images.codec import RawImage, Unreadable, read_image
from wardround.data.images.form import ImageForm, resize
from wardround.queries.columns import Picture, list_some

Pixels = np.ndarray[Any, Any]
DISK_SHARE = 0.5
"""Of what is free where unnamed files lie, for pixels."""


class PixelStore:
    """Takes images one after the other; gives them back as views of one memory-mapped file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: list[tuple[int, tuple[int, ...]]] = []
        self._end = 0

    def add(self, pixels: Pixels) -> None:
        self._places.append((self._end, pixels.shape))
        self._end += self._file.write(np.ascontiguousarray(pixels, np.uint8).tobytes())

    def pictures(self) -> list[Picture]:
        self._file.flush()
        if not self._end:
            return []
        flat = np.memmap(self._file, np.uint8, "r")
        return [Picture(flat[at : at + int(np.prod(shape))].reshape(shape)) for at, shape in self._places]


class ReadingRemarks:
    """What was noticed while files were read, for people at the place where the files are."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.misfits: list[str] = []
        self.covered: list[str] = []
        """Files whose mask marks every pixel."""
        self.names, self.deep, self.silent = 0, 0, 0
        self.burnt: list[str] = []
        self.sizes: Counter[tuple[int, ...]] = Counter()
        self.patients: list[str] = []
        """Of every image that was kept, a digest from its header."""

    def note(self, file: str, image: RawImage) -> None:
        self.names += image.names_patient
        self.deep += image.deep
        self.silent += image.burnt_in is None
        self.burnt += [file] if image.burnt_in else []
        self.sizes[image.pixels.shape] += 1
        self.patients.append(image.patient)

    def lines(self, form: ImageForm, *, windowed: bool) -> list[str]:
        said = [
            (self.broken, f"Left out, not readable: {counted(len(self.broken), 'file')} ({list_some(self.broken)})."),
            (self.misfits, f"Left out for their masks: {counted(len(self.misfits), 'image')} "
             f"({list_some(self.misfits)})."),
            (self.covered, f"Every pixel is marked in {counted(len(self.covered), 'mask')} ({list_some(self.covered)}):"
             " look whether 0 is the background there."),
            (self.names, f"Headers of {counted(self.names, 'DICOM file')} name the patient; nothing but pixels was "
             "taken from them."),
            (self.burnt, f"Text is burnt into {counted(len(self.burnt), 'image')} ({list_some(self.burnt)}): look"
             " whether it names patients, and leave these out if so."),
            (self.silent, f"{counted(self.silent, 'DICOM file')} did not say whether text is burnt into the image: look"
             " at some of them."),
            (self.deep and not windowed, f"{counted(self.deep, 'image')} of more than 8 bits became 8 bits (DICOM by"
             " its own window, others from 0 to 65,535); to choose the range, set window = [low, high]."),
        ]  # fmt: skip
        sides = Counter({shape[:2]: 0 for shape in self.sizes})
        for shape, count in self.sizes.items():
            sides[shape[:2]] += count
        if form.size:
            other = sum(count for side, count in sides.items() if side != form.size)
            said.append((other, f"Resized to {form.size[0]} x {form.size[1]}: {counted(other, 'image')}."))
        elif len(sides) > 1:
            shown = list_some(f"{h} x {w}: {count}" for (h, w), count in sides.most_common())
            said.append((True, f"Images have {len(sides)} different sizes (height x width: {shown}); a study brings"
                         " them to one with size = [height, width]."))  # fmt: skip
        return [line for holds, line in said if holds]


def read_pictures(
    files: Sequence[str],
    paths: Sequence[Path],
    form: ImageForm,
    window: tuple[float, ...] = (),
    masks: Sequence[Path | None] | None = None,
) -> tuple[list[int], list[Picture], list[Picture], ReadingRemarks]:
    """Places of the files that could be read, their pictures and masks (none if not asked for), and remarks."""
    refuse_no_room(len(paths), form, masked=masks is not None)
    with TemporaryFile(prefix="wardround-") as pixels, TemporaryFile(prefix="wardround-") as drawn:
        # What is mapped stays readable after its file is closed, as long as somebody looks at it.
        return fill_stores(files, paths, form, window, masks, PixelStore(pixels), PixelStore(drawn))


def refuse_no_room(files: int, form: ImageForm, *, masked: bool) -> None:
    """Whoever says the size of the images may say one that would fill the disk."""
    if not form.size:
        return
    needed = files * form.size[0] * form.size[1] * (form.channels + masked)
    room = int(DISK_SHARE * disk_usage(gettempdir()).free)
    if needed > room:
        raise Refusal(
            f"{counted(files, 'image')} of {form.size[0]} x {form.size[1]} pixels take {needed / 1e9:,.1f} GB, and"
            f" {room / 1e9:,.1f} GB may be used",
            where=gettempdir(),
            remedy="ask for a smaller size, or set TMPDIR to a folder with more room",
        )


def fill_stores(
    files: Sequence[str],
    paths: Sequence[Path],
    form: ImageForm,
    window: tuple[float, ...],
    masks: Sequence[Path | None] | None,
    store: PixelStore,
    outlines: PixelStore,
) -> tuple[list[int], list[Picture], list[Picture], ReadingRemarks]:
    kept: list[int] = []
    remarks = ReadingRemarks()
    for place, (file, path) in enumerate(zip(files, paths, strict=True)):
        try:
            image = read_image(path, window)
        except Unreadable as why:
            remarks.broken.append(f"{file}: {why}")
            continue
        if masks is not None:
            try:
                mask = read_mask(masks[place], image.pixels.shape, form)
            except Unreadable as why:
                remarks.misfits.append(f"{file}: {why}")
                continue
            outlines.add(mask)
            remarks.covered += [file] if mask.all() else []
        store.add(form.apply(image.pixels))
        remarks.note(file, image)
        kept.append(place)
    if not kept:
        raise Refusal(
            f"none of {counted(len(paths), 'image')} could be used ({list_some(remarks.broken + remarks.misfits, 2)})",
            where=str(paths[0].parent),
            remedy="check that the files are complete",
        )
    return kept, store.pictures(), outlines.pictures(), remarks


def read_mask(path: Path | None, shape: tuple[int, ...], form: ImageForm) -> Pixels:
    """1 where the mask is not 0; as large as its image before both are brought to one size."""
    if path is None:
        raise Unreadable("there is no mask")
    try:
        with (
            catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(path, formats=("PNG",)) as image,
        ):
            if (image.height, image.width) != shape[:2]:  # before it is unpacked: it could fill the memory
                raise Unreadable(f"its mask is {image.height} x {image.width}, it is {shape[0]} x {shape[1]}")
            found = np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise Unreadable("its mask cannot be read") from None
    found = found.reshape(*found.shape[:2], -1)
    if image.mode in ("LA", "RGBA"):  # what cannot be seen is not marked, and what can be seen is not marked by that
        found = found[..., :-1] * (found[..., -1:] > 0)
    outline = (found.max(axis=2) > 0).astype(np.uint8)[..., None]
    if form.size and outline.shape[:2] != form.size:
        outline = resize(outline, form.size, Image.Resampling.NEAREST)
    return outline
