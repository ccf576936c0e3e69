"""One image file as pixels: PNG and JPEG through Pillow, DICOM through pydicom. Nothing but pixels is kept.

A photograph that was taken with a turned camera, and says so, is turned upright, as whoever looks at it sees it.

Whatever is wrong with a file is raised as `Unreadable`, a reason in a few words: whoever reads a folder leaves the file
out, names it and counts it.
"""

import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image, ImageOps

Pixels = np.ndarray[Any, Any]
PLAIN = (".png", ".jpg", ".jpeg")
DICOM = (".dcm", ".dicom")
SUFFIXES = (*PLAIN, *DICOM)
MOST_PIXELS = 100_000_000
"""Of one image: a larger one is not opened, since unpacking it could fill the memory."""
BYTES_A_PIXEL = 20
"""While an image is unpacked, scaled and brought to its form: several copies of four bytes each."""
MEMORY_SHARE = 0.5
"""Of what is free, for one image."""
ORIENTATION = 0x0112
"""Where EXIF notes how the camera was held."""
DEEP = 65535
"""The brightest value of 16 bits."""


class Unreadable(Exception):
    """Why a file gives no image."""


@dataclass(frozen=True)
class RawImage:
    """Values from 0 to 255 of shape (height, width, 1 or 3), and what was noticed on the way."""

    pixels: Pixels
    deep: bool = False
    """Had more than 8 bits a pixel."""
    names_patient: bool = False
    """The file's header named the patient; it was not kept."""
    burnt_in: bool | None = False
    """Whether text is burnt into the pixels; none where a DICOM file does not say."""
    patient: str = ""
    """A digest of the header's patient number, by which a folder's patients are counted; it is not kept."""


def read_image(path: Path, window: tuple[float, ...] = ()) -> RawImage:
    """The file's pixels; `window` (low, high) are the raw values that become black and white."""
    if path.suffix.lower() in DICOM:
        from wardround.data.images.dicom import read_dicom

        return read_dicom(path, window)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # ours says more
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                refuse_large(image.height, image.width)
                return of_pillow(upright(image), window)
    except Unreadable:
        raise
    except Image.DecompressionBombError:
        raise Unreadable(f"it has more than {MOST_PIXELS:,} pixels") from None
    except (OSError, ValueError, SyntaxError, EOFError, Warning) as error:
        raise Unreadable(reason(error)) from None


def upright(image: Image.Image) -> Image.Image:
    """As the camera's note on how it was held says; a note that cannot be read is none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ImageOps.exif_transpose(image) if image.getexif().get(ORIENTATION, 1) != 1 else image
    except (ValueError, TypeError, SyntaxError, KeyError, struct.error):
        return image


def refuse_large(height: int, width: int) -> None:
    """Told by a header, before anything is unpacked: an image that could fill the memory is not read."""
    if height * width > MOST_PIXELS:
        raise Unreadable(f"{width} x {height} pixels are more than {MOST_PIXELS:,}")
    needed, free = BYTES_A_PIXEL * height * width, psutil.virtual_memory().available
    if needed > MEMORY_SHARE * free:
        raise Unreadable(
            f"{width} x {height} pixels take {needed / 1e9:.1f} GB of memory to read, and {free / 1e9:.1f} GB are free"
        )


def reason(error: BaseException) -> str:
    """The first line of an error, without the path that Pillow repeats."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return "not an image of the kind its name says" if text.startswith("cannot identify") else text[:100]


def of_pillow(image: Image.Image, window: tuple[float, ...]) -> RawImage:
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, np.float32)
        if not np.isfinite(values).all():
            raise Unreadable("it holds values that are not finite")
        return RawImage(scale(values, window or (0.0, DEEP))[..., None], deep=True)
    grey = image.mode in ("1", "L", "LA")
    pixels = np.asarray(image.convert("L" if grey else "RGB"))
    pixels = pixels[..., None] if grey else pixels
    return RawImage(scale(pixels.astype(np.float32), window) if window else pixels)


def scale(values: Pixels, window: tuple[float, ...]) -> Pixels:
    """Values from the window's low to its high end as 0 to 255, those beyond as the nearer end."""
    low, high = window
    return np.round(np.clip((values - low) / (high - low), 0, 1) * 255).astype(np.uint8)
