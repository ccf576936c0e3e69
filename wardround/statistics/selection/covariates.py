"""Covariates as columns of numbers: a number as it is, a category as one flag for every level but the first."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wardround.core.analysis import Agreed
from wardround.statistics.selection.rows import CompleteRows

Matrix = np.ndarray[Any, Any]


def split_kinds(agreed: Agreed, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that are numbers, and those that are categories."""
    numbers = tuple(name for name in names if agreed.columns[name].kind == "number")
    return numbers, tuple(name for name in names if name not in numbers)


def covariate_names(agreed: Agreed, names: Sequence[str]) -> tuple[str, ...]:
    """Numbers first, then "smoker: yes" for every level but the first."""
    numbers, categories = split_kinds(agreed, names)
    flags = [f"{name}: {level}" for name in categories for level in agreed.columns[name].levels[1:]]
    return (*numbers, *flags)


def covariate_matrix(agreed: Agreed, names: Sequence[str], rows: CompleteRows, first: int = 0) -> Matrix:
    """(rows, columns) in the order of `covariate_names`; the numbers are from place `first` on among the chosen."""
    numbers, categories = split_kinds(agreed, names)
    flags = [
        (rows.codes[name] == place).astype(np.float64)
        for name in categories
        for place in range(1, len(agreed.columns[name].levels))
    ]
    return np.column_stack([rows.numbers[:, first : first + len(numbers)], *flags])


def collinear_columns(products: Matrix, names: Sequence[str], tolerance: float = 1e-10) -> tuple[str, ...]:
    """Columns that are combinations of those before them (or constant), from their products around the means.

    >>> collinear_columns(np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]]), ["a", "b", "c"])
    ('b',)
    """
    found, kept = [], list[int]()
    scale = np.sqrt(np.maximum(np.diag(products), 0))
    for place, name in enumerate(names):
        mine = products[place, place]
        if kept and mine > 0:
            part = products[np.ix_(kept, kept)]
            mine -= products[place, kept] @ np.linalg.solve(part, products[kept, place])
        if mine <= tolerance * max(scale[place] ** 2, 0.0) or scale[place] == 0:
            found.append(name)
        else:
            kept.append(place)
    return tuple(found)
