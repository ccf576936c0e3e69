"""A site's columns as queries look at them: numbers with gaps, known values in order, words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.contracts import Message, Site
from wardround.queries.cells import Ends, coarse_ends
from wardround.queries.columns import as_numbers, is_measured

Matrix = np.ndarray[Any, Any]


def numbers_of(site: Site, columns: Sequence[str]) -> Matrix:
    """(rows, columns) in float64, NaN where missing."""
    if not columns:
        return np.empty((len(site.table), 0))
    table = site.table[list(columns)]
    if all(is_measured(dtype) for dtype in table.dtypes):
        return np.asarray(table.to_numpy(dtype=np.float64))
    return np.column_stack([as_numbers(table[name]) for name in columns])


def sorted_known(x: Matrix) -> list[Matrix]:
    """The known values of every column in ascending order."""
    return [np.sort(column[~np.isnan(column)]) for column in x.T]


def ends_of(ordered: Matrix, smallest_cell: int) -> Ends | None:
    """Where the known values of a column lie; exactly with a smallest cell of 1."""
    if smallest_cell > 1:
        return coarse_ends(ordered, smallest_cell)
    return Ends(float(ordered[0]), float(ordered[-1]), 0.0) if len(ordered) else None


def typed_values(series: "pd.Series[Any]") -> tuple[str, Any]:
    """A column as ("number", its known values), ("text", its known words) or ("empty", nothing)."""
    known = series[series.notna()]
    if not len(known):
        return "empty", np.empty(0)
    if pd.api.types.is_bool_dtype(known.infer_objects().dtype):
        return "text", ["yes" if value else "no" for value in known]
    if pd.api.types.is_numeric_dtype(known.infer_objects().dtype):
        return "number", known.to_numpy(np.float64)
    return "text", [str(value) for value in known]


def words_of(site: Site, name: str) -> list[str]:
    if name not in site.table.columns:
        return []
    return [
        str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in typed_values(site.table[name])[1]
    ]


def sum_over_sites(answers: Sequence[Message], name: str) -> Matrix:
    """An array added up over the sites."""
    return np.asarray(np.sum([answer.arrays[name] for answer in answers], axis=0))
