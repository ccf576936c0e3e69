"""Noise on sums: standard normal, from a key of its own, and on a grid."""

import numpy as np
import pytest
from scipy import stats

from wardround.privacy.noised_sums import gaussian_numbers, noise_key, with_gaussian_noise, with_lasting_noise


def test_the_numbers_are_standard_normal() -> None:
    numbers = gaussian_numbers(100_001, noise_key(1, "a"))
    assert len(numbers) == 100_001
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:50_000], numbers[50_000:100_000])[0, 1]) < 5 / 50_000**0.5


def test_keys_of_a_seed_repeat_and_others_do_not() -> None:
    assert noise_key(1, "a") == noise_key(1, "a") != noise_key(1, "b")
    assert noise_key(None) != noise_key(None)


def test_noised_numbers_lie_on_a_grid_and_no_noise_changes_nothing() -> None:
    told = with_gaussian_noise(np.array([[1.25, 3.0]]), 8.0, noise_key(1))
    # A millionth of 8 is 2^-17, a power of two.
    assert (told * 2**17 == np.round(told * 2**17)).all()
    assert told.shape == (1, 2)
    np.testing.assert_array_equal(with_gaussian_noise(np.array([1.25]), 0.0, b""), [1.25])
    many = np.array([with_gaussian_noise(np.zeros(100), 5.0, noise_key(seed))[:2] for seed in range(2000)])
    assert many.std() == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("seed", [None, 7])
def test_the_same_value_at_the_same_place_keeps_its_noise(seed) -> None:
    """So a mean over many answers is no better than one; another value, place or word has noise of its own."""
    counts = np.repeat([0.0, 10.0, 20.0, 30.0], 500)
    told = with_lasting_noise(counts, 5.0, seed, "covered")
    np.testing.assert_array_equal(with_lasting_noise(counts, 5.0, seed, "covered"), told)
    noise = told - counts
    assert np.std(noise) == pytest.approx(5.0, rel=0.1), "its error over 2,000 numbers is 1.6 %"
    changed = counts.copy()
    changed[0] = 10.0
    again = with_lasting_noise(changed, 5.0, seed, "covered")
    np.testing.assert_array_equal(again[1:], told[1:])
    assert abs((again[0] - 10.0) - noise[0]) > 1e-6
    other = with_lasting_noise(counts, 5.0, seed, "known") - counts
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.1, "0.022 is the error of none"
    np.testing.assert_array_equal(with_lasting_noise(counts, 0.0, seed, "covered"), counts)
