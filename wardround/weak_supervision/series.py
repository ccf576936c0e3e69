"""Time series of equal length, a column for each sample: z-normalised, and their distances from templates in blocks."""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.queries.columns import as_numbers

Values = np.ndarray[Any, Any]
BLOCK = 1 << 22
"""Distances that are held at a time."""


def sample_columns(series: str, length: int) -> tuple[str, ...]:
    """
    >>> sample_columns("beat_", 3)
    ('beat_0', 'beat_1', 'beat_2')
    """
    return tuple(f"{series}{number}" for number in range(length))


def read_series(frame: pd.DataFrame, series: str, length: int, where: str = "") -> Values:
    """(rows, samples) in single precision, NaN where a sample is missing; refused where the table's are longer."""
    if f"{series}{length}" in frame.columns:
        raise Refusal(
            f"the series {series!r} have more than {length} samples here",
            where=where,
            remedy="cut all series to the same length before they are compared",
        )
    columns = sample_columns(series, length)
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise Refusal(
            f"the series {series!r} have fewer than {length} samples here: column {missing[0]!r} is missing",
            where=where,
            remedy="bring all series to the same length before they are compared",
        )
    return np.stack([as_numbers(frame[name]) for name in columns], axis=1).astype(np.float32)


def z_normalised(series: Values) -> Values:
    """Each series with mean 0 and deviation 1; a constant one is 0 throughout, one with a gap is NaN throughout.

    >>> z_normalised(np.array([[1.0, 3.0], [2.0, 2.0]])).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    centered = series - series.mean(axis=1, keepdims=True)
    width = np.sqrt(np.square(centered).mean(axis=1, keepdims=True))
    return np.asarray(centered / np.where(width > 0, width, 1.0))


def squared_distances(one: Values, other: Values) -> Values:
    """Between all pairs of series: a matrix product, not a loop."""
    squares = np.square(one).sum(axis=1)[:, None] + np.square(other).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squares - 2 * (one @ other.T), 0.0))


def is_within(series: Values, templates: Values, reach: Values) -> Values:
    """A flag for every (z-normalised) series and template: whether its distance is at most the template's reach.

    A series with a gap is within no template's reach.
    """
    found = np.zeros((len(series), len(templates)), bool)
    step = max(1, BLOCK // max(1, len(templates)))
    limits = np.where(reach >= 0, np.square(reach), -1.0).astype(series.dtype)
    for first in range(0, len(series), step):
        found[first : first + step] = squared_distances(series[first : first + step], templates) <= limits
    return found
