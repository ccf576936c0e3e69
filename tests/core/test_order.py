"""The order of rows: a permutation a site, uniform, and a function of nothing but seed, round, pass, site and row."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from wardround.core.order import mix, mix_bits, visiting_order

GOLDEN, WORD = 0x9E3779B97F4A7C15, 2**64
Numbers = np.ndarray[Any, Any]


def of_one(seed: int, number: int, site: int, rows: int, passes: int = 1) -> Numbers:
    return visiting_order(seed, number, np.array([site]), np.array([rows]), passes)


def finalized(value: int) -> int:
    """splitmix64's finalizer in Python's own integers."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return value ^ (value >> 31)


def test_mix_gives_the_published_stream_of_splitmix64() -> None:
    # The first three outputs of splitmix64 seeded with 1234567: state += GOLDEN, then the finalizer.
    states = np.array([(1234567 + k * GOLDEN) % WORD for k in (1, 2, 3)], np.uint64)
    assert mix(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_equals_a_plain_sort_by_the_hash() -> None:
    seed, number, sites, rows = 278, 5, [3, 11, 4], [9, 0, 20]
    order = visiting_order(seed, number, np.array(sites), np.array(rows), 2)
    for visit in range(2):
        wanted = []
        for site, count in zip(sites, rows, strict=True):
            start = finalized((finalized((site * GOLDEN + seed) % WORD) + number * 1_000_003 + visit) % WORD)
            noise = [finalized((start + row * GOLDEN) % WORD) for row in range(count)]
            wanted += sorted(range(count), key=noise.__getitem__)
        assert order[visit].tolist() == wanted


def test_a_permutation_for_each_site_and_nothing_for_empty_ones() -> None:
    rows = np.array([0, 5, 1, 0, 130, 64, 0])
    order = visiting_order(1, 2, np.arange(7), rows, 3)
    assert order.shape == (3, 200)
    for visit in order:
        pieces = np.split(visit, np.cumsum(rows)[:-1])
        assert [sorted(piece.tolist()) for piece in pieces] == [list(range(count)) for count in rows]


@pytest.mark.parametrize("rows", [[], [0], [0, 0, 0]])
def test_nobody_has_rows(rows: list[int]) -> None:
    assert visiting_order(1, 1, np.arange(len(rows)), np.array(rows, np.int64), 2).shape == (2, 0)


def test_rounds_passes_sites_and_seeds_all_shuffle_anew() -> None:
    # 2 x 2 x 2 x 2 orders of 40 rows: any two alike by chance has probability below 120 / 40!.
    cases = itertools.product((0, 1), (1, 2), (0, 1))
    orders = [tuple(visit) for seed, number, site in cases for visit in of_one(seed, number, site, 40, 2).tolist()]
    assert len(set(orders)) == 16


def test_does_not_depend_on_the_others_in_the_cohort() -> None:
    alone = of_one(9, 4, 6, 33, 2)
    for sites, rows in (([6, 2], [33, 50]), ([1, 6], [3000, 33]), ([8, 0, 6, 5], [1, 0, 33, 7])):
        together = visiting_order(9, 4, np.array(sites), np.array(rows), 2)
        begin = sum(rows[: sites.index(6)])
        assert np.array_equal(together[:, begin : begin + 33], alone)


def test_does_not_depend_on_the_cohort_even_where_hashes_nearly_tie() -> None:
    # Among 1,024 sites, 34 of the 64 bits of a hash have room beside the numbers of site and row; 2^39 pairs of rows
    # over 2^34 values give about 2^39 / 2^34 = 32 ties, which the bits left out must settle as they do for one site.
    rows = 2**20
    together = visiting_order(1, 1, np.arange(1024), np.array([rows] + [1] * 1023), 1)
    assert np.array_equal(together[:, :rows], of_one(1, 1, 0, rows))


@pytest.mark.parametrize(
    "rows",
    [[100] * 40, [1024] * 3, [0, 1, 2, 3, 4, 5, 1023, 1024, 1025, 3000, 64, 65, 63, 0, 7, 1]],
    ids=["all alike", "all alike and large", "of every kind"],
)
def test_sites_sorted_side_by_side_have_the_orders_they_have_alone(rows: list[int]) -> None:
    """Small ones are sorted as lines of a table, large ones each for itself, a site alone in one plain sort."""
    sites = np.arange(len(rows))[::-1]
    together = np.split(visiting_order(5, 3, sites, np.array(rows), 2), np.cumsum(rows)[:-1], axis=1)
    for site, count, order in zip(sites, rows, together, strict=True):
        assert np.array_equal(order, of_one(5, 3, int(site), count, 2))


def test_every_row_comes_equally_often_at_every_place() -> None:
    many = 6000
    order = visiting_order(4, 1, np.arange(many), np.full(many, 10), 1)[0].reshape(many, 10)
    counts = np.stack([np.bincount(place, minlength=10) for place in order.T])
    # For random permutations of n, (n - 1) / n of this sum is a chi-square with (n - 1)^2 degrees of freedom: each row
    # has one place, so that the cells of a row or a column are not independent. Here 81.
    statistic = ((counts - many / 10) ** 2 / (many / 10)).sum()
    # 126.1 is exceeded once in a thousand.
    assert statistic * 9 / 10 < 126.1


def test_all_orders_of_four_rows_are_equally_frequent() -> None:
    rounds = 4800
    seen = [tuple(of_one(7, number, 3, 4)[0].tolist()) for number in range(rounds)]
    counts = np.array([seen.count(order) for order in itertools.permutations(range(4))])
    # Chi-square with 23 degrees of freedom: 49.7 is exceeded once in a thousand.
    assert ((counts - rounds / 24) ** 2 / (rounds / 24)).sum() < 49.7


@pytest.mark.parametrize("axis", ["rounds", "passes", "sites", "seeds"])
def test_first_rows_of_neighbours_are_independent(axis: str) -> None:
    """Which of five rows comes first, against which comes first next time: 25 cells, all alike."""
    many = 5000
    if axis == "passes":
        first = [of_one(2, number, 1, 5, 2)[:, 0] for number in range(many)]
    elif axis == "rounds":
        first = [np.array([of_one(2, n, 1, 5)[0, 0], of_one(2, n + 1, 1, 5)[0, 0]]) for n in range(0, 2 * many, 2)]
    elif axis == "seeds":
        first = [np.array([of_one(s, 1, 1, 5)[0, 0], of_one(s + 1, 1, 1, 5)[0, 0]]) for s in range(0, 2 * many, 2)]
    else:
        order = visiting_order(2, 1, np.arange(2 * many), np.full(2 * many, 5), 1)[0]
        first = list(order.reshape(many, 2, 5)[:, :, 0])
    cells = np.zeros((5, 5))
    for one, other in first:
        cells[one, other] += 1
    # Chi-square with 24 degrees of freedom: 51.2 is exceeded once in a thousand.
    assert ((cells - many / 25) ** 2 / (many / 25)).sum() < 51.2


def test_the_hash_of_compiled_code_is_the_finalizer_of_murmur3() -> None:
    """In plain integers, as Appleby's reference (fmix32) writes it."""
    for number in (0, 1, 0x9E3779B9, 0xFFFFFFFF):
        h = number
        h ^= h >> 16
        h = h * 0x85EBCA6B % 2**32
        h ^= h >> 13
        h = h * 0xC2B2AE35 % 2**32
        h ^= h >> 16
        assert int(mix_bits(jnp.uint32(number))) == h
