"""Whole-number noise for counts: the two-sided geometric distribution (discrete Laplace), drawn exactly.

Ghosh, Roughgarden and Sundararajan 2009; drawn as in Canonne, Kamath and Steinke 2020, by whole numbers only, so that
no rounding of floats gives a count away. Costs a few draws of the operating system's generator a count.
"""

import math
import random
from collections.abc import Callable
from fractions import Fraction


def noise_variance(epsilon: float) -> float:
    """2a / (1 - a)² with a = exp(-epsilon); no noise at epsilon 0."""
    return 2 * math.exp(-epsilon) / (1 - math.exp(-epsilon)) ** 2 if epsilon else 0.0


def noise_source(epsilon: float, seed: int | None, words: str) -> Callable[[], int]:
    if not epsilon:
        return lambda: 0
    source: random.Random = random.SystemRandom() if seed is None else random.Random(f"{seed} {words}")
    parameter = Fraction(epsilon).limit_denominator(1_000_000) or Fraction(1, 1_000_000)
    return lambda: two_sided_geometric(parameter, source)


def two_sided_geometric(epsilon: Fraction, source: random.Random) -> int:
    """A whole number x with probability proportional to exp(-epsilon |x|), by whole-number draws only."""
    top, bottom = epsilon.numerator, epsilon.denominator
    while True:
        rest = source.randrange(bottom)
        if not happens_with_exp(Fraction(rest, bottom), source):
            continue
        whole = 0
        while happens_with_exp(Fraction(1), source):
            whole += 1
        size = (rest + bottom * whole) // top
        negative = source.randrange(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def happens_with_exp(gamma: Fraction, source: random.Random) -> bool:
    """True with probability exp(-gamma), for gamma from 0 to 1."""
    turns = 1
    while source.randrange(gamma.denominator * turns) < gamma.numerator:
        turns += 1
    return turns % 2 == 1
