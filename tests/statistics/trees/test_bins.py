import numpy as np

from wardround.statistics.trees.bins import (
    FINEST,
    Feature,
    bin_numbers,
    count_cells,
    finer_edges,
    first_edges,
    join_cells,
    layout_of,
)


def agreed_edges(values, bins, least=1, passes=3):
    edges = first_edges()
    for _ in range(passes - 1):
        edges = finer_edges(edges, count_cells(values, edges), bins)
        assert len(edges) <= FINEST + 1
    return join_cells(edges, count_cells(values, edges), bins, least)


def test_whole_numbers_get_a_bin_each_where_there_is_room():
    # 21 ages from 30 to 50: 20 edges, each just between two of them or at the upper one.
    ages = np.repeat(np.arange(30.0, 51.0), 40)
    edges = agreed_edges(ages, 32)
    assert len(edges) == 20
    np.testing.assert_array_equal(np.searchsorted(edges, np.arange(30.0, 51.0), side="right"), np.arange(21))


def test_bins_hold_like_numbers_of_patients():
    values = np.random.default_rng(0).lognormal(2, 1, 50_000)
    edges = agreed_edges(values, 32)
    counts = np.bincount(np.searchsorted(edges, values, side="right"))
    assert 24 <= len(counts) <= 32
    # Cells are counted to a quarter of a bin, so a bin is at most about half too large.
    assert counts.max() < 1.7 * len(values) / len(counts)


def test_a_value_that_most_patients_share_does_not_take_the_bins_of_the_others():
    # 9 of 10 gained nothing; the others are spread over 90 amounts, of which 32 bins must tell most apart.
    amounts = np.arange(1000.0, 10_000.0, 100.0)
    values = np.concatenate([np.zeros(8100), np.repeat(amounts, 10)])
    edges = agreed_edges(values, 32)
    assert len(edges) > 24
    assert np.searchsorted(edges, 0.0, side="right") == 0
    assert (edges > 0).all()


def test_no_bin_holds_fewer_patients_than_a_leaf_must():
    values = np.concatenate([np.repeat(np.arange(10.0), 50), [99.0, 100.0, -70.0]])
    edges = agreed_edges(values, 64, least=20)
    assert np.bincount(np.searchsorted(edges, values, side="right")).min() >= 20


def test_a_column_without_values_has_one_bin():
    assert len(agreed_edges(np.full(50, np.nan), 16)) == 0


def test_codes_by_hand():
    # A value at an edge is above it; what is unknown, or infinite, has the last place.
    feature = Feature("x", np.array([1.0, 2.0]))
    values = np.array([0.5, 1.0, 1.9, 2.0, np.nan, np.inf])
    assert bin_numbers(values, feature, 7).tolist() == [0, 1, 1, 2, 7, 7]


def test_the_layout_has_the_bins_of_each_column_and_one_for_gaps():
    layout = layout_of([Feature("x", np.array([1.0, 2.0])), Feature("w", np.empty(0), ("a", "b"), True)])
    assert layout.width == 4
    assert layout.total == 7
    assert layout.used.astype(int).tolist() == [[1, 1, 1, 1], [1, 1, 0, 1]]
