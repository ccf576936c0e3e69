"""How much noise a promised epsilon needs, from the steps that will be executed.

Epsilon falls as the noise grows, so the least noise that keeps a promise is found between two trials, one on either
side: first with the quick Renyi bound, then, near its answer, with the tight one. For sums over all records the answer
is known exactly, and only checked. The result keeps the promise exactly: it lies on the safe side.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from wardround.core.errors import Refusal
from wardround.privacy.accountant import Step, epsilon, renyi_epsilon

LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
PRECISION = 1e-3
"""Relative, of the noise multiplier."""
ROUNDING = 1e-9
"""The same, where the answer is known exactly."""
Plans = Sequence[tuple[Step, ...]]
"""For every record holder (site) what it would do; a step without noise gets the noise that is looked for, a step that
has a noise multiplier keeps it."""


def noise_for(plans: Plans, target: float, delta: float) -> float:
    """The least noise multiplier with which no plan spends more than `target`; found once for the same plans."""
    return _noise_for(tuple(plans), target, delta)


@lru_cache(maxsize=4096)
def _noise_for(plans: tuple[tuple[Step, ...], ...], target: float, delta: float) -> float:
    if not target > 0:
        raise Refusal(
            f"an epsilon of {target:g} allows nothing to be learned",
            where="[privacy] epsilon",
            remedy="choose a number above 0: about 1 is strong, 10 is weak",
        )
    if not any(plans):
        raise Refusal("no step is taken, so there is nothing to calibrate", where="[privacy]", remedy="train longer")

    def worst(measure: Callable[..., float], of: Plans, noise: float) -> float:
        return max(
            measure([step if step.noise_multiplier else step._replace(noise_multiplier=noise) for step in plan], delta)
            for plan in of
        )

    if all(step.rate == 1 and not step.noise_multiplier for plan in plans for step in plan):
        found = gaussian_noise(max(sum(step.times for step in plan) for plan in plans), target, delta)
        if found > MOST_NOISE:
            raise too_little(target)
        while worst(epsilon, plans, found) > target:  # by a rounding
            found *= 1 + ROUNDING
        return found
    # At the Renyi answer the few plans that cost most are the candidates for the tight bound.
    try:
        enough = _least(lambda noise: worst(renyi_epsilon, plans, noise), target, near=1.0)
    except Refusal:  # it has a floor, below which only the tight bound can tell
        return _least(lambda noise: worst(epsilon, plans, noise), target, near=1.0)
    costs = [worst(renyi_epsilon, [plan], enough) for plan in plans]
    dearest = [plan for plan, cost in zip(plans, costs, strict=True) if cost >= 0.9 * max(costs)]
    found = _least(lambda noise: worst(epsilon, dearest, noise), target, near=enough)
    # A plan that was no candidate may yet cost more: seldom, if ever.
    doubtful = [plan for plan in plans if worst(renyi_epsilon, [plan], found) > target]
    while doubtful and worst(epsilon, doubtful, found) > target:
        found *= 1 + PRECISION
    return found


def too_little(target: float) -> Refusal:
    return Refusal(
        f"no noise up to {MOST_NOISE:g} keeps an epsilon of {target:g}",
        where="[privacy] epsilon",
        remedy="promise less, train for fewer rounds, or take smaller batches",
    )


def gaussian_noise(times: int, target: float, delta: float) -> float:
    """The exact noise for so many Gaussian sums over all records (Balle and Wang, ICML 2018), which add up to one."""
    normal = NormalDist()

    def lost(shift: float) -> float:
        """The delta at which one sum whose noise is 1 / shift keeps the target."""
        far = normal.cdf(-shift / 2 - target / shift)
        return normal.cdf(shift / 2 - target / shift) - (math.exp(target) * far if far else 0.0)

    low, high = 1e-9, 1e3
    while high / low > 1 + 1e-9:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if lost(middle) <= delta else (low, middle)
    return float(times**0.5 / low)


def _least(spent: Callable[[float], float], target: float, near: float) -> float:
    """The least noise, up to the precision and never below it, that spends at most the target; begins near a guess."""
    low, high = _bracket(lambda noise: _excess(spent(noise), target), near, target)
    weight_low = weight_high = 1.0
    while high.noise / low.noise > 1 + PRECISION:
        # Epsilon is nearly a power of the noise, so on logarithms a straight line leads close to the target; an end
        # that stayed counts half (the Illinois rule), and a step beyond the line's answer moves the other end, too.
        above, below = weight_low * low.excess, weight_high * high.excess
        share = above / (above - below) if math.isfinite(above) and above > below else 0.5
        step = math.log(high.noise / low.noise) * min(max(share, 0.01), 0.99)
        for beyond in (PRECISION / 3, -PRECISION / 3):
            noise = min(max(low.noise * math.exp(step + beyond), low.noise), high.noise)
            if not low.noise < noise < high.noise:
                noise = (low.noise * high.noise) ** 0.5
            tried = NoiseTrial(noise, _excess(spent(noise), target))
            if tried.excess > 0:
                low, weight_low, weight_high = tried, 1.0, weight_high / 2
                break
            high, weight_high, weight_low = tried, 1.0, weight_low / 2
            if high.noise / low.noise <= 1 + PRECISION:
                break
    return high.noise


class NoiseTrial(NamedTuple):
    """A noise, and by how much it misses the target: the logarithm of what it spends over what it may."""

    noise: float
    excess: float


def _excess(spent: float, target: float) -> float:
    return math.log(spent / target) if spent > 0 else -math.inf


def _bracket(excess: Callable[[float], float], near: float, target: float) -> tuple[NoiseTrial, NoiseTrial]:
    """Two trials around the target, the first above it; epsilon is about one over the noise."""
    one = NoiseTrial(near, excess(near))
    while True:
        leap = math.exp(min(max(abs(one.excess), 0.01), math.log(4))) * (1 + PRECISION)
        if one.excess > 0:
            other = NoiseTrial(one.noise * leap, excess(one.noise * leap))
            if other.excess <= 0:
                return one, other
        elif one.noise < LEAST_NOISE:
            return NoiseTrial(one.noise / (1 + PRECISION), math.inf), one
        else:
            other = NoiseTrial(one.noise / leap, excess(one.noise / leap))
            if other.excess > 0:
                return other, one
        one = other
        if one.noise > MOST_NOISE:
            raise too_little(target)
