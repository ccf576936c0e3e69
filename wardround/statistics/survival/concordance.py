"""Pairs of patients that a score orders as their times do: Harrell's and Uno's C.

Harrell et al., Statistics in Medicine 1996; Uno et al., Statistics in Medicine 2011. A pair counts where the earlier of
two times is an event (a censored time equal to an event's counts as later). Pairs are formed within a site, so their
numbers add up over sites.
"""

from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.survival.life_table import share

Values = np.ndarray[Any, Any]


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
    used = (event > 0) if horizon is None else (event > 0) & (time < horizon)
    factor = np.where(used, 1.0 if weight is None else weight, 0.0)
    turn = turns_of(time, event)
    lower, equal = later_and_lower(turn, risk)
    return Pairs(float(factor @ later_than(turn)), float(factor @ lower), float(factor @ equal))


def turns_of(time: Values, event: Values) -> Values:
    """The order of times: a censored one equal to an event's comes after it; two events at one time are not compared.

    >>> turns_of(np.array([5.0, 3.0, 5.0]), np.array([0, 1, 1]))
    array([2, 0, 1])
    """
    return np.asarray(np.unique(np.column_stack([time, event <= 0]), axis=0, return_inverse=True)[1].ravel())


def later_than(turn: Values) -> Values:
    """For every patient how many come later."""
    return np.asarray(len(turn) - np.searchsorted(np.sort(turn), turn, side="right"))


def pairs_of_each(time: Values, event: Values) -> Values:
    """In how many comparable pairs every patient is, as the earlier one or as the later; each pair counts at both."""
    turn = turns_of(time, event)
    before = np.searchsorted(np.sort(turn[event > 0]), turn, side="left")
    return np.asarray(np.where(event > 0, later_than(turn), 0) + before)


def later_and_lower(turn: Values, risk: Values) -> tuple[Values, Values]:
    """For every patient how many with a higher turn have a lower risk, and how many the same.

    A turn is higher exactly if, at the highest bit in which two differ, it has a 1: so the bits are gone through, and
    among those with equal bits above, sorted by risk, the ones are counted. n log(n) steps for each of log(n) bits.
    """
    order = np.argsort(risk, kind="stable")
    turn, level = turn[order], np.unique(risk[order], return_inverse=True)[1].ravel()
    lower, equal = np.zeros(len(turn)), np.zeros(len(turn))
    for bit in range(int(turn.max(initial=0)).bit_length()):
        above = turn >> (bit + 1)
        own = np.argsort(above, kind="stable")
        ones = np.concatenate([[0], np.cumsum((turn[own] >> bit) & 1)])
        group = first_of_run(np.diff(above[own]) != 0)
        changed = (np.diff(above[own]) != 0) | (np.diff(level[own]) != 0)
        run, end = first_of_run(changed), last_of_run(changed)
        asks = ((turn[own] >> bit) & 1) == 0
        lower[own] += np.where(asks, ones[run] - ones[group], 0)
        equal[own] += np.where(asks, ones[end + 1] - ones[run], 0)
    found = np.zeros(len(turn)), np.zeros(len(turn))
    found[0][order], found[1][order] = lower, equal
    return found


def first_of_run(changed: Values) -> Values:
    """Where the run of each place begins, from where the value after a place is another.

    >>> first_of_run(np.array([False, True, False])), last_of_run(np.array([False, True, False]))
    (array([0, 0, 2, 2]), array([1, 1, 3, 3]))
    """
    starts = np.concatenate([[True], changed])
    return np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))


def last_of_run(changed: Values) -> Values:
    """Where the run of each place ends."""
    return (len(changed) - first_of_run(changed[::-1]))[::-1]


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
