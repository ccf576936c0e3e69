"""Finding and opening the files of a source: one file, or a folder with one file per site."""

import csv
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import natural_order

UNREADABLE = (ValueError, OSError, EOFError, LookupError, NotImplementedError, ImportError, zlib.error, csv.Error)
"""What parsers raise over a file that is not what it says; wrong encodings and Arrow's complaints are ValueErrors."""


def read_path(
    path: str | Path, suffixes: Sequence[str], read: Callable[[Path], pd.DataFrame]
) -> pd.DataFrame | dict[str, pd.DataFrame]:
    """The frame of a file, or for a folder the frame of each of its files by site (the file's name without suffix)."""
    place = Path(path).expanduser()
    if not place.exists():
        beside = sorted(p.name for p in place.parent.iterdir()) if place.parent.is_dir() else []
        there = f"; the folder holds {', '.join(beside[:10])}" if beside else ""
        raise Refusal(f"there is no such file{there}", where=str(place), remedy="correct the path")
    if not place.is_dir():
        return read_frame(place, read)
    found: dict[str, Path] = {}
    for file in sorted(place.iterdir(), key=lambda one: natural_order(one.name)):
        suffix = next((s for s in suffixes if file.name.lower().endswith(s)), None)
        if suffix is None or file.name.startswith("."):
            continue
        name = file.name[: -len(suffix)]
        if name in found:
            raise Refusal(f"two files are named for site {name}", where=f"{found[name]}, {file}", remedy="remove one")
        found[name] = file
    if not found:
        raise Refusal(
            f"there is no {' or '.join(suffixes)} file in the folder",
            where=str(place),
            remedy="put one file per site there, named for the site",
        )
    return {name: read_frame(file, read) for name, file in found.items()}


def read_frame(file: Path, read: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    """The file's frame; whatever its reader trips over is told with the file's name."""
    try:
        return read(file)
    except Refusal:
        raise
    except UNREADABLE as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Refusal(
            f"the file cannot be read ({reason})",
            where=str(file),
            remedy="check that it is complete and of the kind its name says",
        ) from error
