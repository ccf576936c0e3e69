"""Votes of rules of which no two differ by a few patients: what a site learns from rules that others choose.

Whoever chooses the rules could choose two that differ by one record, or one that fires on one record only, and read
that record from what the site finds different. So a rule that fires on almost the records of an earlier one, of nobody
or of everybody, counts as firing on just those.
"""

from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
BLOCK = 1 << 16
"""Records that are compared at a time."""


def as_groups(votes: Values, cell: int) -> Values:
    """(records, rules): any two rules fire on the same records, or differ by a cell of them at least.

    >>> fired = np.array([[1, 1, 0, 1], [1, 1, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], bool)
    >>> as_groups(fired, 2).astype(int).tolist()
    [[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]
    """
    if cell <= 1 or not votes.size:
        return votes
    ends = np.tile([False, True], (len(votes), 1))
    every = np.concatenate([ends, votes], axis=1)
    distances = differences(every)
    kept: list[int] = []
    places = np.zeros(every.shape[1], int)
    for rule in range(every.shape[1]):
        near = distances[rule, kept]
        if rule > 1 and near.min() < cell:
            places[rule] = kept[int(near.argmin())]
        else:
            places[rule] = rule
            kept.append(rule)
    return np.asarray(every[:, places[2:]])


def differences(votes: Values) -> Values:
    """On how many records any two rules do not both fire or both abstain."""
    both = np.zeros((votes.shape[1], votes.shape[1]))
    for first in range(0, len(votes), BLOCK):
        part = votes[first : first + BLOCK].astype(np.float32)
        both += part.T @ part
    each = np.diag(both)
    return np.asarray(np.rint(each[:, None] + each[None, :] - 2 * both), int)
