"""Where the rows of a federation lie, told by hand and by the names written into the rows themselves."""

from typing import Any

import numpy as np
import pytest

from wardround.core.contracts import Task
from wardround.core.federation import PARTS, Federation, NumberedSites, assemble

Three = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
COUNTS = {"va": (3, 1, 2), "closed": (0, 0, 0), "basel": (2, 0, 1), "test only": (0, 0, 2)}


def rows(site: int, part: int, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows that say where they belong: 100 times the site, 10 times the part, and their number."""
    numbers = 100 * site + 10 * part + np.arange(count)
    return np.stack([numbers, -numbers], axis=1).astype(float), numbers % 2


@pytest.fixture
def federation() -> Federation:
    parts: list[tuple[str, Three]] = [
        (name, [rows(site, part, count) for part, count in enumerate(counts)])
        for site, (name, counts) in enumerate(COUNTS.items())
    ]
    return assemble(parts, Task((2,), ("no", "yes")), ("age", "minus age"))


def test_rows_lie_site_after_site_and_part_after_part(federation: Federation) -> None:
    assert federation.x[:, 0].tolist() == [0, 1, 2, 10, 20, 21, 200, 201, 220, 320, 321]
    assert federation.first.tolist() == [0, 6, 6, 9]
    assert federation.counts.tolist() == [list(counts) for counts in COUNTS.values()]
    assert (federation.x.dtype, federation.y.dtype) == (np.float32, np.int32)
    assert federation.y.tolist() == [0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1]
    assert (tuple(federation.sites), federation.features) == (tuple(COUNTS), ("age", "minus age"))


@pytest.mark.parametrize(
    ("part", "first", "count", "wanted"),
    [
        ("train", [0, 6, 6, 9], [3, 0, 2, 0], [0, 1, 2, 200, 201]),
        ("validation", [3, 6, 8, 9], [1, 0, 0, 0], [10]),
        ("test", [4, 6, 8, 9], [2, 0, 1, 2], [20, 21, 220, 320, 321]),
    ],
)
def test_parts_by_hand(
    federation: Federation, part: str, first: list[int], count: list[int], wanted: list[int]
) -> None:
    starts, counts = federation.part(part)
    assert (starts.tolist(), counts.tolist()) == (first, count)
    assert federation.x[federation.rows_of(part), 0].tolist() == wanted


def test_every_row_is_in_exactly_one_part(federation: Federation) -> None:
    everything = np.concatenate([federation.rows_of(part) for part in PARTS])
    assert sorted(everything.tolist()) == list(range(11))


def test_pooled_rows_keep_their_part_their_label_and_their_group(federation: Federation) -> None:
    grouped = Federation(**{**vars(federation), "groups": {"sex": federation.x[:, 0] + 0.5}})
    pooled = grouped.pool()
    assert tuple(pooled.sites) == ("all",)
    assert pooled.counts.tolist() == [[5, 1, 5]]
    for part in PARTS:
        here, there = pooled.rows_of(part), grouped.rows_of(part)
        assert np.array_equal(pooled.x[here], grouped.x[there])
        assert np.array_equal(pooled.y[here], grouped.y[there])
        assert np.array_equal(pooled.groups["sex"][here], grouped.x[there, 0] + 0.5)
    assert (pooled.task, pooled.features) == (grouped.task, grouped.features)
    assert grouped.x[:, 0].tolist() == federation.x[:, 0].tolist()


def test_bytes_stay_bytes_and_a_regression_has_real_targets() -> None:
    empty = np.zeros((0, 2, 2), np.uint8), np.zeros(0)
    images = assemble([("va", [(np.full((1, 2, 2), 255, np.uint8), np.array([2.5])), empty, empty])], Task((2, 2)))
    assert images.x.dtype == np.uint8
    assert (images.y.dtype, images.y.tolist()) == (np.float32, [2.5])
    assert images.rows_of("test").tolist() == []


def test_numbered_sites_are_a_sequence_without_strings() -> None:
    sites = NumberedSites("client", 1_000_000)
    assert len(sites) == 1_000_000
    assert (sites[0], sites[999_999], sites[-1]) == ("client-0", "client-999999", "client-999999")
    assert sites[3:9:2] == ["client-3", "client-5", "client-7"]
    assert sites[-2:] == ["client-999998", "client-999999"]
    assert list(NumberedSites("ward", 2)) == ["ward-0", "ward-1"]
    assert "ward-1" in NumberedSites("ward", 2)
    assert NumberedSites("ward", 12).index("ward-11") == 11
    for outside in (1_000_000, -1_000_001):
        with pytest.raises(IndexError):
            sites[outside]


def test_only_one_part_without_a_copy(ragged) -> None:
    held_out = ragged.select_part("test")
    assert held_out.x is ragged.x
    assert held_out.part("train")[1].tolist() == ragged.part("test")[1].tolist()
    assert held_out.rows_of("train").tolist() == ragged.rows_of("test").tolist()
    assert not held_out.counts[:, 1:].any()
