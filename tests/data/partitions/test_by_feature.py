"""Feature imbalance: degree 0 is IID, degree 1 is sorted, between them the mix is the straight line it should be."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.by_feature import by_feature

RACE = pd.DataFrame({"race": np.repeat(["a", "b", "c", "d"], 500)})
TARGET = pd.Series(np.tile([0, 1], 1000), name="y")


def shares(degree: float, seed: int = 0) -> np.ndarray:
    """Share of every value at every site, shape (sites, values)."""
    parts = by_feature(column="race", degree=degree).split(RACE, TARGET, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(2000))
    assert {len(part) for part in parts} == {500}
    return np.array([[(RACE["race"].iloc[part] == value).mean() for value in "abcd"] for part in parts])


def test_degree_one_segregates_wholly() -> None:
    assert np.array_equal(shares(1.0), np.eye(4))


def test_degree_zero_is_iid() -> None:
    # A share of 1/4 among 500 has the standard error sqrt(3/16 / 500) = 0.0194.
    assert np.abs(shares(0.0) - 0.25).max() < 4 * 0.0194


@pytest.mark.parametrize("degree", [0.2, 0.5, 0.8])
def test_in_between_a_site_has_its_own_share_plus_its_part_of_the_pool(degree: float) -> None:
    # Expected: degree · 1 + (1 - degree) / 4 of the own value, (1 - degree) / 4 of each other one.
    expected = degree * np.eye(4) + (1 - degree) / 4
    assert np.abs(np.mean([shares(degree, seed) for seed in range(10)], axis=0) - expected).max() < 0.025


def test_the_skew_grows_with_the_degree_and_leaves_the_target_alone() -> None:
    skew = [np.abs(shares(degree) - 0.25).sum() for degree in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert skew == sorted(skew)
    parts = by_feature(column="race", degree=1.0).split(RACE, TARGET, np.random.default_rng(0))
    assert [TARGET.iloc[part].mean() for part in parts] == [0.5] * 4


def test_numbers_are_segregated_by_size_and_gaps_come_last() -> None:
    ages = pd.DataFrame({"age": [50.0, np.nan, 10.0, 40.0, 20.0, 30.0]})
    parts = by_feature(column="age", sites=3, degree=1.0).split(ages, TARGET.iloc[:6], np.random.default_rng(0))
    assert [part.tolist() for part in parts] == [[2, 4], [3, 5], [0, 1]]


def test_the_target_and_unknown_columns_are_refused() -> None:
    with pytest.raises(Refusal, match="by_class"):
        by_feature(column="y").split(RACE, TARGET, np.random.default_rng(0))
    with pytest.raises(Refusal, match="no column 'rase'"):
        by_feature(column="rase").split(RACE, TARGET, np.random.default_rng(0))
