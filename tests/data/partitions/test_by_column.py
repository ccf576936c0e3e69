"""By column: the age groups of the case study, quantile bins, packed texts, and everything that cannot be done."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.by_column import by_column

AGES = [0, 5, 20, 21, 30, 40, 41, 60, 80]


def pool(**columns: object) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    frame = pd.DataFrame(columns)
    return frame, pd.Series(["a", "b"] * len(frame), name="y").iloc[: len(frame)]


def split(partition: object, data: tuple[pd.DataFrame, "pd.Series[str]"], seed: int = 0) -> list[list[int]]:
    return [part.tolist() for part in partition.split(*data, np.random.default_rng(seed))]  # type: ignore[attr-defined]


def test_strict_edges_are_the_age_groups_0_to_20_21_to_40_and_over() -> None:
    parts = split(by_column(column="age", edges=(21, 41)), pool(age=AGES))
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_some_lets_two_sites_share_the_young_while_the_third_has_all_the_old() -> None:
    parts = split(by_column(column="age", edges=(41,), mode="some", sites=3), pool(age=AGES))
    assert parts[2] == [6, 7, 8]
    assert sorted(parts[0] + parts[1]) == [0, 1, 2, 3, 4, 5]
    assert len(parts[0]) == len(parts[1]) == 3
    others = {tuple(split(by_column(column="age", edges=(41,), mode="some"), pool(age=AGES), s)[0]) for s in range(9)}
    assert len(others) > 1, "who shares with whom must be left to chance"


def test_numbers_without_edges_are_cut_into_bins_of_equal_size() -> None:
    ages = np.random.default_rng(0).permutation(100)
    parts = split(by_column(column="age", sites=5), pool(age=ages))
    assert [sorted(ages[part]) for part in parts] == [list(range(20 * i, 20 * i + 20)) for i in range(5)]


def test_some_without_edges_gives_the_shared_group_the_room_of_all_who_share_it() -> None:
    ages = np.arange(90)
    parts = split(by_column(column="age", sites=3, mode="some"), pool(age=ages))
    assert sorted(parts[0] + parts[1]) == list(range(60))  # two thirds for two of three sites
    assert parts[2] == list(range(60, 90))


def test_few_numbers_and_texts_go_value_by_value() -> None:
    assert split(by_column(column="k"), pool(k=[3, 1, 2, 1])) == [[1, 3], [2], [0]]
    assert split(by_column(column="t"), pool(t=["x", "z", "x", "y", "y", "y"])) == [[3, 4, 5], [0, 2], [1]]


def test_more_texts_than_sites_are_packed_evenly() -> None:
    # Counts a 5, b 4, c 3, d 2: a and d to the one (7), b and c to the other (7).
    texts = list("aaaaabbbbcccdd")
    parts = split(by_column(column="t", sites=2), pool(t=texts))
    assert ["".join(sorted({texts[i] for i in part})) for part in parts] == ["ad", "bc"]


def test_missing_values_are_refused_left_out_or_spread_as_asked() -> None:
    data = pool(age=[1.0, 2.0, np.nan, 50.0, 60.0, np.nan])
    with pytest.raises(Refusal, match=r"2 of 6 rows have no value.*leave_out"):
        split(by_column(column="age", edges=(10,)), data)
    assert split(by_column(column="age", edges=(10,), missing="leave_out"), data) == [[0, 1], [3, 4]]
    spread = split(by_column(column="age", edges=(10,), missing="spread"), data)
    assert sorted(spread[0] + spread[1]) == list(range(6))
    assert [len(part) for part in spread] == [3, 3]


def test_the_target_can_decide_too() -> None:
    frame, target = pool(age=[1, 2, 3, 4])
    assert split(by_column(column="y"), (frame, target)) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"column": "agee"}, "set column = 'age'"),
        ({}, "column that decides on the site is not named"),
        ({"column": "age", "edges": (30, 20)}, "do not ascend"),
        ({"column": "age", "edges": (21, 41), "sites": 4}, "2 edges make 3 groups"),
        ({"column": "age", "edges": (100,)}, "1 of 2 sites would get no rows"),
        ({"column": "sex", "edges": (1,)}, "column holds text"),
        ({"column": "sex", "sites": 3}, "3 groups cannot be made from 2 different values"),
        ({"column": "age", "mode": "some", "sites": 1}, "only 1 sites"),
        ({"column": "flat", "sites": 2}, "sites would get no rows"),
    ],
)
def test_what_cannot_be_done_is_refused(settings: dict[str, object], message: str) -> None:
    data = pool(age=AGES, sex=["f", "m", "f", "m", "f", "m", "f", "m", "f"], flat=[1] * 9)
    with pytest.raises(Refusal, match=message):
        split(by_column(**settings), data)  # type: ignore[arg-type]
