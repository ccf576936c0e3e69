"""Noised counts: exact without noise, known noise with it, and no category that one patient alone has."""

import numpy as np
import pandas as pd
import pytest

from tests.support.amount import ALL
from wardround.core.codes.json_arrays import unpack
from wardround.core.contracts import Message, Site
from wardround.queries.noised_counts import CELLS, cell_counts, cell_edges, name_threshold, noised_counts

FRAME = pd.DataFrame(
    {
        "age": [3.0, 5.0, -5.0, 0.0, np.nan, np.inf, 1e30, 7.9],
        "sex": ["f", "m", "f", None, "f", "f", "m", "x"],
    }
)


def ask(noise: float, seed: int | None = 0, frame: pd.DataFrame = FRAME, delta: float = 1e-6) -> Message:
    query = noised_counts(columns=("age", "sex"), words=("sex",), noise=noise, delta=delta, seed=seed)
    return query.ask(Message({}), Site("bo", frame))


def test_values_are_counted_between_powers_of_two() -> None:
    """3 lies in [2, 4), 5 and 7.9 in [4, 8), -5 in [-8, -4), 0 in the middle, 1e30 in the last; two are no number."""
    edges, counts = cell_edges(), cell_counts(FRAME["age"].to_numpy())
    assert edges.shape == (CELLS, 2)
    assert (edges[1:, 0] == edges[:-1, 1]).all()
    found = {tuple(edges[place]): int(counts[place]) for place in np.flatnonzero(counts)}
    assert found == {(-8.0, -4.0): 1, (-(2.0**-20), 2.0**-20): 1, (2.0, 4.0): 1, (4.0, 8.0): 2, (2.0**39, 2.0**40): 1}


def test_without_noise_the_counts_are_exact() -> None:
    told = ask(0.0)
    np.testing.assert_array_equal(told.arrays["cells"][0], cell_counts(FRAME["age"].to_numpy()))
    assert unpack(told.arrays["names"]) == {"sex": {"f": 4.0, "m": 2.0, "x": 1.0}}


def test_every_cell_gets_noise_of_the_whole_tables_sensitivity() -> None:
    """Two columns: a patient is in a cell of each, so the deviation is 5 sqrt(2)."""
    cells = np.array([ask(5.0, seed=seed).arrays["cells"][0] for seed in range(40)])
    noise = cells - cell_counts(FRAME["age"].to_numpy())
    assert noise.std() == pytest.approx(5 * 2**0.5, rel=0.05)
    assert abs(noise.mean()) < 4 * 5 * 2**0.5 / noise.size**0.5


def test_real_sites_draw_new_noise_each_time_and_a_seed_repeats_it() -> None:
    assert not np.array_equal(ask(5.0, None).arrays["cells"], ask(5.0, None).arrays["cells"])
    np.testing.assert_array_equal(ask(5.0, 3).arrays["cells"], ask(5.0, 3).arrays["cells"])


def test_a_category_of_one_patient_is_named_as_seldom_as_delta_says() -> None:
    """With delta 0.05 in 4,000 draws about 200 times; a standard deviation is 14 (in 400 draws 20, and 4.4)."""
    draws, between = (4000, (140, 260)) if ALL else (400, (6, 34))
    named = sum("x" in unpack(ask(3.0, seed, delta=0.05).arrays["names"])["sex"] for seed in range(draws))
    assert between[0] < named < between[1]
    assert name_threshold(3.0, 0.05, 1) == pytest.approx(1 + 3 * 1.6448536)
    assert name_threshold(3.0, 0.05, 2) > name_threshold(3.0, 0.05, 1)


def test_sites_add_up() -> None:
    query = noised_counts(columns=("age", "sex"), words=("sex",), noise=0.0, delta=1e-6)
    told = query.combine([query.ask(Message({}), Site(name, FRAME)) for name in ("bo", "kenema")])
    assert told["names"] == {"sex": {"f": 8.0, "m": 4.0, "x": 2.0}}
    assert sum(told["cells"]["age"]) == 12
    assert told["sites"] == 2
