"""What may be told of a site's patients: numbers so coarse that no single patient, and no small group, shows in them.

Counts leave as whole cells, rounded down to multiples of `smallest_cell`, totals as well: what a group below a cell
holds is told as 0 and cannot be worked out from the total, since every count leaves `smallest_cell` possibilities open
(only a table of at least so many groups, each just one patient short of its next cell, is narrowed to one). A patient
more or less changes nothing, or one count by a whole cell. Values are clipped where fewer patients than a cell lie far
out, and told on a grid on which one patient's whole weight is at most two cell-ths of a step; steps are powers of two,
so that the grid itself tells of nobody. The same numbers always give the same answer: asking twice gains nothing.
With `smallest_cell` = 1 everything is exact.

Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapters 4 (magnitudes) and 5 (rounding of counts).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Values = np.ndarray[Any, Any]
Offset = Callable[[str], float]
"""For the name of a figure, how it is rounded (see `on_grid`)."""
BINS = 64
"""Steps of the grid between a column's low and high end."""
FAR = 1.5
"""Interquartile ranges beyond a quartile from which a value is far out (Tukey's fences)."""


def in_cells(counts: Any, cell: int) -> Any:
    """Rounded down to whole cells.

    >>> in_cells(19, 10), in_cells(9, 10), in_cells(7, 1)
    (10, 0, 7)
    """
    return counts - counts % cell


def step_above(least: float) -> float:
    """The smallest power of two that is at least so large; 0 for 0."""
    return 2.0 ** math.ceil(math.log2(least)) if least > 0 else 0.0


def on_grid(value: float, step: float, offset: float = 0.5) -> float:
    """The step below or above: above where what is beyond the lower one is more than 1 - `offset` of a step.

    With offsets drawn evenly from 0 to 1 it is unbiased, and goes up with the probability of that part.

    >>> on_grid(0.3, 0.25), on_grid(0.3, 0.25, 0.9)
    (0.25, 0.5)
    """
    if step <= 0 or not math.isfinite(value / step):
        return value
    nearest = round(value / step) if offset == 0.5 else math.floor(value / step + offset)
    return nearest * step


def coarse_share(value: float, patients: float, offset: float = 0.5) -> float:
    """A share of so many patients, on a grid on which one of them makes at most half a step.

    >>> coarse_share(0.83, 100), coarse_share(0.83, 10)
    (0.84375, 0.75)
    """
    return on_grid(value, step_above(2 / patients), offset)


class Coarse(NamedTuple):
    """Of the values of one column, clipped: their mean and variance, each on its grid."""

    mean: float
    variance: float


def coarse_moments(ordered: Values, cell: int) -> Coarse:
    """From the known values in ascending order; nothing where they are fewer than a cell."""
    if len(ordered) < cell:
        return Coarse(0.0, 0.0)
    values = np.clip(ordered, *fences(ordered, cell))
    mean, variance = float(values.mean()), float(values.var())
    reach = float(np.abs(values - mean).max())
    if reach <= 1e-12 * abs(mean):  # all alike, but for rounding
        return Coarse(mean, 0.0)
    step = step_above(cell / 2 * reach**2 / len(values))
    # A column that varies is never told to be constant: its values would be left as large as they are.
    return Coarse(on_grid(mean, step_above(cell / 2 * reach / len(values))), max(on_grid(variance, step), step / 2))


def fences(ordered: Values, cell: int) -> tuple[float, float]:
    """Between what values count as they are: beyond lie fewer patients than a cell, or such as are far out."""
    count = len(ordered)
    last = min(cell - 1, (count - 1) // 2)
    first, third = ordered[(count - 1) // 4], ordered[count - 1 - (count - 1) // 4]
    room = FAR * (third - first)
    return float(min(ordered[last], first - room)), float(max(ordered[count - 1 - last], third + room))


class Ends(NamedTuple):
    """Where a column's values lie, with at least a cell of patients at or beyond either end, on a grid."""

    low: float
    high: float
    step: float


def coarse_ends(ordered: Values, cell: int) -> Ends | None:
    """From the known values in ascending order; none where two cells of patients are not there."""
    count = len(ordered)
    if count < 2 * cell:
        return None
    low, high = float(ordered[cell - 1]), float(ordered[count - cell])
    if low == high:
        return Ends(low, high, 0.0) if np.count_nonzero(ordered == low) >= cell else None
    step = step_above((high - low) / BINS)
    return Ends(math.floor(low / step) * step, math.ceil(high / step) * step, step)
