"""What is known about each image: a table beside the folder, joined to the files by their place.

Its rows name the image in a column `file` (its path in the folder, with or without suffix), or in columns that are
words of the layout, such as subject, session and frame. Its other columns come with the images.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.data.files import read_frame
from wardround.data.images.codec import SUFFIXES
from wardround.data.images.layout import FILE, IMAGE, MASK
from wardround.queries.columns import list_some

DEFAULT = "labels.csv"


def find_labels(folder: Path, said: str) -> Path | None:
    """The table: the named one (beside the images, or anywhere), or labels.csv if it is there."""
    if not said:
        return folder / DEFAULT if (folder / DEFAULT).is_file() else None
    for place in (folder / said, Path(said).expanduser()):
        if place.is_file():
            return place
    raise Refusal(f"there is no table {said}", where=str(folder), remedy="correct labels = ...")


def join_labels(files: pd.DataFrame, path: Path, words: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """The files' rows with the table's columns; an image without a row has unknown values."""
    keys = [FILE, *words]
    table = read_frame(path, lambda one: read_table(one, keys))
    named = [FILE] if FILE in table.columns else [word for word in words if word in table.columns]
    taken = [column for column in (IMAGE, MASK) if column in table.columns]
    if not named or taken:
        raise Refusal(
            f"the column {taken[0]!r} has a name that is kept for the pixels" if taken else "the table names no image",
            where=str(path),
            remedy=f"{'rename it' if taken else f'add the column {FILE}, or {words[-1]} and its folders'}",
        )
    if FILE in named:
        table[FILE] = [without_suffix(str(one)) for one in table[FILE]]
        table = table.drop(columns=[word for word in words if word in table.columns])
    elif words[-1] in named:
        table[words[-1]] = [without_suffix(str(one)) for one in table[words[-1]]]
    twice = table[table.duplicated(named)]
    if len(twice):
        shown = "/".join(str(one) for one in twice.iloc[0][named])
        raise Refusal(f"the table has two rows for {shown}", where=str(path), remedy="keep one of them")
    if not len(files.merge(table[named], on=named)):
        own, other = ("/".join(map(str, one[named].iloc[0])) if len(one) else "nothing" for one in (table, files))
        raise Refusal(
            f"no row of the table names an image of the folder: it says {own}, and an image is {other}",
            where=str(path),
            remedy=f"write the column {FILE} as places in the folder, or give {words[-1]} and its folders",
        )
    joined = files.merge(table, on=named, how="left", indicator="known", validate="many_to_one")
    unlabelled = joined["known"] != "both"
    used = joined.loc[~unlabelled, named].drop_duplicates()
    notes = []
    if unlabelled.any():
        shown = list_some(joined.loc[unlabelled, FILE])
        notes.append(f"Without a row in {path.name}: {counted(int(unlabelled.sum()), 'image')} ({shown}).")
    if len(used) < len(table):
        notes.append(f"Rows of {path.name} without an image: {len(table) - len(used)}.")
    return joined.drop(columns="known"), notes


def read_table(path: Path, keys: Sequence[str]) -> pd.DataFrame:
    """Separated by commas, or where that leaves one column by semicolons, as spreadsheets of some countries write."""
    types = dict.fromkeys(keys, str)
    table = pd.read_csv(path, dtype=types)
    if len(table.columns) == 1 and ";" in table.columns[0]:
        return pd.read_csv(path, dtype=types, sep=";")
    return table


def without_suffix(place: str) -> str:
    """With forward slashes, as they are written elsewhere than in Windows."""
    path = Path(place.strip().replace("\\", "/"))
    return (path.with_suffix("") if path.suffix.lower() in SUFFIXES else path).as_posix()
