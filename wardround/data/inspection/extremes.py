"""Numbers far outside the rest of their column: codes for "unknown" such as -999, and slips of the pen such as 1e12."""

import re
from typing import Any, NamedTuple

import numpy as np

from wardround.queries.columns import number_text

CODE = re.compile(r"-?(9{2,}|8{2,}|7{2,})(\.0)?|-9|-8|-7")
"""Numbers that stand for "unknown", "refused" or "not asked" in many tables."""
MOST_PEELED = 3
"""Different values at each end that are looked at."""
FAR = 10.0
"""Times the range of the rest by which a number lies outside of it, if it is no code."""
LEAST_LEVELS = 3
"""Different values that the rest must have: else a column of yes and no would have an outsider."""


class Outsiders(NamedTuple):
    """Values far outside the rest of a column, and how many rows have them."""

    values: tuple[float, ...]
    rows: int
    codes: bool
    """Whether all of them look like codes for unknown."""
    low: float
    high: float
    """Of the rest."""


def outsiders(values: np.ndarray[Any, Any]) -> Outsiders | None:
    """What lies far outside at either end; `values` are the known and finite ones.

    A code such as 999 is an outsider when it lies further from the rest than the rest is wide; any other number must
    lie ten times as far.
    """
    distinct, times = np.unique(values, return_counts=True)
    low, high = 0, len(distinct)
    for peeled in range(MOST_PEELED, 0, -1):
        if high == len(distinct) and stands_apart(distinct[:high], peeled):
            high -= peeled
    for peeled in range(MOST_PEELED, 0, -1):
        if low == 0 and stands_apart(-distinct[:high][::-1], peeled):
            low += peeled
    if low == 0 and high == len(distinct):
        return None
    outside = np.r_[0:low, high : len(distinct)]
    found = tuple(float(value) for value in distinct[outside])
    return Outsiders(
        found,
        int(times[outside].sum()),
        all(is_code(value) for value in found),
        float(distinct[low]),
        float(distinct[high - 1]),
    )


def stands_apart(ascending: np.ndarray[Any, Any], peeled: int) -> bool:
    """Whether the last `peeled` values lie far above all others."""
    rest = ascending[:-peeled]
    if len(rest) < LEAST_LEVELS:
        return False
    gap, width = float(ascending[-peeled] - rest[-1]), float(rest[-1] - rest[0])
    near = all(is_code(float(abs(value))) or is_code(-float(abs(value))) for value in ascending[-peeled:])
    return gap > (1.0 if near else FAR) * width


def is_code(value: float) -> bool:
    return bool(CODE.fullmatch(number_text(value)))
