"""How well scores order patients: the area under the ROC curve and its standard error, from counts by score.

DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated ROC curves", Biometrics 1988. From
counts in fine cells the area differs from that of the scores themselves by less than half the chance that a case and a
control share a cell.
"""

import math
from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]
CELLS = 512


class Area(NamedTuple):
    """NaN where one of the classes is absent."""

    value: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, on the scale of log-odds, so that it stays between 0 and 1."""
        if not 0 < self.value < 1:
            return self.value, self.value
        middle, step = math.log(self.value / (1 - self.value)), self.error / (self.value * (1 - self.value))
        return tuple(1 / (1 + math.exp(-(middle + side * 1.959964 * step))) for side in (-1, 1))  # type: ignore[return-value]


def area_of_counts(cases: Numbers, controls: Numbers) -> Area:
    """From how many cases and controls there are in each cell, in ascending order of the score.

    >>> area_of_counts(np.array([0, 1, 1]), np.array([1, 1, 0])).value
    0.875
    """
    cases, controls = (np.maximum(np.asarray(own, np.float64), 0.0) for own in (cases, controls))
    many, other = cases.sum(), controls.sum()
    if many <= 0 or other <= 0:
        return Area(math.nan, math.nan)
    below = (np.cumsum(controls) - controls / 2) / other
    above = (many - np.cumsum(cases) + cases / 2) / many
    area = float((cases * below).sum() / many)
    spread = [
        float((count * (place - area) ** 2).sum()) / max(whole - 1, 1.0) / whole
        for count, place, whole in ((cases, below, many), (controls, above, other))
    ]
    return Area(area, math.sqrt(sum(spread)))


def area_of_scores(scores: Numbers, label: Numbers) -> Area:
    distinct, at = np.unique(scores, return_inverse=True)
    return area_of_counts(*(np.bincount(at[label == side], minlength=len(distinct)) for side in (1, 0)))


def score_cells(chance: Numbers) -> Numbers:
    """The cell of every probability, even on the scale of log-odds from -8 to 8."""
    safe = np.clip(np.asarray(chance, np.float64), 1e-9, 1 - 1e-9)
    odds = np.log(safe / (1 - safe))
    return np.clip((odds + 8) / 16 * CELLS, 0, CELLS - 1).astype(np.int64)
