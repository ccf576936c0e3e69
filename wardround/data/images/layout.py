"""Which files of a folder are images, and what their place tells: a layout such as site/subject/session/frame.

Every word but the last names a level of folders and becomes a column; the last stands for the file. Hidden files and
tables are passed over; anything else that does not fit is counted, not guessed at.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import counted, natural_order
from wardround.data.images.codec import SUFFIXES
from wardround.queries.columns import list_some

TABLES = (".csv", ".txt", ".md", ".json", ".toml")
IMAGE, MASK, FILE = "image", "mask", "file"
"""Columns: the image, its mask, and the file's place in the folder (without suffix), by which labels find it."""


@dataclass(frozen=True)
class FolderFiles:
    """One row per image file with the columns that its place tells, and remarks on files that were passed over."""

    rows: pd.DataFrame
    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def words_of(layout: str, where: str) -> list[str]:
    words = [word.strip() for word in layout.split("/")]
    if not all(words) or len(set(words)) < len(words) or {IMAGE, MASK, FILE} & set(words):
        raise Refusal(
            f"the layout {layout!r} is not a list of different names for folders and file",
            where=where,
            remedy='write it as in layout = "site/subject/session/frame", the file last',
        )
    return words


def list_files(folder: Path, layout: str, without: Path | None = None) -> FolderFiles:
    """The image files of a folder in natural order, those under `without` (the masks) left out."""
    words = words_of(layout, str(folder))
    if not folder.is_dir():
        raise Refusal("there is no such folder", where=str(folder), remedy="correct the path")
    paths, rows, elsewhere, others = [], [], [], []
    for path in sorted(folder.rglob("*"), key=lambda one: natural_order(one.relative_to(folder).as_posix())):
        place = path.relative_to(folder)
        if (
            (path.exists() and not path.is_file())  # a folder, or a pipe, which would be waited for
            or (without is not None and path.is_relative_to(without))
            or any(part.startswith(".") for part in place.parts)
        ):
            continue
        if path.suffix.lower() not in SUFFIXES:
            others += [] if path.suffix.lower() in TABLES else [place.as_posix()]
        elif len(place.parts) != len(words):
            elsewhere.append(place.as_posix())
        else:
            paths.append(path)
            bare = place.with_suffix("")
            rows.append([*bare.parts, bare.as_posix()])
    if not paths:
        found = f"; images lie elsewhere, such as {elsewhere[0]}" if elsewhere else ""
        raise Refusal(
            f"there is no image file (PNG, JPEG, DICOM) in folders {layout}{found}",
            where=str(folder),
            remedy='say how the folders are laid out, as in layout = "subject/session/frame"',
        )
    table = pd.DataFrame(rows, columns=[*words, FILE], dtype=object)
    twice = table[FILE][table[FILE].duplicated()]
    if len(twice):
        raise Refusal(
            f"two files are named {twice.iloc[0]} but for their suffix", where=str(folder), remedy="remove one"
        )
    notes = []
    if elsewhere:
        notes.append(f"Left out, not in folders {layout}: {counted(len(elsewhere), 'image')} ({list_some(elsewhere)}).")
    if others:
        notes.append(f"Passed over, not PNG, JPEG or DICOM: {counted(len(others), 'file')} ({list_some(others)}).")
    return FolderFiles(table, tuple(paths), tuple(notes))
