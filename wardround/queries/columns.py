"""What a column holds, and its values in one plain form: questions that schema, statistics and preparation share.

Pandas has many types for the same thing (objects, nullable integers, categories); here a column is numbers, flags,
text, dates, images, a mixture, or empty, and its values are float64 with NaN or text with None.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

ColumnKind = Literal["number", "flag", "text", "date", "image", "mixed", "empty"]

INFERRED: dict[str, ColumnKind] = {
    "string": "text",
    "boolean": "flag",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "datetime": "date",
    "datetime64": "date",
    "date": "date",
    "time": "date",
    "timedelta": "date",
    "timedelta64": "date",
    "period": "date",
    "empty": "empty",
}


@dataclass(frozen=True, eq=False, slots=True)
class Picture:
    """A row's image by reference, such as a view of a memory-mapped file: (height, width, channels) of bytes."""

    pixels: np.ndarray[Any, Any]


def picture_kind(series: "pd.Series[Any]") -> str:
    """What a column of images holds: "image 64x48x1" (height, width, channels), or "image mixed".

    >>> picture_kind(pd.Series([Picture(np.zeros((64, 48, 1), np.uint8)), None]))
    'image 64x48x1'
    """
    shapes = {one.pixels.shape for one in series if isinstance(one, Picture)}
    return f"image {'x'.join(map(str, next(iter(shapes))))}" if len(shapes) == 1 else "image mixed"


def picture_shape(kind: str) -> tuple[int, int, int] | None:
    """The shape in the words of `picture_kind`; none where they are not of images of one shape."""
    found = re.fullmatch(r"image (\d{1,4})x(\d{1,4})x([13])", kind)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def is_measured(dtype: Any) -> bool:
    """Whether NumPy itself holds the column as numbers or flags, the common and quick case."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def kind_of(series: "pd.Series[Any]") -> ColumnKind:
    """
    >>> kind_of(pd.Series([1, None, 3])), kind_of(pd.Series(["a", None])), kind_of(pd.Series([None, None]))
    ('number', 'text', 'empty')
    """
    dtype = series.dtype
    if bool(np.all(series.array.isna())):
        return "empty"
    if isinstance(dtype, pd.StringDtype):
        return "text"
    if isinstance(dtype, pd.CategoricalDtype):
        return kind_of(pd.Series(series.cat.remove_unused_categories().cat.categories))
    if pd.api.types.is_bool_dtype(dtype):
        return "flag"
    if pd.api.types.is_numeric_dtype(dtype):
        return "mixed" if pd.api.types.is_complex_dtype(dtype) else "number"
    kind = INFERRED.get(pd.api.types.infer_dtype(series.to_numpy(dtype=object), skipna=True), "mixed")
    return "image" if kind == "mixed" and all(isinstance(one, Picture) for one in series.dropna()) else kind


def as_numbers(series: "pd.Series[Any]") -> np.ndarray[Any, Any]:
    """Float64 with NaN for missing; flags are 0 and 1."""
    if is_measured(series.dtype):
        return np.asarray(series.to_numpy(), np.float64)
    if pd.api.types.is_numeric_dtype(series.dtype) or isinstance(series.dtype, pd.BooleanDtype):
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    values = series.to_numpy(dtype=object)
    return np.array([np.nan if m else float(v) for v, m in zip(values, pd.isna(values), strict=True)], np.float64)


def number_text(value: float) -> str:
    """
    >>> number_text(3.0), number_text(2.5)
    ('3', '2.5')
    """
    return f"{value:.0f}" if value.is_integer() else repr(value)


def as_text(series: "pd.Series[Any]") -> np.ndarray[Any, Any]:
    """Text with None for missing; a whole number has no decimal point, whatever type pandas chose at this site."""
    if isinstance(series.dtype, pd.StringDtype):
        words = np.array(series.to_numpy(dtype=object), dtype=object)
        words[series.isna().to_numpy()] = None
        return words
    kind = kind_of(series)
    values = np.array(series.to_numpy(dtype=object), dtype=object)
    missing = pd.isna(values)
    if kind == "number":
        distinct, where = np.unique(as_numbers(series)[~missing], return_inverse=True)
        values[~missing] = np.array([number_text(float(v)) for v in distinct], dtype=object)[where]
    elif kind != "text":
        values[~missing] = [str(v) for v in values[~missing]]
    values[missing] = None
    return values


def as_codes(series: "pd.Series[Any]") -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The distinct texts of a column, and for every row the place of its own: what `as_text` gives, far quicker.

    >>> as_codes(pd.Series([2.0, None, 1.0, 2.0]))
    (array([ 0, -1,  1,  0]), array(['2', '1'], dtype=object))
    """
    if kind_of(series) == "mixed":  # where 1, 1.0 and True would count as one
        codes, texts = pd.factorize(as_text(series))
    else:
        codes, distinct = pd.factorize(series)
        texts = as_text(pd.Series(distinct))
    return np.asarray(codes), np.asarray(texts, dtype=object)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """A clause that helps with a misspelt name: the nearest one, or all there are."""
    names = list(known)
    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"there are: {shown}" if names else "there are none"


def list_some(names: Iterable[str], most: int = 5) -> str:
    """
    >>> list_some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    listed = list(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
