"""How much privacy was spent: epsilon for a given delta, from the steps that were executed.

Sums over all records add up to one Gaussian, whose epsilon is known exactly (Balle and Wang, ICML 2018). Where records
are drawn, privacy loss distributions by `dp-accounting` (Doroshenko et al., "Connect the Dots", PETS 2022): tight,
rounded up.
Renyi differential privacy (Mironov 2017; Mironov et al. 2019) is computed beside them as a check: both are upper
bounds, and the Renyi one can never lie below the other by more than rounding. Adjacency: one record (a patient, or a
whole site) is added or removed.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import exp, inf
from typing import Any, NamedTuple

from wardround.core.errors import Refusal

ROUNDING = 1e-3
"""By which the tight bound may exceed the Renyi one: what its grid costs."""

HOPELESS = 200.0
"""An epsilon above which nothing is protected, so that the tight bound is not worth its time and memory."""
ORDERS = (*range(2, 65), 80, 100, 128, 192, 256, 512, 1024)
"""Whole ones: between them there is little to gain, and their sums do not converge where noise is small."""


class Step(NamedTuple):
    """`times` Gaussian sums, each over a Poisson sample of the records.

    `rate` is the probability with which a record enters, `noise_multiplier` the standard deviation of the noise over
    the most that one record can change the sum.
    """

    rate: float
    noise_multiplier: float
    times: int = 1


def merge_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Like steps as one; their order does not matter for what they cost."""
    times: dict[tuple[float, float], int] = {}
    for step in steps:
        if not (0 <= step.rate <= 1 and step.noise_multiplier >= 0 and step.times >= 0):
            raise Refusal(f"{step} is not a private step", where="privacy accountant", remedy="check rate and noise")
        if step.rate and step.times:
            place = (float(step.rate), float(step.noise_multiplier))
            times[place] = times.get(place, 0) + int(step.times)
    return tuple(Step(*place, many) for place, many in sorted(times.items()))


def epsilon(steps: Iterable[Step], delta: float) -> float:
    """The epsilon of all these steps together; infinite where a step had no noise, 0 where there was none."""
    refuse_delta(delta)
    whole = merge_steps(steps)
    if not whole:
        return 0.0
    if any(step.noise_multiplier == 0 for step in whole):
        return inf
    check = renyi_epsilon(whole, delta)
    if check > HOPELESS:
        return check
    tight = _tight(add_gaussians(whole), delta)
    if tight > check + ROUNDING * max(1.0, check):
        # Both are upper bounds, so the smaller one holds; yet this far apart one of them is wrong.
        raise Refusal(
            f"two ways to account for privacy disagree ({tight:.4f} and {check:.4f})",
            where="privacy accountant",
            remedy="report this with the study file; do not release the model",
        )
    return tight


def renyi_epsilon(steps: Iterable[Step], delta: float) -> float:
    """The same by Renyi differential privacy: quicker, and larger by some tenths."""
    refuse_delta(delta)
    whole = merge_steps(steps)
    if not whole:
        return 0.0
    if any(step.noise_multiplier == 0 for step in whole):
        return inf
    return _renyi(whole, delta)


def refuse_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise Refusal(f"delta is {delta:g}", where="privacy accountant", remedy="choose a delta between 0 and 1")


def add_gaussians(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same with all sums over all records as one: the squares of what they tell for their noise add up."""
    drawn, precision = [], 0.0
    for step in steps:
        if step.rate == 1:
            precision += step.times / step.noise_multiplier**2
        else:
            drawn.append(step)
    return (*drawn, Step(1.0, precision**-0.5)) if precision else tuple(drawn)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """The exact epsilon of one Gaussian sum over all records, rounded up in its twelfth digit."""
    from scipy.special import log_ndtr

    shift = 1 / noise_multiplier

    def lost(target: float) -> float:
        """The delta at which it keeps this epsilon; it falls as the epsilon grows."""
        kept = target + float(log_ndtr(-shift / 2 - target / shift))
        return exp(float(log_ndtr(shift / 2 - target / shift))) - exp(kept)

    low, high = 0.0, 1.0
    if lost(low) <= delta:
        return 0.0
    while lost(high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if lost(middle) > delta else (low, middle)
    return high


@lru_cache(maxsize=256)
def _tight(steps: tuple[Step, ...], delta: float) -> float:
    if len(steps) == 1 and steps[0].rate == 1:
        return gaussian_epsilon(steps[0].noise_multiplier, delta)
    from dp_accounting.pld import PLDAccountant  # takes seconds to load

    return float(PLDAccountant().compose(_event(steps)).get_epsilon(delta))


@lru_cache(maxsize=1024)
def _renyi(steps: tuple[Step, ...], delta: float) -> float:
    from dp_accounting.rdp import RdpAccountant

    return float(RdpAccountant(orders=ORDERS).compose(_event(steps)).get_epsilon(delta))


def _event(steps: tuple[Step, ...]) -> Any:
    from dp_accounting import dp_event

    def one(step: Step) -> Any:
        gaussian = dp_event.GaussianDpEvent(step.noise_multiplier)
        drawn = gaussian if step.rate == 1 else dp_event.PoissonSampledDpEvent(step.rate, gaussian)
        return dp_event.SelfComposedDpEvent(drawn, step.times)

    return dp_event.ComposedDpEvent([one(step) for step in steps])
