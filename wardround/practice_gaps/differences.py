"""Differences between two models on the same patients, with intervals that hold for all comparisons together."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Values = np.ndarray[Any, Any]
Measure = Callable[[Values, Values, Values], Values]
ENOUGH_BEYOND = 25
"""Draws that lie outside an interval at each end, at least, so that its ends are not single draws."""
AT_ONCE = 2_000_000
LEAST_ENTROPY = 0.5


class Difference(NamedTuple):
    """Local less other: the value, its interval, and the two-sided p-value of the draws."""

    value: float
    low: float
    high: float
    p_value: float

    @property
    def is_above(self) -> bool:
        return self.low > 0

    @property
    def is_below(self) -> bool:
        return self.high < 0


def draws_needed(resamples: int, level: float, comparisons: int) -> int:
    """More than asked for where intervals are wide: the ends of a 99.9 % interval need thousands of draws."""
    return max(resamples, int(np.ceil(2 * ENOUGH_BEYOND * comparisons / level)))


def bootstrap_counts(rng: np.random.Generator, patients: int, resamples: int) -> Values:
    """How often each patient is drawn, (resamples, patients)."""
    return rng.multinomial(patients, np.full(patients, 1 / patients), size=resamples).astype(np.float64)


def paired_difference(
    measure: Measure,
    pairs: Sequence[tuple[Values, Values]],
    outcome: Values,
    rng: np.random.Generator,
    *,
    resamples: int,
    level: float,
) -> Difference:
    """Of (local, other) scores of the same patients; several pairs, from several trainings, are drawn from alike.

    `level` is what the interval may miss, already divided by the number of comparisons.
    """
    each = int(np.ceil(resamples / len(pairs)))
    one = np.ones((1, len(outcome)))
    value = float(np.mean([(measure(a, outcome, one) - measure(b, outcome, one))[0] for a, b in pairs]))
    draws = []
    size = max(1, AT_ONCE // max(1, len(outcome)))
    for local, other in pairs:
        for first in range(0, each, size):
            counts = bootstrap_counts(rng, len(outcome), min(size, each - first))
            draws.append(measure(local, outcome, counts) - measure(other, outcome, counts))
    found = np.concatenate(draws)
    found = found[np.isfinite(found)]
    if not len(found) or not np.isfinite(value):
        return Difference(value, float("nan"), float("nan"), 1.0)
    low, high = np.quantile(found, [level / 2, 1 - level / 2])
    tail = min((1 + (found <= 0).sum()) / (1 + len(found)), (1 + (found >= 0).sum()) / (1 + len(found)))
    return Difference(value, float(low), float(high), float(min(1.0, 2 * tail)))


def gap_verdict(performance: Difference, entropy: Difference, other_entropy: float) -> str:
    """ "performance" or "entropy" say what speaks against a gap (P and E of the thesis' table 4.2); "gap" is a star.

    The other model is better; or it is not worse, and its scores are more consistent. One that says nearly the same of
    everybody (an `other_entropy` below half a bit) has learned nothing, and its consistency is none.
    """
    if performance.is_below:
        return "gap"
    if performance.is_above:
        return "performance"
    return "gap" if entropy.is_above and other_entropy >= LEAST_ENTROPY else "entropy"
