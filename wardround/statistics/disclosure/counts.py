"""Which counts of a table may be told: none below the smallest cell, and none from which such a one can be worked out.

Whoever reads the table is taken to know all row and column totals (other questions tell them). A cell from 1 to
`smallest_cell` - 1 is kept back (primary), and further cells with it (secondary) until no total gives it away: in every
row and column the kept back cells are none, or at least two that hold a cell of patients together. An audit then asks
by linear programming between what bounds each small cell lies for such a reader; while these are narrower than a
cell, one more is kept back. Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapters 4.3 and 4.4.
"""

from typing import Any

import numpy as np
from scipy.optimize import linprog

Table = np.ndarray[Any, Any]
Open = np.ndarray[Any, np.dtype[np.bool_]]


def open_cells(table: Table, cell: int) -> Open:
    """Which cells of a table of one or two dimensions may be told; those that are 0 stay 0 and tell nothing.

    >>> open_cells(np.array([[40, 30, 3], [20, 50, 60]]), 10).tolist()
    [[True, False, False], [True, False, False]]
    """
    counts = np.atleast_2d(np.asarray(table, np.int64))
    # What half the cell keeps back is kept back: else two questions with cells of 10 and 20, between whose secondary
    # cells the choice fell differently, would tell together what neither does.
    is_open = np.atleast_2d(open_cells(table, cell // 2)) if cell > 3 else np.ones(counts.shape, bool)
    is_open = is_open & ~((counts > 0) & (counts < cell))
    if is_open.all():
        return is_open.reshape(np.shape(table))
    while True:
        closed = close_lines(counts, is_open, cell)
        weak = None if closed else narrowest(counts, is_open, cell)
        if weak is not None:
            closed = close_smallest(counts, is_open, weak[0], None) or close_smallest(counts, is_open, None, weak[1])
            closed = closed or close_smallest(counts, is_open, None, None)
        if not closed:
            return is_open.reshape(np.shape(table))


def told_counts(table: Table, cell: int) -> Table:
    """The table as it leaves: what is kept back is 0."""
    return np.where(open_cells(table, cell), table, 0)


def tellable_rest(patients: float, cell: int) -> Table:
    """How many were kept back, if that tells of nobody: a site all of whose cells are small says 0."""
    return np.array(float(patients if patients >= cell else 0))


def close_lines(counts: Table, is_open: Open, cell: int) -> bool:
    """Close one cell more in every row and column whose total gives a small cell away; whether there was one."""
    closed = False
    one_row = len(counts) == 1
    for axis in (0, 1):
        for line in range(counts.shape[axis]):
            if axis == 1 and one_row:  # a single row of counts has no column totals: each would be the cell itself
                continue
            mine = counts[line] if axis == 0 else counts[:, line]
            hidden = (~(is_open[line] if axis == 0 else is_open[:, line])) & (mine > 0)
            if not hidden.any() or (hidden.sum() > 1 and mine[hidden].sum() >= cell):
                continue
            closed |= close_smallest(counts, is_open, line if axis == 0 else None, line if axis == 1 else None)
    return closed


def close_smallest(counts: Table, is_open: Open, row: int | None, column: int | None) -> bool:
    """Close the smallest cell that is open and not 0, in a row, a column or anywhere; False where there is none."""
    within = np.zeros(counts.shape, bool)
    within[slice(None) if row is None else row, slice(None) if column is None else column] = True
    candidates = within & is_open & (counts > 0)
    if not candidates.any():
        return False
    where = np.unravel_index(np.argmin(np.where(candidates, counts, np.iinfo(np.int64).max)), counts.shape)
    is_open[where] = False
    return True


def narrowest(counts: Table, is_open: Open, cell: int) -> tuple[int, int] | None:
    """A small cell whose value a reader of all totals knows to within less than a cell; none where there is none."""
    hidden = np.argwhere(~is_open & (counts > 0))
    for row, column in hidden:
        if counts[row, column] >= cell:
            continue
        low, high = bounds_of(counts, is_open, (int(row), int(column)))
        if high - low < cell and (is_open & (counts > 0)).any():
            return int(row), int(column)
    return None


def bounds_of(counts: Table, is_open: Open, where: tuple[int, int]) -> tuple[float, float]:
    """Between what values a kept back cell lies for somebody who knows the open cells and every total.

    >>> bounds_of(np.array([[3, 7], [8, 5]]), np.zeros((2, 2), bool), (0, 0))
    (0.0, 10.0)
    """
    hidden = [(int(row), int(column)) for row, column in np.argwhere(~is_open)]
    # A row of counts alone: its total is known, and no column has one.
    lines = [[row == line for row, _ in hidden] for line in range(counts.shape[0])]
    left = [counts[line][~is_open[line]].sum() for line in range(counts.shape[0])]
    if len(counts) > 1:
        lines += [[column == line for _, column in hidden] for line in range(counts.shape[1])]
        left += [counts[:, line][~is_open[:, line]].sum() for line in range(counts.shape[1])]
    aim = np.array([float(one == where) for one in hidden])
    ends = [linprog(sign * aim, A_eq=np.array(lines, float), b_eq=np.array(left, float)).fun for sign in (1, -1)]
    return float(round(ends[0], 9)), float(round(-ends[1], 9))
