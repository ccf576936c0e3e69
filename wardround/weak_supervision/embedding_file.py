"""A user's own embeddings: a vector for each record from one file, joined to a table by the record's identity.

Read are NumPy archives (.npz, without pickled objects) that hold `ids`, one for each record, and `vectors`, a row each;
and Parquet or CSV files with the table's record column and a column for each number. The vectors become the columns
`embedding 1`, `embedding 2`, ... and the record column, which identifies patients, is left out. Records of the file
that the table does not have are ignored; a record of the table that the file does not have is refused.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.queries.columns import as_numbers, as_text, list_some, suggest_name

Values = np.ndarray[Any, Any]
Frames = pd.DataFrame | Mapping[str, pd.DataFrame]
IDS, VECTORS = "ids", "vectors"
UNREADABLE = (ValueError, OSError, EOFError, LookupError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What readers raise over a file that is not what its name says."""


def with_embeddings(frames: Frames, file: str | Path, record: str, origin: str) -> Frames:
    """The rows of one table, or of every site's, with their vectors in place of the record column."""
    if not file and not record:
        return frames
    if not file or not record:
        raise Refusal(
            "embeddings and record belong together: the file of vectors, and the column that names the record",
            where=origin,
            remedy='give both, such as embeddings = "notes.npz" and record = "note_id"',
        )
    ids, vectors = read_embeddings(Path(file).expanduser(), record)
    places = {name: place for place, name in enumerate(ids)}
    if len(places) < len(ids):
        twice = pd.Series(ids)[pd.Series(ids).duplicated()].iloc[0]
        raise Refusal(f"record {twice!r} has two vectors", where=str(file), remedy="keep one vector for each record")
    if isinstance(frames, pd.DataFrame):
        return joined(frames, record, places, vectors, origin, str(file))
    return {
        name: joined(frame, record, places, vectors, f"{origin}, site {name}", str(file))
        for name, frame in frames.items()
    }


def joined(
    frame: pd.DataFrame, record: str, places: Mapping[str, int], vectors: Values, where: str, file: str
) -> pd.DataFrame:
    if record not in frame.columns:
        raise Refusal(
            f"column {record!r}, which should name the record, is missing; {suggest_name(record, frame.columns)}",
            where=where,
            remedy="correct record",
        )
    known = as_text(frame[record])
    nameless = sum(one is None for one in known)
    if nameless:
        raise Refusal(
            f"{counted(nameless, 'row')} without a value in column {record!r}, so no vector can be found for it",
            where=where,
            remedy="fill the column in, or leave these rows out",
        )
    missing = list(dict.fromkeys(one for one in known if one not in places))
    if missing:
        raise Refusal(
            f"the file of embeddings has no vector for {counted(len(missing), 'record')}: {list_some(missing)}",
            where=f"{where}; {file}",
            remedy="embed these records too, or leave their rows out",
        )
    names = [f"embedding {number}" for number in range(1, vectors.shape[1] + 1)]
    taken = [name for name in names if name in frame.columns]
    if taken:
        raise Refusal(f"the table already has a column {taken[0]!r}", where=where, remedy="rename it")
    found = pd.DataFrame(vectors[[places[one] for one in known]], columns=names, index=frame.index)
    return pd.concat([frame.drop(columns=record), found], axis=1)


def read_embeddings(path: Path, record: str) -> tuple[list[str], Values]:
    """The identities, as text, and a vector for each; refused where the file does not hold just that."""
    if not path.is_file():
        raise Refusal("there is no such file of embeddings", where=str(path), remedy="correct the path")
    suffix = path.name.lower()
    if suffix.endswith(".npz"):
        given, vectors = read_archive(path)
    elif suffix.endswith((".parquet", ".csv", ".csv.gz")):
        given, vectors = read_table(path, record)
    else:
        raise Refusal(
            "embeddings are read from .npz, .parquet and .csv files",
            where=str(path),
            remedy=f"save the arrays {IDS} and {VECTORS} with numpy.savez",
        )
    ids = as_text(given)
    if vectors.ndim != 2 or not vectors.shape[1] or len(vectors) != len(ids):
        shape = " x ".join(map(str, vectors.shape))
        raise Refusal(
            f"there are {counted(len(ids), 'record')} and vectors of shape {shape}",
            where=str(path),
            remedy="give one row of numbers for each identity, all of the same length",
        )
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
    if wrong or any(one is None for one in ids):
        row = wrong[0] if wrong else next(place for place, one in enumerate(ids) if one is None)
        what = "a number that is missing or not finite" if wrong else "no identity"
        raise Refusal(f"row {row + 1} has {what}", where=str(path), remedy="correct it, or leave the row out")
    return [str(one) for one in ids], vectors


def refuse_unreadable(path: Path, error: Exception) -> Refusal:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    remedy = (
        "check that it is complete and of the kind its name says; of NumPy's files only those without objects are read"
    )
    return Refusal(f"the file cannot be read ({reason})", where=str(path), remedy=remedy)


def read_archive(path: Path) -> tuple["pd.Series[Any]", Values]:
    remedy = f"save it with numpy.savez(file, {IDS}=..., {VECTORS}=...), texts as strings and no objects"
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in (IDS, VECTORS) if name in held.files}
    except UNREADABLE as error:
        raise refuse_unreadable(path, error) from None
    absent = [name for name in (IDS, VECTORS) if name not in arrays]
    if absent:
        raise Refusal(f"the array {absent[0]!r} is missing", where=str(path), remedy=remedy)
    ids, vectors = arrays[IDS], arrays[VECTORS]
    if ids.ndim != 1 or ids.dtype.kind not in "iuUS" or vectors.dtype.kind not in "iuf":
        raise Refusal(f"{IDS} should be texts or whole numbers, and {VECTORS} numbers", where=str(path), remedy=remedy)
    named = [one.decode() if isinstance(one, bytes) else one for one in ids.tolist()]
    return pd.Series(named), vectors.astype(np.float32)


def read_table(path: Path, record: str) -> tuple["pd.Series[Any]", Values]:
    try:
        if path.name.lower().endswith(".parquet"):
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, dtype={record: str}, index_col=False)
    except UNREADABLE as error:
        raise refuse_unreadable(path, error) from None
    if record not in frame.columns:
        raise Refusal(
            f"column {record!r}, which should name the record, is missing; {suggest_name(record, frame.columns)}",
            where=str(path),
            remedy="name it as in the table of patients",
        )
    numbers = frame.drop(columns=record)
    words = [str(name) for name in numbers.columns if numbers[name].dtype.kind not in "iuf"]
    if words:
        raise Refusal(f"column {words[0]!r} does not hold numbers alone", where=str(path), remedy="remove it")
    columns = [as_numbers(numbers[name]) for name in numbers.columns]
    return frame[record], np.array(columns, np.float32).reshape(len(columns), len(frame)).T
