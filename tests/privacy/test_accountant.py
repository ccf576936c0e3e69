"""Epsilons against agreed vectors, and without sampling against the exact formula of the Gaussian mechanism."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from wardround.core.errors import Refusal
from wardround.privacy.accountant import Step, epsilon, merge_steps, renyi_epsilon

VECTORS = [
    (1.1, 256 / 60000, 14062, 1e-5, 2.3817),
    (1.3, 250 / 60000, 3600, 1e-5, 0.8530),
    (1.5, 0.04, 2250, 1e-5, 6.7688),
    (4.0, 0.01, 10000, 1e-5, 0.9470),
    (1.0, 0.01, 1000, 1e-5, 1.8282),
    (1.0, 0.032, 937, 1e-4, 5.4769),
    (10.0, 1.0, 50, 1e-5, 2.9432),
    (5.0, 1.0, 100, 1e-3, 7.5813),
]


@pytest.mark.parametrize(("noise", "rate", "times", "delta", "expected"), VECTORS)
def test_the_agreed_vectors(noise: float, rate: float, times: int, delta: float, expected: float) -> None:
    steps = [Step(rate, noise, times)]
    found = epsilon(steps, delta)
    assert found == pytest.approx(expected, abs=1e-3)
    assert found <= renyi_epsilon(steps, delta) < 1.2 * found


def exact(noise: float, times: int, delta: float) -> float:
    """Balle and Wang (ICML 2018): T sums with noise s are one Gaussian mechanism with mu = sqrt(T) / s, for which
    delta(eps) = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu)."""
    mu = np.sqrt(times) / noise

    def over(eps: float) -> float:
        return norm.cdf(mu / 2 - eps / mu) - np.exp(eps + norm.logcdf(-mu / 2 - eps / mu)) - delta

    return float(brentq(over, 0, 500))


@pytest.mark.parametrize(("noise", "times", "delta"), [(10, 50, 1e-5), (5, 100, 1e-3), (1, 1, 1e-6), (30, 200, 1e-5)])
def test_without_sampling_the_exact_formula(noise: float, times: int, delta: float) -> None:
    truth = exact(noise, times, delta)
    found = epsilon([Step(1.0, noise, times)], delta)
    assert truth - 1e-9 <= found <= truth + 1e-3, "an upper bound, and a close one"


def test_like_steps_are_added_up_in_any_order() -> None:
    steps = [Step(0.1, 2.0, 3), Step(1.0, 5.0, 1), Step(0.1, 2.0, 4), Step(0.0, 1.0, 9), Step(0.5, 1.0, 0)]
    assert merge_steps(steps) == merge_steps(steps[::-1]) == (Step(0.1, 2.0, 7), Step(1.0, 5.0, 1))


def test_different_steps_compose_as_gaussians_do() -> None:
    # Squared inverse noises add up: 1/5^2 + 3/10^2 + 1/(20/3)^2 = 0.0925.
    steps = [Step(1.0, 5.0, 1), Step(1.0, 10.0, 3), Step(1.0, 20 / 3, 1)]
    assert epsilon(steps, 1e-5) == pytest.approx(exact(1 / np.sqrt(0.0925), 1, 1e-5), abs=1e-3)


def test_exact_or_by_distributions_is_the_same() -> None:
    """Sums over all records are one Gaussian: beside drawn ones, as one distribution, it costs what they cost apart."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    full = [
        dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(noise), times) for noise, times in ((5.0, 3), (8.0, 2))
    ]
    drawn = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0))
    for events, more in ((full, []), ([*full, dp_event.SelfComposedDpEvent(drawn, 20)], [Step(0.1, 2.0, 20)])):
        apart = PLDAccountant().compose(dp_event.ComposedDpEvent(events)).get_epsilon(1e-5)
        together = epsilon([Step(1.0, 5.0, 3), Step(1.0, 8.0, 2), *more], 1e-5)
        assert together <= apart + 1e-9
        assert together == pytest.approx(apart, abs=1e-5)


def test_nothing_costs_nothing_and_no_noise_costs_everything() -> None:
    assert epsilon([], 1e-5) == 0.0 == renyi_epsilon([Step(0.1, 1.0, 0)], 1e-5)
    assert epsilon([Step(0.1, 0.0, 1)], 1e-5) == float("inf") == renyi_epsilon([Step(0.1, 0.0, 1)], 1e-5)


def test_a_hopeless_epsilon_is_told_without_trouble() -> None:
    # A billion sums with noise 1: the loss is about T / 2 = 5e8, and the bound must not lie below it.
    assert epsilon([Step(1.0, 1.0, 10**9)], 1e-5) > 5e8


@pytest.mark.parametrize("delta", [0.0, -1.0, 1.0, float("nan")])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(Refusal, match="Delta is"):
        epsilon([Step(0.1, 1.0, 1)], delta)


@pytest.mark.parametrize("step", [Step(1.5, 1.0, 1), Step(-0.1, 1.0, 1), Step(0.1, -1.0, 1), Step(0.1, 1.0, -1)])
def test_steps_that_cannot_be_are_refused(step: Step) -> None:
    with pytest.raises(Refusal, match="not a private step"):
        epsilon([step], 1e-5)
