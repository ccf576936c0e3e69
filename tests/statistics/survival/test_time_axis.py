"""Edges that all sites can count in, and blocks that hide who left when."""

import numpy as np
import pytest

from wardround.statistics.survival.time_axis import (
    blocks_of,
    crowded_edges,
    intervals_of,
    longest_told,
    off_edge,
    round_edges,
    time_counts,
)


@pytest.mark.parametrize(
    ("longest", "bins", "step", "count"), [(1022, 200, 10, 104), (1022, 2000, 1, 1023), (10.3, 11000, 0.001, 10301)]
)
def test_edges_are_round_and_few_enough(longest, bins, step, count):
    edges = round_edges(longest, bins)
    assert len(edges) == count
    assert edges[1] == step
    assert edges[-1] >= longest


def test_edges_are_the_numbers_that_a_table_holds():
    # 9025 times 0.001 is 9.025000000000002 or 9.024999999999999 in floating point; a table says 9.025.
    assert 9.025 in round_edges(10.0, 11000).tolist()
    assert not off_edge(np.array([9.025, 0.0, 3.3]), round_edges(10.0, 11000)).any()


def test_the_longest_time_is_found_from_a_histogram_of_any_unit():
    for longest in (0.004, 3.0, 4000.0):
        told = longest_told(time_counts(np.array([longest / 3, longest])))
        assert longest <= told <= longest * 2 ** (1 / 16)
    assert longest_told(time_counts(np.zeros(0))) == 0


def test_crowded_edges_halve_the_patients():
    times = np.r_[np.linspace(1, 2, 100), np.linspace(100, 200, 100)]
    later = np.cumsum(time_counts(times)[::-1])[::-1]
    edge = crowded_edges(later, 2)
    assert len(edge) == 1
    assert 1.9 < edge[0] < 100


@pytest.mark.parametrize("cell", [2, 5, 9])
def test_no_block_tells_of_fewer_than_a_cell(cell):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        # Interval 20 is beyond the axis; events are rare in one half of the trials.
        place, event = np.minimum(rng.integers(0, 25, 40), 20), (rng.random(40) < (0.5, 0.2)[seed % 2]).astype(float)
        blocks = blocks_of(place, event, cell, 20)
        if blocks is None:
            assert 0 < event[place < 20].sum() < cell or 0 < event.sum() < cell
            continue
        for one in np.unique(blocks.own):
            inside = blocks.first[one] < 20
            assert (blocks.own == one).sum() >= cell
            assert not inside or event[blocks.own == one].sum() in (0, *range(cell, 41))
        told = blocks.told(np.column_stack([np.ones(40), event]))
        np.testing.assert_allclose(told[:, 0].sum(), 40)
        assert (blocks.first[1:] == blocks.last[:-1] + 1).all() or blocks.last[-1] == 20


def test_a_cell_of_one_is_the_interval_itself():
    edges = np.array([0.0, 1.0, 2.0])
    place = intervals_of(np.array([0.0, 0.5, 2.0, 7.0]), edges)
    told = blocks_of(place, np.ones(4), 1, 3).told(np.ones((4, 1)))
    assert told[:, 0].tolist() == [1, 1, 1, 1]  # the last is beyond the axis
    assert blocks_of(np.array([0, 1]), np.ones(2), 3, 2) is None
