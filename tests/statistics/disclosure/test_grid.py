import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.statistics.disclosure.grid import (
    TOP,
    GridBins,
    bins_around,
    end_of,
    leaf_counts,
    leaves_of,
    power_of,
    spread_counts,
    within_cells,
)


def test_the_leaves_by_hand():
    # Bins of width 1 from 0; cells of 2. 0 and 1 hold 2 and 2: halves of [0, 2), told. 2 and 3 hold 1 and 3: not
    # halved, told as [2, 4) with 4. [4, 8) holds 3 of which 4 holds 1 and 6 two: not halved, [4, 8) with 3.
    values = np.array([0.0, 0.5, 1.0, 1.2, 2.5, 3.0, 3.1, 3.9, 4.0, 6.0, 6.5])
    told = leaf_counts(values, np.zeros(11, int), 1, GridBins(0, 0, 8), 3, 2)
    leaves = [(low, high, counts.tolist()) for low, high, counts in leaves_of(told, GridBins(0, 0, 8))]
    assert sorted(leaves) == [(0, 1, [2]), (1, 2, [2]), (2, 4, [4]), (4, 8, [3])]
    np.testing.assert_allclose(spread_counts(told, GridBins(0, 0, 8))[0], [2, 2, 2, 2, 0.75, 0.75, 0.75, 0.75])


def test_a_group_that_is_small_in_a_half_keeps_all_groups_whole():
    # Group 0 has 3 and 3 in the halves of [0, 2), group 1 has 1 and 5.
    values = np.array([0.0] * 3 + [1.0] * 3 + [0.0] + [1.0] * 5)
    groups = np.array([0] * 6 + [1] * 6)
    told = leaf_counts(values, groups, 2, GridBins(0, 0, 2), 1, 2)
    assert not told[0].any()
    np.testing.assert_array_equal(told[1], [[6, 0], [6, 0]])


def test_with_cells_of_one_every_bin_is_told():
    values = np.random.default_rng(0).normal(size=50) * 3
    bins = bins_around(values.min(), values.max(), 16)
    told = leaf_counts(values, np.zeros(50, int), 1, bins, 4, 1)
    np.testing.assert_array_equal(told[0, 0], np.histogram(values, bins.edges)[0])
    assert not told[1:].any()


VALUES = st.lists(st.floats(-100, 100), min_size=1, max_size=80).map(np.array)


@given(VALUES, st.integers(2, 6), st.integers(-3, 4))
def test_what_is_told_at_all_levels_has_no_small_difference(values, cell, level):
    """Ask for bins of every width: whatever a reader subtracts, what is left is nobody or at least a cell."""
    nobody = np.zeros(len(values), int)
    counts = {}
    for wide in (level, level + 1, level + 2):
        bins = GridBins(wide, -(2 ** (8 - wide)) if wide < 8 else -1, 2 ** (9 - wide))
        for low, high, held in leaves_of(leaf_counts(values, nobody, 1, bins, 0, cell), bins):
            counts[low, high] = held[0]
    assert all(count >= cell for count in counts.values())
    for (low, high), count in counts.items():
        inside = [n for (a, b), n in counts.items() if low <= a and b <= high and (a, b) != (low, high)]
        halves = {key: n for key, n in counts.items() if key[1] - key[0] == (high - low) / 2 and low <= key[0] < high}
        if halves:
            rest = count - sum(halves.values())
            assert rest == 0 or rest >= cell, (inside, halves)


def test_the_outermost_move_inward():
    np.testing.assert_array_equal(within_cells(np.array([5.0, 1.0, 2.0, 9.0, 4.0]), 2), [5, 2, 2, 5, 4])
    assert not len(within_cells(np.arange(9.0), 5))


@pytest.mark.parametrize("value", [0.0, 1.0, 3.7, -0.2, 1e9, -5e-4, 2.0**63])
def test_a_power_of_two_and_its_ends(value):
    place = power_of(value)
    assert end_of(place, high=False) <= value <= end_of(place, high=True)
    assert abs(value) < 2.0**TOP
