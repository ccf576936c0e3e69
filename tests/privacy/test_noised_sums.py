"""Noise on sums: standard normal, from a key of its own, and on a grid."""

import numpy as np
import pytest
from scipy import stats

from wardround.privacy.noised_sums import gaussian_numbers, noise_key, with_gaussian_noise


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
