"""Nuclei in microscopy images of six acquisition types, with masks: a segmentation over sites that look different.

The 2018 Data Science Bowl (Caicedo et al., Nature Methods 2019; CC0), 664 images in 822 tiles of 256 x 256. The sites
are types of acquisition told from colour and size, not hospitals: three of fluorescence (grey on black), two of stained
tissue (colour), one of bright field (grey on white, the hard one). Every fifth image of a site is for testing, and
every fifth of the others for validation; tiles of one image stay together, though some images may be neighbouring cuts
of one slide. A tile is made smaller by `reduce` (box filter) and its middle `size` pixels are taken; the mask is 1
where any nucleus is. Grey tiles have three equal channels. `standardize` makes nuclei of all types bright on a dark
ground with like contrast, tile by tile, before the middle is taken (`data/images/contrast.py`). Needs the folder
nuclei_dsb2018 and the extra `images`.
"""

from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble
from wardround.data.folder import data_file

TILE = 256
SITES = ("fluo_small", "fluo_360", "fluo_large", "histology_purple_bg", "histology_white_bg", "brightfield")
Pixels = np.ndarray[Any, Any]


def nuclei(
    *, size: Count = 64, reduce: Count = 2, sites: tuple[str, ...] = (), standardize: bool = False
) -> Federation:
    """Nuclei of six types of microscopy with masks (size: side of the images, reduce: how much tiles shrink)."""
    if size > TILE // reduce or TILE % reduce:
        raise Refusal(
            f"tiles of {TILE} pixels made smaller by {reduce} have no middle of {size} pixels",
            where="data set nuclei",
            remedy="choose a smaller size, and reduce among 1, 2, 4 and 8",
        )
    unknown = [name for name in sites if name not in SITES]
    if unknown:
        known = ", ".join(SITES)
        raise Refusal(f"there is no site {unknown[0]!r}", where="data set nuclei", remedy=f"choose among {known}")
    table = pd.read_parquet(data_file("nuclei_dsb2018", "nuclei.parquet"))
    made = []
    for name in sites or SITES:
        rows = table[table["site"] == name]
        x = np.stack([tile(content, size, reduce, standardize) for content in rows["image_webp"]])
        y = np.stack([mask(content, size, reduce) for content in rows["label_png"]])
        part = parts_of(rows)
        made.append((name, [(x[part == number], y[part == number]) for number in range(3)]))
    return assemble(made, Task((size, size, 3), (), "mask", segmentation=True))


def parts_of(rows: pd.DataFrame) -> Pixels:
    """0 for training, 1 for validation (every fifth image that is not for testing), 2 for testing."""
    learned = sorted(set(rows.loc[rows["split"] != "test", "image"]))
    aside = set(learned[4::5])
    held = np.where(rows["image"].isin(aside), 1, 0)
    return np.where(rows["split"] == "test", 2, held)


def opened(content: bytes) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise Refusal(
            "reading images needs the package Pillow", remedy="install it: pip install 'wardround[images]'"
        ) from None
    return Image.open(BytesIO(content))


def tile(content: bytes, size: int, reduce: int, standardized: bool = False) -> Pixels:
    """The middle of a tile in three channels."""
    image = opened(content).convert("RGB")
    pixels = np.asarray(image.reduce(reduce) if reduce > 1 else image)
    if standardized:
        from wardround.data.images.contrast import standardize

        pixels = standardize(pixels)
    return middle(pixels, size)


def mask(content: bytes, size: int, reduce: int) -> Pixels:
    """1 where at least half of the pixels that became one belong to a nucleus."""
    drawn = (np.asarray(opened(content)) > 0).astype(np.float32)
    side = len(drawn) // reduce
    share = drawn.reshape(side, reduce, side, reduce).mean(axis=(1, 3))
    return middle((share >= 0.5).astype(np.uint8), size)


def middle(pixels: Pixels, size: int) -> Pixels:
    at = (len(pixels) - size) // 2
    return pixels[at : at + size, at : at + size]
