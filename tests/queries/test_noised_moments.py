"""Noised sums within a range: by hand without noise, and with the noise of what one patient can move."""

import numpy as np
import pandas as pd
import pytest

from wardround.core.contracts import Message, Site
from wardround.queries.noised_moments import noised_moments

FRAME = pd.DataFrame({"age": [0.0, 50.0, 100.0, 1000.0, np.nan, np.inf], "pulse": [60.0] * 6})
RANGES = {"ranges": np.array([[0.0, 100.0], [40.0, 80.0]])}


def ask(noise: float, seed: int | None = 0, ranges: dict = RANGES) -> np.ndarray:
    query = noised_moments(columns=("age", "pulse"), noise=noise, seed=seed)
    return query.ask(Message(ranges), Site("bo", FRAME)).arrays["sums"]


def test_sums_are_of_clamped_values_placed_between_minus_one_and_one() -> None:
    """Ages 0, 50, 100 and 1000, clamped to 100, are -1, 0, 1 and 1; a pulse of 60 is the middle of 40 to 80."""
    np.testing.assert_allclose(ask(0.0), [[4, 1, 3], [6, 0, 0]])


@pytest.mark.parametrize("ends", [[np.nan, 1.0], [5.0, 5.0], [9.0, -9.0], [-np.inf, np.inf], [0.0, 1e-300]])
def test_no_range_makes_a_patient_count_for_more(ends: list[float]) -> None:
    found = ask(0.0, ranges={"ranges": np.array([ends, ends])})
    assert np.isfinite(found).all()
    assert (np.abs(found[:, 1:]) <= 6).all()


def test_the_noise_is_that_of_three_sums_a_column() -> None:
    """Two columns: sqrt(6) times the multiplier."""
    noise = np.array([ask(2.0, seed) for seed in range(400)]) - ask(0.0)
    assert noise.std() == pytest.approx(2 * 6**0.5, rel=0.05)


def test_sites_add_up() -> None:
    query = noised_moments(columns=("age", "pulse"), noise=0.0)
    told = query.combine([query.ask(Message(RANGES), Site(name, FRAME)) for name in ("bo", "kenema")])
    assert told == {"sums": [[8, 2, 6], [12, 0, 0]], "sites": 2}
