"""Counts of values between edges that close in on nobody.

All bins lie on one grid that nobody can shift: [i 2^k, (i + 1) 2^k) for whole i and k. So the bins of all questions, of
all studies, contain one another or are apart, and their differences are bins of the same grid. A bin is halved only if
either half holds, of every group, nobody or at least `smallest_cell` patients, and only if the bin itself is the half
of one that may be halved: the bins that remain (the leaves) hold 0 or at least a cell. Their counts are exact. Before,
the outermost values move inward until a cell of patients is at or beyond either end, lest one patient far out keeps all
bins wide. Hierarchical histograms as in Hay et al. (VLDB 2010), with thresholds in place of noise.
"""

import math
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, Any]
TOP = 64
"""Between -2^64 and 2^64 all values lie; what is beyond counts as lying at the end."""
LOWEST = -40
"""Values within 2^-40 of 0 count as 0 when the range is found."""


class GridBins(NamedTuple):
    """`amount` bins of width 2^`level`, the first beginning at `first` 2^`level`."""

    level: int
    first: int
    amount: int

    @property
    def width(self) -> float:
        return 2.0**self.level

    @property
    def edges(self) -> Vector:
        return (self.first + np.arange(self.amount + 1)) * self.width


def bins_around(low: float, high: float, count: int) -> GridBins:
    """So many bins, as narrow as they can be to cover from low to high.

    >>> bins_around(31.0, 77.0, 16)
    GridBins(level=2, first=7, amount=16)
    """
    level = math.ceil(math.log2(max(high - low, 2.0**LOWEST) / count))
    while math.floor(high / 2.0**level) - math.floor(low / 2.0**level) >= count:
        level += 1
    return GridBins(level, math.floor(low / 2.0**level), count)


def within_cells(values: Vector, cell: int) -> Vector:
    """The outermost values moved inward, so that at least a cell of patients is at or beyond either end; or none.

    >>> within_cells(np.array([1.0, 40.0, 50.0, 60.0, 99.0]), 2), within_cells(np.array([1.0, 2.0, 3.0]), 2)
    (array([40., 40., 50., 60., 60.]), array([], dtype=float64))
    """
    if len(values) < (2 * cell if cell > 1 else 1):
        return values[:0]
    ordered = np.sort(values)
    return np.clip(values, ordered[cell - 1], ordered[len(values) - cell])


def power_of(value: float) -> int:
    """Which power of two a value has, as a place: 0 stands in the middle, negative values below.

    >>> power_of(0.0), power_of(5.0) - power_of(3.0), power_of(-1.0) + power_of(1.0)
    (105, 1, 210)
    """
    middle = TOP - LOWEST + 1
    if abs(value) < 2.0**LOWEST:
        return middle
    away = min(math.floor(math.log2(abs(value))), TOP - 1) - LOWEST + 1
    return middle + away if value > 0 else middle - away


POWERS = 2 * (TOP - LOWEST + 1) + 1


def end_of(place: int, *, high: bool) -> float:
    """The lower or upper end of what has this place.

    >>> end_of(power_of(5.0), high=False), end_of(power_of(5.0), high=True), end_of(power_of(-5.0), high=False)
    (4.0, 8.0, -8.0)
    """
    away = place - (TOP - LOWEST + 1)
    if away == 0:
        return 0.0
    power = abs(away) - 1 + LOWEST
    outer = (away > 0) == high
    return math.copysign(2.0 ** (power + outer), away)


def leaf_counts(values: Vector, groups: Vector, amount: int, bins: GridBins, depth: int, cell: int) -> Vector:
    """(depth + 1, groups, bins): patients of leaves that are 2^0, ..., 2^depth bins wide, at the leaf's first bin.

    Leaves that are wider still, or outside the bins, are not told.
    """
    told = np.zeros((depth + 1, amount, bins.amount))
    limit = 2.0**TOP
    place = np.floor(np.clip(values, -limit, np.nextafter(limit, 0)) / bins.width)
    if not len(place):
        return told
    node, where = np.unique(place, return_inverse=True)
    held = np.zeros((amount, len(node)))
    np.add.at(held, (groups, where), 1.0)
    safe = safe_levels(node, held, depth, TOP + 1 - bins.level, cell)
    leaf = np.where(safe.any(axis=0), safe.argmax(axis=0), depth + 1)
    for level in range(depth + 1):
        start = np.floor(node / 2.0**level) * 2.0**level
        # A leaf that begins before the first bin, as wide ones may, is put down there: the values are within.
        at = np.maximum(start - bins.first, 0)
        mine = (leaf == level) & (node >= bins.first) & (node < bins.first + bins.amount)
        for group in range(amount):
            np.add.at(told[level, group], at[mine].astype(np.int64), held[group, mine])
    return told


def safe_levels(node: Vector, held: Vector, depth: int, levels: int, cell: int) -> Vector:
    """(depth + 1, nodes): whether the bin 2^level wide around each node, and every one above it, may be told."""
    if cell <= 1:
        return np.ones((depth + 1, len(node)), bool)
    local = np.ones((depth + 1, len(node)), bool)
    above = np.ones(len(node), bool)
    up, counts, of = node, held, np.arange(len(node))
    for level in range(max(levels, depth + 1)):
        other = up + 1 - 2 * (up % 2)  # the other half of the bin above
        found = np.searchsorted(up, other).clip(max=len(up) - 1)
        beside = np.where(up[found] == other, counts[:, found], 0.0)
        small: Vector = ((counts > 0) & (counts < cell)) | ((beside > 0) & (beside < cell))
        fine = ~np.asarray(small.any(axis=0))[of]
        if level <= depth:
            local[level] = fine
        else:
            above &= fine
        up, into = np.unique(np.floor(up / 2), return_inverse=True)
        merged = np.zeros((len(counts), len(up)))
        for own, added in zip(merged, counts, strict=True):
            np.add.at(own, into, added)
        counts, of = merged, into[of]
    return np.logical_and.accumulate(np.vstack([local, above])[::-1], axis=0)[::-1][:-1]


class Leaf(NamedTuple):
    """Patients (one number a group) of whom no more is known than that they lie from `low` to `high`."""

    low: float
    high: float
    counts: Vector


def leaves_of(told: Vector, bins: GridBins) -> list[Leaf]:
    """The leaves of all sites together, from the sum of their counts."""
    found = []
    for level, counts in enumerate(told):
        for place in np.flatnonzero(counts.sum(axis=0)):
            start = math.floor((bins.first + int(place)) / 2**level) * 2**level
            first, last = max(start, bins.first), min(start + 2**level, bins.first + bins.amount)
            found.append(Leaf(first * bins.width, last * bins.width, counts[:, place]))
    return found


def spread_counts(told: Vector, bins: GridBins) -> Vector:
    """(groups, bins): the counts of wide leaves shared out evenly over their bins."""
    spread = np.zeros(told.shape[1:])
    for low, high, counts in leaves_of(told, bins):
        first, last = (round(one / bins.width) - bins.first for one in (low, high))
        spread[:, first:last] += counts[:, None] / (last - first)
    return spread
