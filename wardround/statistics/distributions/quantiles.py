"""Quantiles by repeated counting: each exchange counts within the bin where the quantile lies.

The quantile of p is the smallest value that at least a share p of the patients does not exceed (the inverse of the
distribution function), of which there is one whatever the bins.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.disclosure.grid import GridBins, leaves_of, spread_counts

Vector = np.ndarray[Any, Any]


class Bracket(NamedTuple):
    """The quantile lies from `low` to `high`; `rank` is its place among the `inside` patients there, from 1.

    `value` is the best guess. Open as long as counting within can narrow it down.
    """

    low: float
    high: float
    rank: float
    inside: float
    value: float
    is_open: bool

    def block(self, count: int) -> GridBins:
        """The bins to count in next."""
        level = round(math.log2((self.high - self.low) / count))
        return GridBins(level, round(self.low / 2.0**level), count)


def bracket_of(told: Vector, bins: GridBins, share: float) -> Bracket:
    """From the leaves of all sites; closed from the start where leaves of different width overlap at the quantile."""
    leaves = leaves_of(told, bins)
    total = float(told.sum())
    rank = math.ceil(share * total - 1e-9)
    # Lowest if all patients lay at the low ends of their leaves, highest if they lay at the high ends.
    low = at_rank([(leaf.low, float(leaf.counts.sum())) for leaf in leaves], rank)
    high = at_rank([(leaf.high, float(leaf.counts.sum())) for leaf in leaves], rank)
    spread = spread_counts(told, bins)[0]
    below = np.cumsum(spread)
    place = int(np.searchsorted(below, rank - 1e-9))
    before = float(below[place] - spread[place])
    value = float(bins.edges[place] + bins.width * min(1.0, (rank - before) / max(spread[place], 1e-300)))
    sharp = high - low <= bins.width and all(
        leaf.high - leaf.low <= bins.width for leaf in leaves if leaf.low < high and leaf.high > low
    )
    return Bracket(low, high, rank - before, float(spread[place]), value, sharp)


def at_rank(places: list[tuple[float, float]], rank: float) -> float:
    """The place of the patient of this rank."""
    ordered = sorted(places)
    below = np.cumsum([count for _, count in ordered])
    return ordered[int(np.searchsorted(below, rank - 1e-9))][0]


def zoom(bracket: Bracket, block: GridBins, counts: Vector) -> Bracket:
    """The bracket after counting in the bins of the block; closed where some inside may not be told."""
    if round(float(counts.sum())) != round(bracket.inside):
        return bracket._replace(is_open=False)
    below = np.cumsum(counts)
    place = int(np.searchsorted(below, bracket.rank - 1e-9))
    low, high = (float(one) for one in block.edges[place : place + 2])
    # Values at a bin's low end are the rule where numbers are rounded: the low end is the guess.
    return Bracket(low, high, bracket.rank - float(below[place] - counts[place]), float(counts[place]), low, True)
