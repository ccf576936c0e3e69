"""A DICOM file as pixels: rescaled, windowed, inverted where dark means bright. The header stays behind.

Linear windowing as in DICOM PS3.3 C.11.2.1.2: ((x - (center - 0.5)) / (width - 1) + 0.5) from 0 to 1. Without a window
in the header or in the settings, the smallest value of the image is black and the largest is white. Needs the extra
`images` (pydicom); images of several frames, and compression that pydicom cannot undo by itself, count as unreadable.
The header is read first: an image, or a file around a small one, that could fill the memory counts as unreadable, too;
so does one whose compressed pixels are of another size than its header says. Colours of a palette become colours.
"""

from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np
from PIL import Image

from wardround.core.errors import Refusal
from wardround.data.images.codec import MOST_PIXELS, RawImage, Unreadable, reason, refuse_large, scale

NAMES_PATIENT = (
    *("PatientName", "PatientID", "PatientBirthDate", "OtherPatientIDs", "PatientAddress"),
    *("PatientTelephoneNumbers", "PatientMotherBirthName", "AccessionNumber", "ReferringPhysicianName"),
)

LONG_VALUE = 1_000_000
"""Bytes of a value in the header from which on it is not read."""
ROOM_BESIDE = 20_000_000
"""Bytes that a file may have beside its pixels (and as much again, for whatever they are packed in)."""


def read_dicom(path: Path, window: tuple[float, ...] = ()) -> RawImage:
    """The pixels of one frame."""
    try:
        import pydicom
    except ImportError:
        raise Refusal(
            "reading DICOM files needs the package pydicom",
            where=str(path),
            remedy="install it: pip install 'wardround[images]'",
        ) from None
    try:
        return of_dicom(path, window, pydicom)
    except Unreadable:
        raise
    except Exception as error:  # pydicom and its plugins raise whatever a broken file or header makes them
        raise Unreadable(reason(error)) from None


def of_dicom(path: Path, window: tuple[float, ...], pydicom: Any) -> RawImage:
    known = pydicom.filereader.read_file_meta_info(path)
    if known.get("TransferSyntaxUID") == pydicom.uid.DeflatedExplicitVRLittleEndian:
        raise Unreadable("it is packed as a whole, which is not unpacked: it could fill the memory")
    # The header alone first, its long values left where they are: nothing is read that could fill the memory.
    head = pydicom.dcmread(path, stop_before_pixels=True, defer_size=LONG_VALUE)
    if int(head.get("NumberOfFrames") or 1) > 1:
        raise Unreadable(f"it holds {int(head.NumberOfFrames)} frames, not one")
    height, width = int(head.get("Rows", 0)), int(head.get("Columns", 0))
    refuse_large(height, width)
    pixels_take = height * width * int(head.get("SamplesPerPixel") or 1) * (int(head.get("BitsAllocated") or 16) // 8)
    size = path.stat().st_size
    if size > 2 * pixels_take + ROOM_BESIDE:
        raise Unreadable(f"it has {size / 1e6:,.0f} MB, though its pixels take {pixels_take / 1e6:,.1f} MB")
    found = pydicom.dcmread(path)
    refuse_other_size(found, (height, width), pydicom)
    raw = found.pixel_array
    said = str(found.get("BurnedInAnnotation", "")).upper()
    remarks: dict[str, Any] = {
        "names_patient": any(str(found.get(name, "")).strip() for name in NAMES_PATIENT),
        "burnt_in": {"YES": True, "NO": False}.get(said),
        "deep": int(found.get("BitsStored", 8)) > 8,
        "patient": digest_of(str(found.get("PatientID", "")).strip()),
    }
    if str(found.get("PhotometricInterpretation", "")) == "PALETTE COLOR":  # values are places in a table of colours
        colours = pydicom.pixels.apply_color_lut(raw, found)
        raw = colours if colours.dtype == np.uint8 else (colours >> 8).astype(np.uint8)
    if raw.ndim == 3:
        if raw.dtype != np.uint8 or raw.shape[2] != 3:
            raise Unreadable("its colours are of an unknown kind")
        return RawImage(raw, **remarks)
    slope, intercept = first(found.get("RescaleSlope")), first(found.get("RescaleIntercept"))
    values = raw.astype(np.float32) * (1.0 if slope is None else slope) + (intercept or 0.0)
    ends = window or window_of(found, values)
    if not np.isfinite(values).all() or not np.isfinite(ends).all():
        raise Unreadable("it holds values that are not finite")
    pixels = scale(values, ends)
    if str(found.get("PhotometricInterpretation", "")) == "MONOCHROME1":
        pixels = 255 - pixels
    return RawImage(pixels[..., None], **remarks)


def refuse_other_size(found: Any, size: tuple[int, int], pydicom: Any) -> None:
    """Compressed pixels have a header of their own, and are unpacked to the size that it says."""
    if not found.file_meta.TransferSyntaxUID.is_compressed:
        return
    packed = next(pydicom.encaps.generate_frames(found.PixelData, number_of_frames=1))
    try:
        with catch_warnings(action="ignore"), Image.open(BytesIO(packed), formats=("JPEG", "JPEG2000")) as image:
            own = image.height, image.width
    except Image.DecompressionBombError:
        raise Unreadable(f"its compressed pixels are more than {MOST_PIXELS:,}") from None
    except OSError:  # of another kind: run lengths, which grow sixty-fold at most, or what is not unpacked here
        return
    if own != size:
        raise Unreadable(f"its compressed pixels are {own[1]} x {own[0]}, its header says {size[1]} x {size[0]}")


def digest_of(number: str) -> str:
    return sha256(number.encode()).hexdigest() if number else ""


def window_of(found: Any, values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The header's (first) window as its two ends, or those of the values."""
    center, width = (first(found.get(name)) for name in ("WindowCenter", "WindowWidth"))
    if center is not None and width is not None and width > 1:
        middle = center - 0.5
        return middle - (width - 1) / 2, middle + (width - 1) / 2
    low, high = float(values.min()), float(values.max())
    return low, high if high > low else low + 1


def first(value: Any) -> float | None:
    """A header may hold one number, or several ways to look at the image."""
    if value is None or value == "":
        return None
    many = not isinstance(value, str | int | float) and hasattr(value, "__len__")
    return float(value[0]) if many else float(value)
