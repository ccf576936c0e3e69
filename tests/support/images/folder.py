"""A folder of made-up images: bright squares on the left (no) or on the right (yes), by site, subject and session."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

SIDE = 16


def square(right: bool, seed: int, side: int = SIDE) -> np.ndarray:
    """Grey noise with a bright square; which half it is in is the label."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 60, (side, side)).astype(np.uint8)
    at = side // 2 if right else 0
    pixels[side // 4 : 3 * side // 4, at + 1 : at + side // 2 - 1] = 220
    return pixels


def write_images(
    folder: Path, sites: tuple[str, ...] = ("A", "B"), *, subjects: int = 6, frames: int = 5, prefix: str = ""
) -> Path:
    """folder/site/subject/session/frame.png with labels.csv; a site's name is left out where it is ""."""
    rows = []
    for number, site in enumerate(sites):
        for subject in range(subjects):
            for frame in range(frames):
                place = Path(site, f"{prefix}{number}{subject}", "s1")
                (folder / place).mkdir(parents=True, exist_ok=True)
                right = (subject + frame) % 2 == 1
                seed = 1000 * number + 10 * subject + frame
                Image.fromarray(square(right, seed)).save(folder / place / f"{frame}.png")
                rows.append({"file": (place / f"{frame}.png").as_posix(), "finding": "yes" if right else "no"})
    pd.DataFrame(rows).to_csv(folder / "labels.csv", index=False)
    return folder


def disc(seed: int, side: int = SIDE, brightness: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Grey noise with a bright disc somewhere, and its mask (255 inside)."""
    generator = np.random.default_rng(seed)
    down, right = generator.integers(side // 4, 3 * side // 4, 2)
    radius = generator.integers(side // 6, side // 4 + 1)
    rows, columns = np.mgrid[:side, :side]
    inside = (rows - down) ** 2 + (columns - right) ** 2 <= radius**2
    pixels = generator.integers(0, 80, (side, side)).astype(np.uint8)
    pixels[inside] = generator.integers(brightness - 30, brightness + 30, int(inside.sum()))
    return pixels, inside.astype(np.uint8) * 255


def write_discs(folder: Path, sites: tuple[str, ...] = ("A", "B"), *, images: int = 30, side: int = SIDE) -> Path:
    """folder/site/frame.png with folder/masks/site/frame.png; a site's name is left out where it is ""."""
    for number, site in enumerate(sites):
        for place in (folder / site, folder / "masks" / site):
            place.mkdir(parents=True, exist_ok=True)
        for frame in range(images):
            pixels, mask = disc(1000 * number + frame, side, brightness=200 - 40 * number)
            Image.fromarray(pixels).save(folder / site / f"{frame}.png")
            Image.fromarray(mask).save(folder / "masks" / site / f"{frame}.png")
    return folder
