"""Newton's method by sums: where it ends, and what it refuses."""

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.statistics.survival.newton import begin_ascent, check_rank, climb, ridged
from wardround.statistics.survival.partial_likelihood import Likelihood


def test_a_parabola_takes_one_step_and_half_steps_bring_it_back():
    # -(b - 3)^2: from 0 the Newton step is 3 at once, the next evaluation finds no slope.
    def at(beta):
        return Likelihood(-float((beta[0] - 3) ** 2), -2 * (beta - 3), np.array([[2.0]]))

    ascent = begin_ascent(1)
    for _ in range(2):
        ascent = climb(ascent, at(ascent.beta), ["b"], "ridge")
    assert ascent.done
    np.testing.assert_allclose(ascent.best, [3.0])
    worse = climb(climb(begin_ascent(1), at(np.zeros(1)), ["b"], ""), at(np.array([9.0])), ["b"], "")
    np.testing.assert_allclose(worse.beta, [1.5])


def test_a_penalty_by_hand():
    found = ridged(Likelihood(-1.0, np.array([2.0]), np.array([[3.0]])), np.array([2.0]), 5.0)
    assert (found.value, found.score[0], found.information[0, 0]) == (-11.0, -8.0, 8.0)


def test_columns_that_say_the_same_are_named():
    information = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    with pytest.raises(Refusal, match=r"stage, tumour.*ridge"):
        check_rank(information, ["stage", "tumour", "age"], "ridge")
    with pytest.raises(Refusal, match="events happen: age"):
        check_rank(np.diag([1.0, 0.0]), ["sex", "age"], "ridge")


def test_an_effect_without_end_is_refused():
    # log(1 / (1 + e^-b)) rises for ever.
    def rise_for_ever():
        ascent = begin_ascent(1)
        for _ in range(60):
            p = 1 / (1 + np.exp(-ascent.beta))
            found = Likelihood(float(np.log(p)[0]), 1 - p, (p * (1 - p))[:, None])
            ascent = climb(ascent, found, ["b"], "ridge")

    with pytest.raises(Refusal, match="effect of b has no end"):
        rise_for_ever()
