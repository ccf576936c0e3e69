"""Shift of p(y|x): the sign of an effect turned round at odd sites, with p(x) and p(y) exactly as they were."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.partitions.shift_labels import shift_labels

RNG = np.random.default_rng(2)
X = pd.DataFrame({"fever": RNG.normal(38, 1, 401), "sex": RNG.choice(["f", "m"], 401)})
Y = pd.Series(np.where(X["fever"] + RNG.normal(0, 1, 401) > 38.3, "ill", "well"), name="y")


def altered(degree: float, site: int = 1, y: "pd.Series[Any]" = Y, seed: int = 0) -> "pd.Series[Any]":
    partition = shift_labels(column="fever", degree=degree)
    assert partition.alter is not None
    x, new = partition.alter(site, 4, X, y, np.random.default_rng(seed))
    assert x.equals(X)
    assert new.index.equals(y.index)
    assert sorted(new.astype(str)) == sorted(y.astype(str)), "the frequency of every outcome must stay"
    return new


def correlation(y: "pd.Series[Any]") -> float:
    return float(np.corrcoef(X["fever"].rank(), y == "ill")[0, 1])


def test_degree_zero_leaves_all_as_it_is_and_even_sites_are_always_left_alone() -> None:
    assert altered(0.0).equals(Y)
    assert altered(1.0, site=0).equals(Y)
    assert altered(1.0, site=2).equals(Y)


def test_degree_one_turns_the_sign_of_the_effect_round_exactly() -> None:
    # Ranks r become 402 - r for the same outcomes, so the rank correlation changes its sign and nothing else.
    assert correlation(Y) > 0.4
    assert correlation(altered(1.0)) == pytest.approx(-correlation(Y))


def test_the_effect_falls_along_a_line_with_the_degree() -> None:
    degrees = (0, 0.25, 0.5, 0.75, 1)
    means = [np.mean([correlation(altered(degree, seed=seed)) for seed in range(20)]) for degree in degrees]
    assert means == sorted(means, reverse=True)
    # Expected (1 - 2 · degree) times the correlation before; at one half, none is left.
    assert means[1] == pytest.approx(0.5 * correlation(Y), abs=0.05)
    assert means[2] == pytest.approx(0.0, abs=0.05)


def test_a_measured_target_swaps_its_values() -> None:
    los = (X["fever"] * 3).rename("los")
    new = altered(1.0, y=los)
    assert np.corrcoef(new.astype(float).rank(), X["fever"].rank())[0, 1] == pytest.approx(-1.0)


def test_rows_without_a_value_keep_their_outcome() -> None:
    x = X.assign(fever=X["fever"].mask(X.index < 100))
    alter = shift_labels(column="fever", degree=1.0).alter
    assert alter is not None
    _, new = alter(1, 2, x, Y, np.random.default_rng(0))
    assert new[:100].equals(Y[:100])
    assert not new[100:].equals(Y[100:])


def test_the_rows_are_dealt_out_iid_and_an_unknown_column_is_refused_before() -> None:
    parts = shift_labels(column="fever", sites=3).split(X, Y, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(401))
    with pytest.raises(Refusal, match="set column = 'fever'"):
        shift_labels(column="fevr").split(X, Y, np.random.default_rng(0))
