"""Noise for counts has the probabilities of its formula, whatever the random numbers are drawn from."""

import random
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from wardround.privacy.discrete_laplace import bernoulli_exp, draw_one, geometric, noise_variance, propose_laplace


def below(seed: int):
    """NumPy's own generator as the source: nothing of ours."""
    generator = np.random.default_rng(seed)
    return lambda bound, count: generator.integers(bound, size=count, dtype=np.uint64)


def test_draws_one_by_one_have_the_probabilities_of_the_formula() -> None:
    epsilon = Fraction(1, 2)
    source = random.Random(5)
    draws = np.array([draw_one(epsilon, source) for _ in range(40_000)])
    a = np.exp(-0.5)
    variance = 2 * a / (1 - a) ** 2  # 7.835
    assert noise_variance(0.5) == pytest.approx(variance)
    # Four standard errors; the kurtosis of such noise is below 6.1, so that of the variance is below sqrt(5.1 / n).
    assert abs(draws.mean()) < 4 * np.sqrt(variance / len(draws))
    assert abs(draws.var() / variance - 1) < 4 * np.sqrt(5.1 / len(draws))
    # P(x) = (1 - a) / (1 + a) * a^|x|
    for x in (0, 1, -1, 3):
        share = (1 - a) / (1 + a) * a ** abs(x)
        assert abs((draws == x).mean() - share) < 4 * np.sqrt(share / len(draws))


def test_large_and_awkward_epsilons_draw_too() -> None:
    source = random.Random(1)
    for epsilon in (Fraction(7, 3), Fraction(1, 50)):
        draws = np.array([draw_one(epsilon, source) for _ in range(4000)])
        variance = noise_variance(float(epsilon))
        # The kurtosis is 6 + 1 / variance.
        assert abs(draws.var() / variance - 1) < 4 * np.sqrt((5 + 1 / variance) / 4000)
        assert abs(draws.mean()) < 4 * np.sqrt(variance / 4000)
    # At epsilon 12 two draws in a hundred thousand are not 0.
    assert not any(draw_one(Fraction(12), source) for _ in range(100))


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(2, 3), Fraction(5, 2)])
def test_many_draws_fit_the_formula(epsilon: Fraction) -> None:
    draws = propose_laplace(epsilon, 300_000, below(1))
    a = np.exp(-float(epsilon))
    x = np.arange(-60, 61)
    expected = (1 - a) / (1 + a) * a ** np.abs(x) * len(draws)
    common = expected >= 10
    counts = np.array([(draws == value).sum() for value in x[common]])
    found = np.append(counts, len(draws) - counts.sum())
    wanted = np.append(expected[common], len(draws) - expected[common].sum())
    assert chisquare(found, wanted).pvalue > 1e-6
    off = np.append(wanted[:-1] * 1.05 ** np.abs(x[common]), 0)
    assert chisquare(found[:-1], off[:-1] * found[:-1].sum() / off.sum()).pvalue < 1e-6, "the test can tell 5 % more"


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 7), (1, 7), (5, 7), (7, 7), (1, 2**40)])
def test_a_coin_of_an_exponential(numerator: int, denominator: int) -> None:
    count = 100_000
    share = bernoulli_exp(np.full(count, numerator, np.uint64), denominator, below(2)).mean()
    wanted = np.exp(-numerator / denominator)
    assert abs(share - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / count)


def test_times_in_a_row() -> None:
    """P(k) = (1 - 1/e) e^-k, whose mean is 1 / (e - 1) and variance e / (e - 1)²."""
    times = geometric(100_000, below(3))
    assert abs(times.mean() - 1 / (np.e - 1)) < 5 * np.sqrt(np.e) / (np.e - 1) / np.sqrt(len(times))
    assert (times == 0).mean() == pytest.approx(1 - 1 / np.e, abs=5 * 0.5 / np.sqrt(len(times)))
