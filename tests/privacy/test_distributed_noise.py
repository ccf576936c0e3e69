"""Noise of the sites adds up to what was asked for, is distributed as it says, and is accounted for."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2, norm

from wardround.core.errors import Refusal
from wardround.privacy.distributed_noise import (
    NoisePlan,
    add_noise,
    discrete_gaussian,
    epsilon_of,
    plan_for,
)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def plan(**settings: float) -> NoisePlan:
    words = {"noise_multiplier": 1.0, "clip": 1.0, "entries": 100, "fraction_bits": 20, "sites": 10}
    return NoisePlan(**{**words, **settings})


def probabilities(deviation: float, largest: int) -> np.ndarray:
    """Of the discrete Gaussian, by its definition, on -largest ... largest."""
    weights = np.exp(-(np.arange(-largest, largest + 1) ** 2) / (2 * deviation**2))
    return weights / weights.sum()


def fits(values: np.ndarray, expected: np.ndarray, largest: int) -> bool:
    """Chi-square at one in a million, cells with fewer than 10 expected thrown together."""
    counts = np.bincount(np.clip(values, -largest, largest) + largest, minlength=2 * largest + 1)
    wanted = expected * len(values)
    rare = wanted < 10
    counts = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(wanted[~rare], max(wanted[rare].sum(), 1e-9))
    if wanted[-1] < 10:
        counts, wanted = counts[:-1], wanted[:-1]
    return chi2.sf(((counts - wanted) ** 2 / wanted).sum(), len(wanted) - 1) > 1e-6


@pytest.mark.parametrize("deviation", [0.4, 1.0, 3.7])
def test_small_discrete_gaussians_by_their_definition(deviation):
    values = discrete_gaussian(deviation, 200_000, key(1))
    assert fits(values, probabilities(deviation, 40), 40)
    assert not fits(values, probabilities(deviation * 1.03, 40), 40)  # the test can tell 3 % more


def test_a_large_discrete_gaussian_is_the_continuous_one_rounded():
    deviation = 2.0**20
    values = discrete_gaussian(deviation, 200_000, key(3))
    cells = np.array([-math.inf, *np.linspace(-3, 3, 61) * deviation, math.inf])
    expected = np.diff(norm.cdf(cells / deviation)) * len(values)
    counts = np.histogram(values, np.nan_to_num(cells, posinf=2.0**60, neginf=-(2.0**60)))[0]
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), len(expected) - 1) > 1e-6
    # Not only multiples of something: the last bits are even.
    assert abs(np.mean(values & 1) - 0.5) < 5 * 0.5 / math.sqrt(len(values))


def test_a_key_gives_the_same_noise_and_another_key_other_noise():
    first, again, other = (discrete_gaussian(5.0, 3000, key(number)) for number in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert abs(np.corrcoef(first, other)[0, 1]) < 5 / math.sqrt(3000)


@pytest.mark.parametrize("lost", [0, 3])
def test_survivors_make_up_the_noise_that_was_asked_for(lost):
    one = plan(noise_multiplier=2.0, entries=20_000, lost=3, telling=1)
    # (1 · 2^20 + sqrt(20000) / 2) · 2, over the 10 - 3 - 1 = 6 sites that are sure to count.
    assert one.sensitivity == 2**20 + math.sqrt(20_000) / 2
    assert one.site_deviation == pytest.approx(2 * one.sensitivity / math.sqrt(6))
    zeros = np.zeros(20_000, np.uint64)
    total = sum((add_noise(zeros, one, key(site)) for site in range(10 - lost)), zeros)
    # Each site gives 1/6 of the variance. One of them tells its noise, so 6 or 9 of those that came hide the sum.
    variance = np.var(total.view(np.int64).astype(float)) / (2 * one.sensitivity) ** 2
    assert variance == pytest.approx((10 - lost) / 6, rel=5 * math.sqrt(2 / 20_000))
    assert (10 - lost - 1) / 6 >= 1


def test_sums_wrap_in_the_ring_and_come_out_right():
    one = plan(entries=1000)
    vector = np.random.default_rng(0).integers(-(2**20), 2**20, 1000, np.int64)
    changed = add_noise(vector.view(np.uint64), one, key(5)).view(np.int64)
    np.testing.assert_array_equal(changed - vector, discrete_gaussian(one.site_deviation, 1000, key(5)))


def renyi(order: float, p: np.ndarray, q: np.ndarray) -> float:
    keep = (p > 1e-30) & (q > 1e-30)  # what is left out adds nothing that a float could tell
    return float(np.log(np.sum(p[keep] ** order * q[keep] ** (1 - order))) / (order - 1))


@pytest.mark.parametrize(("deviation", "sites"), [(0.5, 2), (0.6, 3), (1.0, 2), (2.0, 4)])
def test_the_accounted_divergence_is_never_below_the_real_one(deviation, sites):
    """One number, moved by one unit: the divergence of the sum, computed from its distribution."""
    one = probabilities(deviation, 60)
    total = one
    for _ in range(sites - 1):
        total = np.convolve(total, one)
    moved = np.roll(total, 1)
    # A plan whose sensitivity is one unit: its multiplier is the deviation of the sum.
    multiplier = deviation * math.sqrt(sites)
    made = plan(noise_multiplier=multiplier, entries=1, sites=sites, fraction_bits=0, clip=0.5)
    assert made.site_deviation == pytest.approx(deviation)
    for order in (2, 4, 8):
        real = renyi(order, total[60:-60], moved[60:-60])
        assert real <= order * made.rho * (1 + 1e-9)
        if deviation >= 1:  # tight: the real one is the Gaussian's, order / (2 z²)
            assert real == pytest.approx(order / (2 * multiplier**2), rel=1e-3)


def test_with_many_binary_places_it_is_the_gaussian_mechanism():
    one = plan(noise_multiplier=5.0, entries=10**6)
    assert one.closeness == 0.0
    assert one.rho == pytest.approx(1 / (2 * 25), rel=1e-15)
    # 100 rounds at z = 5 are 1 round at z = 0.5: 2-zCDP. The exact delta of a Gaussian (Balle and Wang 2018) at this
    # epsilon must be within what we promise, and not by far: 0.001 is what was asked for.
    epsilon = epsilon_of(one, 100, 1e-3)
    assert epsilon == pytest.approx(epsilon_of(plan(noise_multiplier=0.5, entries=10**6), 1, 1e-3))
    exact = norm.cdf(2 / 2 - epsilon / 2) - math.exp(epsilon) * norm.cdf(-2 / 2 - epsilon / 2)
    assert 1e-4 < exact <= 1e-3


def test_the_published_vectors_are_never_undercut():
    # From the tight accountant: (5, 1, 100, 1e-3 -> 7.5813) and (10, 1, 50, 1e-5 -> 2.9432).
    for multiplier, rounds, delta, tight in ((5.0, 100, 1e-3, 7.5813), (10.0, 50, 1e-5, 2.9432)):
        found = epsilon_of(plan(noise_multiplier=multiplier), rounds, delta)
        assert tight <= found < 1.15 * tight


def test_calibration_finds_the_noise_for_an_epsilon():
    words = {"clip": 1.0, "entries": 100, "fraction_bits": 20, "sites": 10}
    multipliers = []
    for epsilon in (0.1, 1.0, 10.0):
        made = plan_for(epsilon, 1e-5, 30, **words)
        assert epsilon * (1 - 1e-6) < epsilon_of(made, 30, 1e-5) <= epsilon
        multipliers.append(made.noise_multiplier)
    assert all(more > less for more, less in pairwise(multipliers))


def test_refusals():
    with pytest.raises(Refusal, match="no noise"):
        plan(noise_multiplier=0.0)
    with pytest.raises(Refusal, match="too few are left"):
        plan(sites=4, lost=2, telling=1)
    with pytest.raises(Refusal, match="too coarse"):
        plan(fraction_bits=0, noise_multiplier=0.1)
    with pytest.raises(Refusal, match="does not fit"):
        plan(fraction_bits=60, noise_multiplier=100.0)
    with pytest.raises(Refusal, match="100 numbers"):
        add_noise(np.zeros(99, np.uint64), plan(), key(0))
    with pytest.raises(Refusal, match="Delta cannot be 0"):
        epsilon_of(plan(), 1, 0.0)
    with pytest.raises(Refusal, match="Epsilon cannot be -1"):
        plan_for(-1.0, 1e-5, 1, clip=1.0, entries=1, fraction_bits=20, sites=3)
