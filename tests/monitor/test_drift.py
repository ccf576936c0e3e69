"""Distances between counts: by hand, and against scipy on the same cells."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from wardround.monitor.drift import kolmogorov_distance, stability_index


def test_stability_index_by_hand():
    # (50, 50) and (75, 25), half a patient added: shares 1/2 and 75.5/101. The index is the sum of
    # (new - old) log(new / old) over both cells; the empty third cell does not count.
    new = np.array([75.5, 25.5]) / 101
    by_hand = ((new - 0.5) * np.log(new / 0.5)).sum()
    found = stability_index(np.array([50, 50, 0]), np.array([75, 25, 0]))
    assert found.value == pytest.approx(by_hand, abs=1e-12)
    assert found.low < found.value < found.high
    assert stability_index(np.array([0, 0]), np.array([3, 4])).value is None


def test_the_interval_of_the_index_holds_nothing_where_nothing_moved():
    # Chance alone makes the index positive; the interval must reach down to nearly 0 in most windows.
    rng = np.random.default_rng(0)
    shares = np.full(10, 0.1)
    found = [stability_index(rng.multinomial(500, shares), rng.multinomial(200, shares), seed=one) for one in range(40)]
    # Nine degrees of freedom: 9 (1/500 + 1/200) = 0.063 on average. At least 90 % of the intervals begin at 0.
    assert np.mean([one.value for one in found]) == pytest.approx(0.063, abs=0.015)
    assert np.mean([one.low == 0 for one in found]) >= 0.9


def test_the_interval_of_the_index_holds_the_truth():
    # Shares of 0.1 each against 0.15 and 0.05 in turn: the index is 5 * 0.05 log(1.5) + 5 * 0.05 log(2) = 0.2747.
    rng = np.random.default_rng(1)
    before, after = np.full(10, 0.1), np.tile([0.15, 0.05], 5)
    held = [
        one.low <= 0.2747 <= one.high
        for one in (
            stability_index(rng.multinomial(2000, before), rng.multinomial(400, after), seed=seed) for seed in range(60)
        )
    ]
    assert np.mean(held) >= 0.87


def test_kolmogorov_distance_is_that_of_scipy():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 8, 300), rng.integers(1, 9, 200)
    counts = [np.append(np.bincount(values, minlength=9), missing) for values, missing in ((one, 5), (other, 70))]
    found = kolmogorov_distance(*counts)
    assert found.value == pytest.approx(ks_2samp(one, other).statistic, abs=1e-12)
    # Bands of 97.5 % each: sqrt(log(4 / 0.05) / (2 n)) for n of 300 and 200.
    room = np.sqrt(np.log(80) / 600) + np.sqrt(np.log(80) / 400)
    assert found.high - found.value == pytest.approx(room)
