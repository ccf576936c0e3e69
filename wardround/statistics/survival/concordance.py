"""Pairs of patients that a score orders as their times do: Harrell's and Uno's C.

Harrell et al., Statistics in Medicine 1996; Uno et al., Statistics in Medicine 2011. A pair counts where the earlier of
two times is an event (a censored time equal to an event's counts as later). Pairs are formed within a site, so their
numbers add up over sites.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.survival.life_table import share

Values = np.ndarray[Any, Any]
ROWS = 512
"""Events compared at a time: memory stays at this many times the patients."""


class Pairs(NamedTuple):
    """How much weight comparable pairs have, and how much of it is ordered right or tied."""

    comparable: float
    right: float
    tied: float

    @property
    def c_index(self) -> float | None:
        """The share ordered right, ties counted half; none without a comparable pair."""
        return (self.right + self.tied / 2) / self.comparable if self.comparable > 0 else None


def comparable_pairs(
    time: Values, event: Values, risk: Values, *, weight: Values | None = None, horizon: float | None = None
) -> Pairs:
    """A higher `risk` should mean an earlier event; `weight` is that of a pair, by its earlier patient."""
    used = event > 0
    if horizon is not None:
        used &= time < horizon
    comparable = right = tied = 0.0
    places = np.flatnonzero(used)
    for first in range(0, len(places), ROWS):
        own = places[first : first + ROWS]
        later = (time[None, :] > time[own, None]) | ((time[None, :] == time[own, None]) & (event[None, :] == 0))
        factor = np.ones(len(own)) if weight is None else weight[own]
        comparable += float(factor @ later.sum(axis=1))
        right += float(factor @ (later & (risk[None, :] < risk[own, None])).sum(axis=1))
        tied += float(factor @ (later & (risk[None, :] == risk[own, None])).sum(axis=1))
    return Pairs(comparable, right, tied)


class Censoring(NamedTuple):
    """The chance G of not having been censored yet: falls at `times` to `left`."""

    times: Values
    left: Values

    def just_before(self, at: Values) -> Values:
        """G(t-)."""
        place = np.searchsorted(self.times, at, side="left")
        return np.concatenate([[1.0], self.left])[place]

    def at(self, at: Values) -> Values:
        """G(t)."""
        place = np.searchsorted(self.times, at, side="right")
        return np.concatenate([[1.0], self.left])[place]


def censoring_of(time: Values, event: Values) -> Censoring:
    """Kaplan-Meier of the censoring: those with an event at the same time left before."""
    times = np.unique(time)
    place = np.searchsorted(times, time)
    censored = np.bincount(place, weights=event == 0, minlength=len(times))
    struck = np.bincount(place, weights=event > 0, minlength=len(times))
    at_risk = len(time) - np.concatenate([[0.0], np.cumsum(censored + struck)[:-1]])
    return Censoring(times, np.cumprod(1 - share(censored, at_risk - struck)))


def uno_pairs(time: Values, event: Values, risk: Values, censoring: Censoring, horizon: float | None = None) -> Pairs:
    """Pairs weighted by 1 / G(t-)^2, so that the answer does not depend on who happened to be censored."""
    chance = censoring.just_before(time)
    weight = np.divide(1.0, chance**2, out=np.zeros_like(chance), where=chance > 0)
    return comparable_pairs(time, event, risk, weight=weight, horizon=horizon)
