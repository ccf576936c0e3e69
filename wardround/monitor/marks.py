"""Which patients were counted already: a keyed mark of 64 bits for every row, so that none counts twice."""

import base64
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.queries.columns import as_text

Marks = np.ndarray[Any, Any]


def marks_of(frame: pd.DataFrame, dates: "pd.Series[Any]", columns: list[str], identity: str | None, key: str) -> Marks:
    """A mark for each row, by its number where a column holds one, else by its date and inputs.

    Equal rows get different marks, in their order: two patients may be alike.
    """
    names = columns if identity is None else [identity]
    texts = {str(place): as_text(frame[name]).astype(str) for place, name in enumerate(names)}
    if identity is None:
        texts["date"] = dates.astype(str).to_numpy(dtype=object)
    rows = pd.DataFrame(texts)
    if identity is not None and bool(frame[identity].isna().any() or rows.duplicated().any()):
        raise Refusal(
            f"the numbers in {identity!r} do not tell all rows apart",
            where="--id",
            remedy="name a column with another number for every row, or leave --id out",
        )
    rows["again"] = rows.groupby(list(rows.columns), sort=False).cumcount().astype(str)
    return np.asarray(pd.util.hash_pandas_object(rows, index=False, hash_key=key[:16]), np.uint64)


def pack_marks(marks: Marks) -> str:
    """In their order, which is that in which patients were counted."""
    return base64.b64encode(marks.astype("<u8").tobytes()).decode("ascii")


def unpack_marks(text: str) -> Marks:
    return np.frombuffer(base64.b64decode(text), dtype="<u8")
