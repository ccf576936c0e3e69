"""Mann and Whitney's test from counts in bins: values in one bin are ties.

Without the bins each pair of one bin would be decided one way or the other, so the true U lies within half the number
of such pairs of the one found: the error of the binning is told exactly.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

Vector = np.ndarray[Any, Any]


class Ranks(NamedTuple):
    """`chance` that a patient of the second group has the larger value (ties half), and between what it lies."""

    u: float
    chance: float
    lowest: float
    highest: float
    z: float
    p: float
    p_least: float
    p_most: float


def rank_sums(
    first: Vector, second: Vector, ranges: Sequence[tuple[float, float]], apart: tuple[Vector, Vector]
) -> Ranks:
    """Of counts in the same bins, lowest first; `apart` are the counts of both groups in the `ranges` really known."""
    n, m = float(first.sum()), float(second.sum())
    below = np.cumsum(first) - first
    u = float((second * below).sum()) + float((first * second).sum()) / 2
    total, together = n + m, first + second
    spread = n * m / 12 * ((total + 1) - float((together**3 - together).sum()) / (total * (total - 1)))
    z, p = normal(u, n * m, spread)
    lowest, highest = undecided(ranges, *apart)
    untied = n * m * (total + 1) / 12
    ends = [normal(one, n * m, untied)[1] for one in (lowest, highest)]
    crosses = lowest <= n * m / 2 <= highest
    most = 1.0 if crosses and lowest < highest else max(p, *ends)
    return Ranks(u, u / (n * m), lowest / (n * m), highest / (n * m), z, p, min(p, *ends), most)


def undecided(ranges: Sequence[tuple[float, float]], first: Vector, second: Vector) -> tuple[float, float]:
    """U if every pair whose ranges overlap went against the second group, and if it went for it."""
    low, high = np.array(ranges).T
    surely = high[:, None] <= low[None, :]  # the first group's range ends before the second's begins
    perhaps = low[:, None] < high[None, :]
    return float(first @ surely @ second), float(first @ perhaps @ second)


def normal(u: float, pairs: float, variance: float) -> tuple[float, float]:
    """z and p by the normal approximation, without a continuity correction."""
    if variance <= 0:
        return 0.0, 1.0
    z = (u - pairs / 2) / math.sqrt(variance)
    return z, float(2 * stats.norm.sf(abs(z)))
