"""Missing entries: rates and patterns as promised, nested in the degree, none at degree 0."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from wardround.data.partitions.missing_entries import missing_entries

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(200, 100)), columns=[f"c{j}" for j in range(100)])
Y = pd.Series(np.tile([0, 1], 100), name="y")


def gaps(degree: float, site: int, pattern: str = "entries", x: pd.DataFrame = X) -> np.ndarray:
    partition = missing_entries(degree=degree, pattern=pattern)  # type: ignore[arg-type]
    assert partition.alter is not None
    before = x.copy()
    new, same = partition.alter(site, 4, x, Y, np.random.default_rng([3, site]))
    assert same.equals(Y)
    assert before.equals(x)
    assert new.notna().to_numpy().any() or degree == 1
    kept = new.notna()
    assert new.where(kept).equals(x.where(kept).astype(new.dtypes))
    return new.isna().to_numpy()


@pytest.mark.parametrize("pattern", ["entries", "by_value", "columns"])
def test_degree_zero_loses_nothing_and_a_higher_degree_loses_more_of_the_same(pattern: str) -> None:
    lost = [gaps(degree, 3, pattern) for degree in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
    assert lost[0].sum() == 0
    for fewer, more in pairwise(lost):
        assert np.all(more >= fewer)
        assert more.sum() > fewer.sum()


@pytest.mark.parametrize("pattern", ["entries", "by_value", "columns"])
def test_each_site_has_its_own_rate(pattern: str) -> None:
    # degree · (i + 1) / 4 with degree 0.4: 0.1, 0.2, 0.3, 0.4. The mean of 100 column rates 2 u share has the standard
    # error 2 · share · 0.289 / 10, at most 0.023.
    rates = [gaps(0.4, site, pattern).mean() for site in range(4)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.06)


def test_columns_are_lost_wholly_and_differ_between_sites() -> None:
    lost = [gaps(0.4, site, "columns") for site in range(4)]
    assert [int(part.all(axis=0).sum()) for part in lost] == [10, 20, 30, 40]
    assert all(np.array_equal(part.all(axis=0), part.any(axis=0)) for part in lost)
    assert not np.all(lost[1].any(axis=0) >= lost[0].any(axis=0)), "each site has a pattern of its own"


def test_columns_have_rates_of_their_own() -> None:
    # Rates 2 u · 0.4 with u uniform spread by 0.8 · 0.289 = 0.23; equal rates would spread by sqrt(.24 / 200) = 0.03.
    assert gaps(0.4, 3).mean(axis=0).std() == pytest.approx(0.23, abs=0.05)


def test_by_value_the_high_values_go() -> None:
    lost = gaps(0.4, 3, "by_value")
    upper = X.rank().to_numpy() > 100
    # The chance grows from 0 to twice, so the upper half loses 3/4 of what is lost (a little less: rates stop at 1).
    assert lost[upper].sum() / lost.sum() == pytest.approx(0.75, abs=0.04)
    evenly = gaps(0.4, 3, "entries")
    assert evenly[upper].sum() / evenly.sum() == pytest.approx(0.5, abs=0.04)


def test_whole_numbers_and_texts_can_go_too() -> None:
    x = pd.DataFrame({"n": np.arange(200), "t": ["a", "b"] * 100})
    assert gaps(1.0, 3, "columns", x).all()


def test_the_rows_are_dealt_out_iid() -> None:
    parts = missing_entries(sites=3).split(X, Y, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(200))
