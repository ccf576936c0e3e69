"""A common axis of time: which intervals all sites count in, found from a histogram that needs no agreement before.

Intervals are open on the left and closed on the right and are named by their right edges, so that with the distinct
times as edges nothing is rounded. The first edge is 0: an interval of its own for those whose follow-up is 0.
"""

import math
from typing import Any, NamedTuple

import numpy as np

Values = np.ndarray[Any, Any]

LOWEST, HIGHEST, STEPS = -10, 24, 16
GRID = 2.0 ** (np.arange(LOWEST * STEPS, HIGHEST * STEPS + 1) / STEPS)
"""From a thousandth to sixteen million of whatever unit, 16 steps a doubling."""
SLOTS = len(GRID) + 1
MOST_EDGES = 20_000


def slots_of(times: Values) -> Values:
    """In which slot of the universal histogram a time falls; the first is up to 2^-10, the last all beyond 2^24."""
    return np.searchsorted(GRID, times, side="left")


def time_counts(times: Values) -> Values:
    """How many times fall into each slot of the universal histogram."""
    return np.bincount(slots_of(times), minlength=SLOTS)


def longest_told(counts: Values) -> float:
    """An upper end of the times, at most a sixteenth of a doubling above the longest."""
    told = np.flatnonzero(counts)
    return float(GRID[min(int(told[-1]), len(GRID) - 1)]) if len(told) else 0.0


def round_edges(longest: float, bins: int) -> Values:
    """0 and then at most so many intervals of one round width (1, 2 or 5 times a power of ten) up to the longest time.

    >>> round_edges(11.2, 6).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    """
    if longest <= 0:
        return np.zeros(1)
    power = math.floor(math.log10(longest / bins))
    for digits in range(-power, -power - 3, -1):
        for factor in (1, 2, 5):
            step = factor * 10.0**-digits
            count = math.ceil(longest / step - 1e-9)
            if count <= bins:
                # Rounded, so that an edge is the very number that a table holds: 9.025 and not 9025 times 0.001.
                return np.round(np.arange(count + 1) * step, max(digits, 0))
    raise AssertionError("ten powers wider, there are always few enough")


def crowded_edges(later: Values, bins: int) -> Values:
    """At most so many edges with about as many patients between any two, from how many stay at least to each slot."""
    if not later[0]:
        return np.zeros(1)
    gone = 1 - np.append(later, 0.0) / later[0]
    upper = np.append(np.append(0.0, GRID), GRID[-1])
    return np.unique(np.interp(np.arange(1, bins) / bins, gone, upper))


def intervals_of(times: Values, edges: Values) -> Values:
    """The number of the interval of each time; len(edges) for what lies beyond the last edge.

    >>> intervals_of(np.array([0.0, 0.5, 2.0, 2.1, 9.0]), np.array([0.0, 2.0, 4.0])).tolist()
    [0, 1, 1, 2, 3]
    """
    return np.searchsorted(edges, times, side="left")


def off_edge(times: Values, edges: Values) -> Values:
    """Which times are not an edge themselves, though within the axis: counting in intervals rounds them up."""
    place = intervals_of(times, edges)
    return (place < len(edges)) & (edges[np.minimum(place, len(edges) - 1)] != times)


class Blocks(NamedTuple):
    """Patients who are told of together: the block of each, and the intervals over which a block is spread evenly."""

    own: Values
    first: Values
    last: Values
    intervals: int

    def told(self, values: Values) -> Values:
        """Sums of `values` (one row a patient) over each interval and, in the last row, over those beyond the axis."""
        sums = np.zeros((len(self.first), values.shape[1]))
        np.add.at(sums, self.own, values)
        into = np.zeros((self.intervals + 1, values.shape[1]))
        wide = np.flatnonzero(self.last > self.first)
        narrow = np.flatnonzero(self.last == self.first)
        np.add.at(into, self.first[narrow], sums[narrow])
        for one in wide:
            into[self.first[one] : self.last[one] + 1] += sums[one] / (self.last[one] - self.first[one] + 1)
        return into

    def widths(self, edges: Values) -> Values:
        """For every patient how wide a stretch of time the block spans beyond one interval."""
        last = np.minimum(self.last, self.intervals - 1)
        return (edges[last] - edges[np.minimum(self.first, last)])[self.own]


def struck_within(event: Values, place: Values, intervals: int) -> Values:
    """Events within the axis: what happens beyond it is not looked at, as if the follow-up ended there."""
    return np.where(place < intervals, event, 0.0)


def blocks_of(place: Values, event: Values, cell: int, intervals: int) -> Blocks | None:
    """Blocks in which a cell of patients, and none or a cell of events, leave; with a cell of 1 the intervals alone.

    What is told of an interval is then a part of what happened to a cell of patients at least. None where it cannot be
    done: fewer patients than a cell, or some events (of one cause, where `event` has a column for each) but fewer than
    a cell. The last few belong to the block before them, which then ends at a sixteenth of the axis; those beyond the
    axis, where they are few, leave at its end.

    >>> blocks_of(np.array([0, 1, 1, 3]), np.array([1, 1, 0, 1]), 2, 4)[:3]
    (array([0, 0, 0, 0]), array([0, 4]), array([3, 4]))
    """
    if cell <= 1:
        each = np.arange(intervals + 1)
        return Blocks(place, each, each, intervals)
    if 0 < (place >= intervals).sum() < cell:
        place = np.minimum(place, intervals - 1)
    inside = place < intervals
    causes = event if event.ndim > 1 else event[:, None]
    if len(place) < cell or not is_told(causes[inside].sum(axis=0), cell):
        return None
    counts = np.zeros((intervals, 1 + causes.shape[1]))
    np.add.at(counts, place[inside], np.column_stack([np.ones(inside.sum()), causes[inside]]))
    ends: list[int] = []
    sizes: list[Values] = []
    held = np.zeros(counts.shape[1])
    for number in range(intervals):
        held = held + counts[number]
        if held[0] >= cell and is_told(held[1:], cell):
            ends.append(number)
            sizes.append(held)
            held = np.zeros_like(held)
    if not ends:  # nobody has an event: all leave beyond the axis
        return Blocks(np.zeros(len(place), np.int64), np.array([intervals]), np.array([intervals]), intervals)
    if held[0]:
        while sizes and not (held[0] >= cell and is_told(held[1:], cell)):
            held = held + sizes.pop()
            ends.pop()
        grid = max(1, intervals // 16)
        ends.append(min(intervals - 1, -(-(int(place[inside].max()) + 1) // grid) * grid - 1))
    first = np.array([0, *(one + 1 for one in ends[:-1]), intervals])
    return Blocks(np.searchsorted(ends, place, side="left"), first, np.array([*ends, intervals]), intervals)


def is_told(events: Values, cell: int) -> bool:
    """Whether of every cause there is no event, or a cell of them."""
    return bool(((events == 0) | (events >= cell)).all())
