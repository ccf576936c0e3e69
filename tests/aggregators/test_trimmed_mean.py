from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import trim_mean

from wardround.aggregators.trimmed_mean import trimmed_mean
from wardround.core.contracts import Message

Matrix = np.ndarray[Any, Any]


def combined(values: Matrix, weight: Matrix, share: float) -> Matrix:
    message = Message({"update": (values * weight[:, None]).astype(np.float32), "weight": weight.astype(np.float32)})
    return np.asarray(jax.jit(trimmed_mean(share=share).reduce)((), message)[0].arrays["update"])


def test_one_of_five_is_cut_at_each_end_in_every_column() -> None:
    # floor(0.2 * 5) = 1. Column 1: 0 1 2 6 100 -> (1 + 2 + 6) / 3 = 3. Column 2: -50 1 2 3 4 -> (1 + 2 + 3) / 3 = 2.
    values = np.array([[100.0, 1.0], [0.0, 2.0], [1.0, -50.0], [2.0, 3.0], [6.0, 4.0]])
    np.testing.assert_allclose(combined(values, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 0.2), [3.0, 2.0], rtol=1e-6)


def test_only_sites_that_are_there_are_counted_for_the_cut() -> None:
    # Four of five are there: floor(0.2 * 4) = 0 are cut, so the mean of 0, 1, 2, 6 is 9 / 4.
    values = np.array([[100.0], [0.0], [1.0], [2.0], [6.0]])
    np.testing.assert_allclose(combined(values, np.array([0.0, 1.0, 1.0, 1.0, 1.0]), 0.2), [2.25], rtol=1e-6)


def test_a_share_is_taken_as_it_is_written() -> None:
    # 0.29 * 100 is 28.999999999999996 in binary; 29 are cut. Of 0² .. 99², 29 .. 70 stay: their squares sum to
    # S(70) - S(28) with S(k) = k (k + 1) (2 k + 1) / 6, 116795 - 7714 = 109081, over 42.
    values = np.arange(100.0)[:, None] ** 2
    np.testing.assert_allclose(combined(values, np.ones(100), 0.29), [109081 / 42], rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.49])
def test_agrees_with_scipy(share: float) -> None:
    values = np.random.default_rng(1).normal(size=(11, 40))
    np.testing.assert_allclose(
        combined(values, np.ones(11), share), trim_mean(values, share, axis=0), rtol=1e-5, atol=1e-6
    )


def test_no_share_is_the_plain_mean_and_nearly_half_is_the_median() -> None:
    values = np.random.default_rng(2).normal(size=(9, 20))
    np.testing.assert_allclose(combined(values, np.ones(9), 0.0), values.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(combined(values, np.ones(9), 0.49), np.median(values, axis=0), rtol=1e-6, atol=1e-7)
