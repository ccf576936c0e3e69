"""Sums that few patients make up are not told: from such a sum their values could be guessed.

Three rules, each on the distances from the median, so that they hold for any unit and for flags: fewer patients than a
cell differ from the value that most have; the two largest distances are over 85 % of all ((n, k) rule); all but the
two largest together are less than 10 % of the largest (p % rule: who knows the second could work out the first).
Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapter 4.2.
"""

from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]
LARGEST, SHARE, PERCENT = 2, 0.85, 0.10
ROWS_PER_PARAMETER = 3
"""Patients for every number that a regression or a covariance has a row of; fewer, and rows could be solved for."""


def is_dominated(values: Matrix, cell: int) -> bool:
    """Whether few patients make up what a column's sums tell; never with a smallest cell of 1.

    >>> is_dominated(np.array([0.0] * 50 + [1.0] * 4), 10), is_dominated(np.array([0.0] * 50 + [1.0] * 14), 10)
    (True, False)
    """
    if cell <= 1 or not len(values):
        return False
    # A value that more than half have is the one in the middle, so nothing has to be sorted.
    middle = np.partition(values, len(values) // 2)[len(values) // 2]
    same = int(np.count_nonzero(values == middle))
    if same == len(values):
        return False
    if same > len(values) / 2 and len(values) - same < cell:
        return True
    away = np.abs(values - middle)
    largest = np.partition(away, len(away) - LARGEST)[-LARGEST:] if len(away) > LARGEST else away
    total, few = float(away.sum()), float(largest.sum())
    return few > SHARE * total or total - few < PERCENT * float(largest.max())


def is_tellable(values: Matrix, cell: int, parameters: int = 1) -> bool:
    """Whether sums over these rows (one column a variable) may leave: enough patients, and none that dominate.

    >>> is_tellable(np.zeros((9, 2)), 10), is_tellable(np.zeros((11, 4)), 10, parameters=4)
    (False, False)
    """
    if cell <= 1:
        return len(values) > 0
    if len(values) < max(cell, ROWS_PER_PARAMETER * parameters):
        return False
    return not any(is_dominated(column, cell) for column in np.asarray(values).T)
