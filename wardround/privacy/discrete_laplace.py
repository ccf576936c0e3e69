"""The discrete Laplace distribution (two-sided geometric), drawn exactly, by whole numbers only.

Ghosh, Roughgarden and Sundararajan 2009; drawn as in algorithm 2 of Canonne, Kamath and Steinke, "The Discrete Gaussian
for Differential Privacy", NeurIPS 2020, so that no rounding of floats gives a count away. Where the random numbers come
from is a function: the operating system's generator, a seed (in a simulation), or the stream of a key.
"""

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Whole = np.ndarray[Any, Any]
DrawBelow = Callable[[int, int], Whole]
"""(bound, count) to so many uniform whole numbers below the bound, unsigned, of 64 bits."""


def noise_variance(epsilon: float) -> float:
    """2a / (1 - a)² with a = exp(-epsilon); no noise at epsilon 0."""
    return 2 * math.exp(-epsilon) / (1 - math.exp(-epsilon)) ** 2 if epsilon else 0.0


def noise_source(epsilon: float, seed: int | None, purpose: str) -> Callable[[], int]:
    """Draws of noise for counts, one a call; with a seed they are the same for the same purpose."""
    if not epsilon:
        return lambda: 0
    source: random.Random = random.SystemRandom() if seed is None else random.Random(f"{seed} {purpose}")
    parameter = Fraction(epsilon).limit_denominator(1_000_000) or Fraction(1, 1_000_000)
    return lambda: draw_one(parameter, source)


def draw_one(epsilon: Fraction, source: random.Random) -> int:
    """A whole number x with probability proportional to exp(-epsilon |x|)."""

    def below(bound: int, count: int) -> Whole:
        return np.array([source.randrange(bound) for _ in range(count)], np.uint64)

    while not len(found := propose_laplace(epsilon, 1, below)):
        pass
    return int(found[0])


def propose_laplace(epsilon: Fraction, count: int, below: DrawBelow) -> Whole:
    """Draws with probabilities proportional to exp(-epsilon |x|): fewer than `count`, since some are refused."""
    top, bottom = epsilon.numerator, epsilon.denominator
    rest = below(bottom, count)
    rest = rest[bernoulli_exp(rest, bottom, below)]
    size = ((rest + np.uint64(bottom) * geometric(len(rest), below)) // np.uint64(top)).astype(np.int64)
    negative = below(2, len(rest)) == 1
    proper = ~(negative & (size == 0))  # else 0 would come up twice as often
    return np.where(negative, -size, size)[proper]


def geometric(count: int, below: DrawBelow) -> Whole:
    """How often in a row something happens that has the probability exp(-1)."""
    times = np.zeros(count, np.uint64)
    still = np.arange(count)
    while len(still):
        still = still[bernoulli_exp(np.ones(len(still), np.uint64), 1, below)]
        times[still] += np.uint64(1)
    return times


def bernoulli_exp(numerators: Whole, denominator: int, below: DrawBelow) -> Whole:
    """True with probability exp(-numerator / denominator), for numerators from 0 to the denominator."""
    is_odd = np.ones(len(numerators), bool)
    still, turn = np.arange(len(numerators)), 1
    while len(still):
        hit = below(denominator * turn, len(still)) < numerators
        still, numerators, turn = still[hit], numerators[hit], turn + 1
        is_odd[still] ^= True
    return is_odd
