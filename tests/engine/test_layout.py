"""Where sites sit: everybody once, like sizes together, every row in the order of its visit."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wardround.core.order import visiting_order
from wardround.engine.layout import (
    MOST_LANES,
    PIECE_BYTES,
    Shape,
    assign_seats,
    capacity_for,
    power_of_two,
    shape_for,
    templates,
)

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=40)
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))


def roomy(sites: int, devices: int, pieces: int, lanes: int) -> Shape:
    """A shape with room for all sites."""
    return Shape(devices, pieces, -(-sites // (devices * pieces * lanes)), lanes)


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1000, 1024)])
def test_powers_of_two(number: int, expected: int) -> None:
    assert power_of_two(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    # Up to 8 every number is its own step; then eighths of the next power of two: 2 up to 16, 128 up to 1,024.
    [(1, 1), (7, 7), (8, 8), (9, 10), (16, 16), (17, 20), (1000, 1024), (800, 896), (1025, 1280)],
)
def test_capacities_grow_in_eighths(number: int, expected: int) -> None:
    assert capacity_for(number) == expected


@given(st.integers(1, 10**7))
def test_a_capacity_holds_the_rows_and_wastes_little(number: int) -> None:
    assert number <= capacity_for(number) <= max(number * 1.25, number + 1)


@given(st.integers(1, 5000), st.integers(0, 10**6), st.integers(1, 4000), st.integers(1, 10**6), st.integers(1, 8))
def test_every_shape_has_a_seat_for_everybody(
    cohort: int, rows: int, row_bytes: int, parameters: int, devices: int
) -> None:
    shape = shape_for(cohort, rows, row_bytes, parameters, devices)
    assert shape.slots >= cohort
    assert 1 <= shape.devices <= min(devices, cohort)
    assert 1 <= shape.lanes <= MOST_LANES
    assert shape.pieces >= 1


def test_small_work_stays_on_one_device_and_large_models_get_fewer_lanes() -> None:
    """Four hospitals of 160 rows and 4 parameters are 2,560 row-parameters: no second device is worth it."""
    assert shape_for(4, 640, 12, 4, 2) == Shape(1, 1, 1, 4)
    assert shape_for(100, 100_000, 256, 5_000, 2).devices == 2
    # 17 sites in lanes of 8 to 16: two blocks of 9 leave one seat empty, nothing leaves fewer.
    assert shape_for(17, 100, 12, 4, 1) == Shape(1, 1, 2, 9)
    # 100 sites, 4,290 parameters: 7 lanes fit the cache best, but 10 blocks of 5 a device leave no seat empty.
    assert shape_for(100, 10_000, 256, 4_290, 2) == Shape(2, 1, 10, 5)
    # A model of 4 MB fills the cache of a core on its own.
    assert shape_for(100, 100_000, 256, 10**6, 2).lanes == 1


def test_a_large_cohort_is_cut_into_pieces() -> None:
    """Rows of ten times the bytes of a piece are about ten pieces, however many sites there are."""
    small = shape_for(1000, PIECE_BYTES // 64, 64, 100, 1)
    large = shape_for(10_000, 10 * PIECE_BYTES // 64, 64, 100, 1)
    assert small.pieces == 1
    assert 9 <= large.pieces <= 11
    assert large.blocks * large.lanes <= 2 * small.blocks * small.lanes


@given(SIZES, SHAPES)
def test_everybody_has_a_seat_of_his_own_and_like_sizes_sit_together(
    sizes: list[int], room: tuple[int, int, int]
) -> None:
    rows = np.array(sizes)
    shape = roomy(len(rows), *room)
    piece, slot = assign_seats(rows, shape)
    assert len({(int(p), int(s)) for p, s in zip(piece, slot, strict=True)}) == len(rows)
    assert piece.min() >= 0
    assert piece.max() < shape.pieces
    assert slot.min() >= 0
    assert slot.max() < shape.devices * shape.blocks * shape.lanes
    # Blocks never overlap in size: sorted by their longest, each is no longer than the shortest of the one before.
    blocks: dict[tuple[int, int], list[int]] = {}
    for p, s, n in zip(piece, slot, rows, strict=True):
        blocks.setdefault((int(p), int(s) // shape.lanes), []).append(int(n))
    ordered = sorted(blocks.values(), key=lambda block: (-max(block), -min(block)))
    assert all(min(one) >= max(other) for one, other in pairwise(ordered))


@settings(deadline=None)
@given(SIZES, SHAPES, st.integers(1, 3))
def test_every_row_lies_where_the_round_will_look_for_it(
    sizes: list[int], room: tuple[int, int, int], passes: int
) -> None:
    """The k-th row that a site visits in a pass lies at first + pass · longest + k of its lane."""
    rows = np.array(sizes)
    starts = np.cumsum(rows) - rows + 5
    cohort = np.arange(len(rows)) * 3 + 2
    shape = roomy(len(rows), *room)
    population = 1000
    seen = []
    for one in templates(shape, cohort, rows, starts, population=population, passes=passes):
        seating = one.seating
        taken = seating.site != population
        members, counts = seating.site[taken], seating.rows[taken]
        tables = one.seat(visiting_order(7, 3, members, counts, passes), one.places + 3).table
        assert tables.shape == (shape.devices, one.places + 3, shape.lanes)
        alone = {
            int(site): visiting_order(7, 3, np.array([site]), np.array([n]), passes)
            for site, n in zip(members, counts, strict=True)
        }
        for device, block, lane in np.ndindex(shape.devices, shape.blocks, shape.lanes):
            site, count = int(seating.site[device, block, lane]), int(seating.rows[device, block, lane])
            if site == population:
                assert count == 0, "an empty seat has no rows"
                continue
            index = (site - 2) // 3
            seen.append(index)
            assert count == rows[index]
            assert seating.longest[device, block] == seating.rows[device, block].max() >= count
            for visit in range(passes):
                begin = seating.first[device, block] + visit * seating.longest[device, block]
                here = tables[device][begin : begin + count, lane]
                # What the site would visit if it were alone: a real hospital computes the same.
                assert (here - starts[index]).tolist() == alone[site][visit].tolist()
    assert sorted(seen) == list(range(len(rows)))
