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
