"""Where the values of a column lie, found by sums: first by powers of two, then by bins that are occupied."""

from typing import Any

import numpy as np

from wardround.statistics.disclosure.grid import POWERS, GridBins, bins_around, end_of, leaves_of, power_of

Vector = np.ndarray[Any, Any]
DEPTH = 8
"""Halvings between the widest bins that are told and the finest."""


def told_powers(values: Vector) -> Vector:
    """(2, powers): a 1 at the power of two of the lowest value, and at that of the highest; of values within cells."""
    told = np.zeros((2, POWERS))
    if len(values):
        told[0, power_of(float(values.min()))] = 1.0
        told[1, power_of(float(values.max()))] = 1.0
    return told


def first_bins(powers: Vector, count: int) -> GridBins | None:
    """Bins over all that the sites told; none where nobody told anything."""
    if not powers.any():
        return None
    low = end_of(int(np.flatnonzero(powers[0]).min()), high=False)
    high = end_of(int(np.flatnonzero(powers[1]).max()), high=True)
    return bins_around(low, np.nextafter(high, -np.inf) if high > low else high, count)


def narrower_bins(told: Vector, bins: GridBins) -> GridBins | None:
    """Finer bins over what is occupied; none where they would not be finer."""
    leaves = leaves_of(told, bins)
    if not leaves:
        return None
    low, high = min(leaf.low for leaf in leaves), max(leaf.high for leaf in leaves)
    if high - low < 2.0**-30 * max(abs(low), abs(high)):  # there may be one value only
        return None
    finer = bins_around(low, np.nextafter(high, -np.inf), bins.amount)
    return finer if finer.level < bins.level else None
