"""Shift of p(x|y): outcomes untouched, moves proportional to the degree, different for site, column and class."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.shift_features import shift_features

RNG = np.random.default_rng(5)
Y = pd.Series(np.tile(["ill", "well"], 100), name="y")
X = pd.DataFrame(
    {
        "pulse": RNG.normal(80, 10, 200),
        "lactate": RNG.normal(2, 0.5, 200),
        "flag": np.tile([0, 0, 1, 1], 50),
        "ward": np.tile(["a", "b"], 100),
    }
)


def altered(site: int = 0, y: "pd.Series[Any]" = Y, **settings: object) -> pd.DataFrame:
    partition = shift_features(**settings)  # type: ignore[arg-type]
    assert partition.alter is not None
    before = X.copy()
    x, same_y = partition.alter(site, 4, X, y, np.random.default_rng([9, site]))
    assert same_y.equals(y)
    assert before.equals(X), "the rows given must not be changed in place"
    return x


def test_degree_zero_leaves_everything_as_it_is() -> None:
    assert altered(degree=0.0).equals(X)


def test_without_scaling_each_class_moves_as_a_whole_in_proportion_to_the_degree() -> None:
    half, full = (altered(degree=degree, scale=0.0) for degree in (0.5, 1.0))
    for column in ("pulse", "lactate"):
        for label in ("ill", "well"):
            rows = Y.eq(label)
            move = full.loc[rows, column] - X.loc[rows, column]
            assert move.std() < 1e-9
            assert abs(move.iloc[0]) > 1e-3
            np.testing.assert_allclose(half.loc[rows, column] - X.loc[rows, column], move / 2)
        moves = (full[column] - X[column]).groupby(Y).mean()
        assert abs(moves["ill"] - moves["well"]) > 1e-3, "the move must depend on the class"


def test_a_move_is_measured_in_standard_deviations_of_the_column() -> None:
    # u is Normal(0, 1) in units of the column's own spread: over 300 sites its standard deviation is 1 (error 0.03).
    moves = [(altered(site, degree=1.0, scale=0.0)["pulse"] - X["pulse"])[0] for site in range(300)]
    assert np.std(moves) / X["pulse"].std(ddof=0) == pytest.approx(1.0, abs=0.15)


def test_without_shifting_the_mean_stays_and_the_spread_is_stretched_exponentially() -> None:
    one = altered(degree=1.0, shift=0.0)
    half = altered(degree=0.5, shift=0.0)
    assert one["pulse"].mean() == pytest.approx(X["pulse"].mean())
    stretch = one["pulse"].std() / X["pulse"].std()
    assert abs(np.log(stretch)) > 1e-3
    assert half["pulse"].std() / X["pulse"].std() == pytest.approx(np.sqrt(stretch))  # exp(d v / 2) = sqrt(exp(d v))


def test_sites_drift_apart_as_the_degree_grows() -> None:
    def dispersion(degree: float) -> float:
        sites = [altered(site, degree=degree)[["pulse", "lactate"]] for site in range(6)]
        means = [site.groupby(Y).mean().to_numpy() for site in sites]
        return float(np.std(means, axis=0).sum())

    values = [dispersion(degree) for degree in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert values[0] == pytest.approx(0, abs=1e-12)
    assert values == sorted(values)


def test_flags_texts_and_gaps_stay_and_named_columns_alone_are_moved() -> None:
    moved = altered(degree=1.0)
    assert moved[["flag", "ward"]].equals(X[["flag", "ward"]])
    only = altered(degree=1.0, columns=("lactate",))
    assert only["pulse"].equals(X["pulse"])
    assert not only["lactate"].equals(X["lactate"])
    gaps = X.assign(pulse=X["pulse"].mask(X.index < 50))
    alter = shift_features(degree=1.0).alter
    assert alter is not None
    x, _ = alter(0, 4, gaps, Y, np.random.default_rng(0))
    assert x["pulse"].isna().equals(gaps["pulse"].isna())


def test_a_measured_target_is_taken_by_halves() -> None:
    y = pd.Series(np.arange(200.0), name="los")
    move = altered(y=y, degree=1.0, scale=0.0)["pulse"] - X["pulse"]
    assert move[:100].std() < 1e-9
    assert move[100:].std() < 1e-9
    assert abs(move[0] - move[199]) > 1e-3


def test_the_rows_are_dealt_out_iid() -> None:
    parts = shift_features(sites=3).split(X, Y, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(200))


def test_what_cannot_be_shifted_is_refused() -> None:
    with pytest.raises(Refusal, match=r"column ward cannot be shifted.*pulse"):
        altered(columns=("ward",))
    alter = shift_features().alter
    assert alter is not None
    with pytest.raises(Refusal, match="nothing to shift"):
        alter(0, 4, X[["flag", "ward"]], Y, np.random.default_rng(0))
