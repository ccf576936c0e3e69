import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.statistics.disclosure.counts import bounds_of, open_cells, tellable_rest, told_counts

TABLES = st.integers(2, 4).flatmap(
    lambda rows: st.integers(2, 4).flatmap(
        lambda columns: st.lists(st.integers(0, 40), min_size=rows * columns, max_size=rows * columns).map(
            lambda values: np.array(values).reshape(rows, columns)
        )
    )
)


def test_with_cells_of_one_all_is_told():
    assert open_cells(np.array([[1, 0], [5, 2]]), 1).all()


def test_a_table_without_small_cells_is_told_and_zeros_tell_nothing_more():
    table = np.array([[0, 12], [30, 10]])
    np.testing.assert_array_equal(told_counts(table, 10), table)


def test_one_small_cell_of_four_closes_all_four():
    # 3 would follow from its row's total and 20, or its column's and 30; and these from theirs and 40.
    assert not open_cells(np.array([[3, 20], [30, 40]]), 10).any()


def test_of_a_row_of_groups_the_smallest_other_one_goes_with_the_small_one():
    np.testing.assert_array_equal(open_cells(np.array([4, 50, 12, 60]), 10), [False, True, False, True])


def test_what_is_kept_back_of_fewer_than_a_cell_is_not_told():
    assert tellable_rest(9, 10) == 0
    assert tellable_rest(10, 10) == 10


@given(TABLES, st.integers(2, 10))
def test_nobody_who_knows_all_totals_can_tell_a_small_cell_to_within_a_cell(table, cell):
    is_open = open_cells(table, cell)
    assert is_open[table == 0].all()
    told = table[is_open & (table > 0)]
    assert (told >= cell).all()
    for row, column in np.argwhere(~is_open & (table > 0) & (table < cell)):
        low, high = bounds_of(table, is_open, (row, column))
        # Where everything is kept back there is nothing left to close: then totals alone decide.
        assert high - low >= cell or not (is_open & (table > 0)).any()


@pytest.mark.parametrize("place", [(0, 0), (1, 2)])
def test_bounds_are_those_of_the_totals(place):
    # Nothing is open: a cell lies between 0 and the smaller of its totals, less what must go there for want of room.
    table = np.array([[3, 7, 10], [8, 5, 2]])
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    low, high = bounds_of(table, np.zeros((2, 3), bool), place)
    assert high == min(rows[place[0]], columns[place[1]])
    assert low == max(0, rows[place[0]] + columns[place[1]] - table.sum())


@given(TABLES)
def test_larger_cells_tell_nothing_that_smaller_ones_keep_back(table):
    # A site answers in its own cells and in doublings of them; together the answers tell what the smallest tells.
    assert not (open_cells(table, 20) & ~open_cells(table, 10)).any()
