"""Images in folders, such as site/subject/session/frame, with labels in a table: PNG, JPEG and DICOM.

Pixels are read once into an unnamed file that is memory-mapped and vanishes with the process. Broken files are left
out, named and counted. Of DICOM headers nothing is kept. `masks` is a folder of PNG files in the same places, which
`target = "mask"` makes what is learned: a segmentation. A model of images learns from nothing else, so other columns
are dropped or set aside by the study. Needs the extra `images` (Pillow, pydicom).
"""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.assembly import MissingSite, assemble_table
from wardround.data.table import Kind, Table

SITE = "site"


def images(
    *,
    path: str | Path,
    target: str,
    layout: str = "site/subject/session/frame",
    labels: str = "",
    masks: str = "",
    size: tuple[int, ...] = (),
    channels: Literal[1, 3] = 1,
    equalize: bool = False,
    standardize: bool = False,
    window: tuple[float, ...] = (),
    drop: tuple[str, ...] = (),
    task: Kind | None = None,
    positive: str | None = None,
    groups: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    missing_site: MissingSite = "refuse",
) -> Table:
    """Folders of images (layout: what each level of folders is) with a table of labels; size, channels, contrast."""
    folder = Path(path).expanduser()
    if find_spec("PIL") is None:
        raise Refusal(
            "reading images needs the package Pillow",
            where=str(folder),
            remedy="install it: pip install 'wardround[images]'",
        )
    from wardround.data.images.form import form_of
    from wardround.data.images.labels import find_labels, join_labels
    from wardround.data.images.layout import FILE, IMAGE, MASK, list_files, words_of
    from wardround.data.images.patients import header_remarks
    from wardround.data.images.store import read_pictures

    if window and (len(window) != 2 or not window[0] < window[1]):
        raise Refusal(f"the window {list(window)} is not [low, high]", where=str(folder), remedy="correct it")
    form = form_of(size, channels, equalize, standardize, str(folder))
    words = words_of(layout, str(folder))
    if target == MASK and not masks:
        raise Refusal(
            "the target is the mask of each image, and no folder of masks is named",
            where=str(folder),
            remedy='say where they lie, as in masks = "masks", or name a column of the labels as the target',
        )
    drawings = mask_folder(folder, masks) if masks else None
    found = list_files(folder, layout, without=drawings)
    rows, notes = found.rows, list(found.notes)
    table = find_labels(folder, labels)
    if table is not None:
        rows, remarks = join_labels(rows, table, words)
        notes += remarks
    outlines = None
    if drawings is not None:
        places = [drawings / f"{file}.png" for file in rows[FILE]]
        outlines = [place if place.is_file() else None for place in places]
    kept, pictures, drawn, seen = read_pictures(list(rows[FILE]), found.paths, form, window, outlines)
    frame = rows.iloc[kept].drop(columns=[FILE, words[-1]]).reset_index(drop=True)
    frame[IMAGE] = pd.Series(pictures, dtype=object)
    if drawn:
        frame[MASK] = pd.Series(drawn, dtype=object)
    made = assemble_table(
        frame,
        origin=str(folder),
        target=target,
        site=SITE if SITE in frame.columns else "",
        drop=drop,
        task=task,
        positive=positive,
        groups=groups,
        categories=categories,
        missing_site=missing_site,
    )
    whose = header_remarks(rows.iloc[kept], seen.patients)
    return replace(made, notes=(*notes, *seen.lines(form, windowed=bool(window)), *whose, *made.notes))


def mask_folder(folder: Path, said: str) -> Path:
    """The folder of the masks: inside that of the images, or anywhere."""
    for place in (folder / said, Path(said).expanduser()):
        if place.is_dir():
            return place
    raise Refusal(f"there is no folder {said} with masks", where=str(folder), remedy="correct masks = ...")
