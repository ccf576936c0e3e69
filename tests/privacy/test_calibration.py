"""The noise found keeps the promise, and a little less noise would not."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from wardround.core.errors import Refusal
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.calibration import noise_for

DELTA = 1e-5


def test_one_sum_needs_the_noise_of_the_exact_formula() -> None:
    # The Gaussian mechanism with sensitivity 1: delta = Phi(1/(2s) - eps s) - exp(eps) Phi(-1/(2s) - eps s).
    def over(s: float, eps: float = 1.0) -> float:
        return norm.cdf(0.5 / s - eps * s) - np.exp(eps) * norm.cdf(-0.5 / s - eps * s) - DELTA

    truth = float(brentq(over, 0.1, 50))
    assert truth <= noise_for([(Step(1.0, 0.0, 1),)], 1.0, DELTA) <= truth * 1.003


@pytest.mark.parametrize("target", [0.3, 2.0])
def test_the_promise_is_kept_and_not_by_much(target: float) -> None:
    plan = (Step(0.2, 0.0, 50), Step(1.0, 0.0, 2))
    noise = noise_for([plan], target, DELTA)

    def spent(noise: float) -> float:
        return epsilon([step._replace(noise_multiplier=noise) for step in plan], DELTA)

    assert spent(noise) <= target < spent(noise / 1.005)


def test_an_epsilon_below_what_the_quick_bound_can_tell() -> None:
    # 0.001 at delta 1e-5: the exact formula for one sum, as above.
    def over(s: float, eps: float = 0.001) -> float:
        return norm.cdf(0.5 / s - eps * s) - np.exp(eps) * norm.cdf(-0.5 / s - eps * s) - DELTA

    truth = float(brentq(over, 1, 1e5))
    assert truth <= noise_for([(Step(1.0, 0.0, 1),)], 0.001, DELTA) <= truth * 1.01


def test_the_site_that_spends_most_decides() -> None:
    plans = [(Step(1.0, 0.0, 5),), (Step(1.0, 0.0, 40),), (Step(1.0, 0.0, 10),)]
    assert noise_for(plans, 2.0, DELTA) == pytest.approx(noise_for([plans[1]], 2.0, DELTA), rel=1e-3)


def test_what_cannot_be_is_refused() -> None:
    for target in (0.0, -1.0, float("nan")):
        with pytest.raises(Refusal, match="allows nothing to be learned"):
            noise_for([(Step(0.1, 0.0, 1),)], target, DELTA)
    with pytest.raises(Refusal, match="No noise up to"):
        noise_for([(Step(1.0, 0.0, 10**9),)], 1e-9, 1e-12)
    with pytest.raises(Refusal, match="nothing to calibrate"):
        noise_for([()], 1.0, DELTA)
