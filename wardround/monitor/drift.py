"""How far the values of a column have moved: population stability index, Kolmogorov-Smirnov distance, intervals.

Both compare counts over the same cells: tenths of the reference (or categories), and a cell for what is missing. The
index is the symmetrised Kullback-Leibler divergence (Siddiqi, "Credit Risk Scorecards", 2006; above 0.1 is commonly
called a moderate shift, above 0.25 a large one), with half a patient added to every cell. Its interval is a bootstrap
from which that part is taken off which chance alone adds. The distance is the largest gap between the shares
at or below a cell; its interval follows from Massart's bound ("The tight constant in the Dvoretzky-Kiefer-Wolfowitz
inequality", 1990) for both samples, so it holds for any distribution.
"""

from dataclasses import dataclass

import numpy as np

from wardround.evaluate.rows import Numbers

RESAMPLES = 400
MODERATE, LARGE = 0.1, 0.25


@dataclass(frozen=True)
class Distance:
    """A distance with its 95 % interval, as far as there is one."""

    value: float | None
    low: float | None = None
    high: float | None = None


def stability_indices(reference: Numbers, counts: Numbers) -> Numbers:
    """Of counts of shape (..., cells); cells that nobody is in, here or there, do not count."""
    there = (reference.sum(axis=tuple(range(reference.ndim - 1))) + counts.sum(axis=tuple(range(counts.ndim - 1)))) > 0
    shares = [
        (part[..., there] + 0.5) / (part[..., there] + 0.5).sum(axis=-1, keepdims=True) for part in (reference, counts)
    ]
    return np.asarray(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum(axis=-1))


def stability_index(reference: Numbers, counts: Numbers, *, seed: int = 0) -> Distance:
    reference, counts = np.asarray(reference), np.asarray(counts)
    if not reference.sum() or not counts.sum():
        return Distance(None)
    value = float(stability_indices(reference, counts))
    rng = np.random.default_rng((seed, 0x951))
    drawn = [rng.multinomial(part.sum(), part / part.sum(), size=RESAMPLES) for part in (reference, counts)]
    draws = stability_indices(*drawn)
    # Chance adds to the index, and as much once more to that of every draw: both are taken off.
    low, high = np.quantile(draws, [0.025, 0.975]) - 2 * (draws.mean() - value)
    return Distance(value, float(np.clip(low, 0.0, value)), float(max(high, value)))


def kolmogorov_distance(reference: Numbers, counts: Numbers, level: float = 0.95) -> Distance:
    """The last cell, what is missing, is left out."""
    before, after = (np.asarray(part)[:-1] for part in (reference, counts))
    sizes = before.sum(), after.sum()
    if not min(sizes):
        return Distance(None)
    value = float(np.abs(np.cumsum(before) / sizes[0] - np.cumsum(after) / sizes[1]).max())
    # Each sample's curve leaves its band with half of what the level leaves over.
    room = sum(float(np.sqrt(np.log(4 / (1 - level)) / (2 * size))) for size in sizes)
    return Distance(value, max(0.0, value - room), min(1.0, value + room))
