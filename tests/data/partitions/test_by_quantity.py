"""Node imbalance: sizes follow the law, degree 0 makes them equal, nobody is left empty."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.by_quantity import apportion, by_quantity

FEATURES = pd.DataFrame({"x": np.arange(2050)})
TARGET = pd.Series(np.arange(2050) % 2, name="y")


def sizes(degree: float, law: str, sites: int = 4, least: int = 1) -> list[int]:
    partition = by_quantity(sites=sites, degree=degree, law=law, least=least)  # type: ignore[arg-type]
    parts = partition.split(FEATURES, TARGET, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(2050))
    return [len(part) for part in parts]


@pytest.mark.parametrize("law", ["lognormal", "power"])
def test_degree_zero_gives_equal_sizes(law: str) -> None:
    assert sorted(sizes(0.0, law)) == [512, 512, 513, 513]  # 2050 = 4 · 512 + 2


def test_the_power_law_of_degree_one_is_one_over_the_square_of_the_rank() -> None:
    # One row each, then 2046 in the proportions 1 : 1/4 : 1/9 : 1/16 = 144 : 36 : 16 : 9 (of 205): 1437.2, 359.3,
    # 159.7, 89.8, rounded down 2044 in all; the two rows left over go to the remainders .8 and .7.
    assert sizes(1.0, "power") == [1 + 1437, 1 + 359, 1 + 160, 1 + 90]


@pytest.mark.parametrize("law", ["lognormal", "power"])
def test_the_largest_share_grows_with_the_degree(law: str) -> None:
    largest = [max(sizes(degree, law)) for degree in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert largest == sorted(largest)
    assert largest[-1] > 1.5 * largest[0]


def test_lognormal_sizes_have_the_logarithmic_spread_of_the_law() -> None:
    # Standard deviation of the logarithm of the size: 2 · degree = 0.6 (400 draws: standard error 0.02).
    many = pd.DataFrame({"x": np.zeros(400_000)})
    parts = by_quantity(sites=400, degree=0.3).split(many, many["x"], np.random.default_rng(0))
    assert np.log([len(part) for part in parts]).std() == pytest.approx(0.6, abs=0.08)


def test_the_patients_are_the_same_kind_everywhere() -> None:
    parts = by_quantity(degree=0.5, law="power").split(FEATURES, TARGET, np.random.default_rng(0))
    assert all(abs(TARGET.iloc[part].mean() - 0.5) < 4 * 0.5 / np.sqrt(len(part)) for part in parts)


def test_nobody_has_fewer_than_the_least() -> None:
    assert min(sizes(1.0, "lognormal", sites=100, least=10)) == 10
    with pytest.raises(Refusal, match="2050 rows are too few for 100 sites with at least 21"):
        sizes(1.0, "lognormal", sites=100, least=21)


def test_apportioning_adds_up_and_favours_the_largest_remainders() -> None:
    # 10 · (0.5, 0.33, 0.17) = 5.0, 3.3, 1.7: the row left over goes to the .7.
    assert apportion(10, np.array([0.5, 0.33, 0.17])).tolist() == [5, 3, 2]
