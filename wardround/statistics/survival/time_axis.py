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


def blocks_of(place: Values, event: Values, cell: int, intervals: int) -> Blocks | None:
    """Blocks in which a cell of patients, and none or a cell of events, leave; with a cell of 1 the intervals alone.

    What is told of an interval is then a part of what happened to a cell of patients at least. None where it cannot be
    done: fewer patients than a cell, or some events (of one cause, where `event` has a column for each) but fewer than a
    cell. The last few, and those beyond the axis where
    they are few, belong to the block before them, which then ends at a sixteenth of the axis.

    >>> blocks_of(np.array([0, 1, 1, 3]), np.array([1, 1, 0, 1]), 2, 4)[:3]
    (array([0, 0, 0, 0]), array([0, 4]), array([3, 4]))
    """
    if cell <= 1:
        each = np.arange(intervals + 1)
        return Blocks(place, each, each, intervals)
    inside = place < intervals
    few = int((~inside).sum()) < cell
    causes = event.reshape(len(place), -1)
    total = causes[inside].sum(axis=0)
    if len(place) < cell or ((total > 0) & (total < cell)).any():
        return None
    left = np.bincount(place[inside], minlength=intervals)
    failed = np.zeros((intervals, causes.shape[1]))
    np.add.at(failed, place[inside], causes[inside])
    ends: list[int] = []
    held, struck = 0, np.zeros(causes.shape[1])
    for number in range(intervals):
        held, struck = held + int(left[number]), struck + failed[number]
        if held >= cell and ((struck == 0) | (struck >= cell)).all():
            ends.append(number)
            held, struck = 0, np.zeros(causes.shape[1])
    if not ends:  # nobody has an event: all leave beyond the axis
        return Blocks(np.zeros(len(place), np.int64), np.array([intervals]), np.array([intervals]), intervals)
    if held or (few and not inside.all()):
        grid = max(1, intervals // 16)
        longest = int(place.max()) if held and inside.all() else intervals
        ends[-1] = min(intervals - 1, -(-(longest + 1) // grid) * grid - 1)
    first = np.array([0, *(one + 1 for one in ends[:-1]), intervals])
    own = np.searchsorted(np.array(ends), place, side="left")
    return Blocks(np.where(few, np.minimum(own, len(ends) - 1), own), first, np.array([*ends, intervals]), intervals)
