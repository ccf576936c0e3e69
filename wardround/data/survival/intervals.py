"""What a follow-up time says about intervals between horizons, in words: the labels of a task of survival.

With horizons h1 < h2 < ... the classes are "by h1", "h1 to h2", ..., "after" the last. An event at time t is in the
first interval that ends at t or later. Whoever was censored at c is known to be free of the event at every horizon up
to c, and may have it in any interval after these; beyond the last horizon there is nothing left to tell. Censoring
counts as later than an event at the same time, as in a Kaplan-Meier curve.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Values = np.ndarray[Any, Any]


class SurvivalOutcome(NamedTuple):
    """Which column tells how long a patient was followed up, and which whether the event ended it."""

    time: str
    event: str
    horizons: tuple[float, ...]
    event_is: str = ""
    """The value of the event column that means the event; empty: 1, true or yes."""


def number_text(value: float) -> str:
    """As a person writes it: 365, not 365.0."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def interval_names(horizons: Sequence[float]) -> tuple[str, ...]:
    """The classes.

    >>> interval_names((365.0, 730.0))
    ('by 365', '365 to 730', 'after 730')
    """
    ends = [number_text(one) for one in horizons]
    between = [f"{low} to {high}" for low, high in pairwise(ends)]
    return (f"by {ends[0]}", *between, f"after {ends[-1]}")


def open_names(horizons: Sequence[float]) -> tuple[str, ...]:
    """The labels of those censored before the last horizon, by the last horizon at which they were seen.

    >>> open_names((365.0, 730.0))
    ('unknown', 'unknown after 365')
    """
    return ("unknown", *(f"unknown after {number_text(one)}" for one in horizons[:-1]))


def label_names(horizons: Sequence[float]) -> tuple[str, ...]:
    """All labels: those of the classes, then those of censored patients, in the order of their numbers."""
    return (*interval_names(horizons), *open_names(horizons))


def label_numbers(time: Values, event: Values, horizons: Sequence[float]) -> Values:
    """The number of every patient's label, -1 where time or event is not known.

    Class k is k, and (classes + k) says that the event is in class k or a later one.
    """
    edges = np.asarray(horizons, np.float64)
    classes, known = len(edges) + 1, np.isfinite(time) & np.isfinite(event) & (time >= 0)
    times = np.where(known, time, 0.0)
    struck = np.searchsorted(edges, times, side="left")
    free = np.searchsorted(edges, times, side="right")
    censored = np.where(free < len(edges), classes + free, len(edges))
    return np.where(known, np.where(event > 0, struck, censored), -1)
