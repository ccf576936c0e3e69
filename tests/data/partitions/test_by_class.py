"""Class imbalance: prevalence at the sites moves from that of the pool to all or nothing."""

import numpy as np
import pandas as pd
import pytest

from wardround.data.partitions.by_class import by_class

FEATURES = pd.DataFrame({"age": np.arange(1200)})
TARGET = pd.Series(np.where(np.arange(1200) % 3 == 0, "ill", "well"), name="y")  # one third is ill


def prevalence(degree: float, sites: int = 3) -> list[float]:
    parts = by_class(sites=sites, degree=degree).split(FEATURES, TARGET, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1200))
    return [float((TARGET.iloc[part] == "ill").mean()) for part in parts]


def test_degree_one_puts_all_the_ill_at_the_first_of_three_sites() -> None:
    assert prevalence(1.0) == [1.0, 0.0, 0.0]


def test_where_classes_do_not_fit_the_sites_one_site_is_mixed() -> None:
    # 400 ill at sites of 600: the first site holds them all, two thirds of its rows.
    assert prevalence(1.0, sites=2) == [pytest.approx(2 / 3), 0.0]


def test_degree_zero_is_iid() -> None:
    # Standard error of a share of 1/3 among 400: sqrt(2/9 / 400) = 0.0236.
    assert all(abs(value - 1 / 3) < 4 * 0.0236 for value in prevalence(0.0))


def test_prevalence_at_the_first_site_grows_with_the_degree_along_a_line() -> None:
    values = [prevalence(degree)[0] for degree in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert values == sorted(values)
    assert values[2] == pytest.approx(0.5 + 0.5 / 3, abs=4 * 0.0236)


def test_a_measured_target_is_segregated_by_its_size() -> None:
    los = pd.Series(np.random.default_rng(0).permutation(100).astype(float), name="los")
    parts = by_class(sites=4, degree=1.0).split(FEATURES.iloc[:100], los, np.random.default_rng(0))
    assert [los.iloc[part].max() for part in parts] == [24.0, 49.0, 74.0, 99.0]
