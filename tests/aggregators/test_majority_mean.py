"""Too long answers are left out, nobody for being different; a step that most would lose by is not taken."""

from typing import Any

import jax
import numpy as np
import pytest

from wardround.aggregators.majority_mean import is_ordinary, majority_mean
from wardround.core.contracts import Message


def combined(values: Any, weights: Any = None, **settings: Any) -> np.ndarray[Any, Any]:
    values = np.asarray(values, np.float32)
    weights = np.ones(len(values), np.float32) if weights is None else np.asarray(weights, np.float32)
    message = Message({"update": values * weights[:, None], "weight": weights})
    return np.asarray(jax.jit(majority_mean(**settings).reduce)((), message)[0].arrays["update"])


def test_what_is_ordinary_by_hand() -> None:
    # Median 10 of 8, 9, 10, 11, 12, 0.5 and 30 (0.5 is below a tenth of it): then of 8, 9, 10, 11, 12, 30 the median is
    # 10.5, the deviations 2.5, 1.5, 0.5, 0.5, 1.5, 19.5: median 1.5, so 10.5 + 3 * 1.4826 * 1.5 = 17.2 is the limit.
    lengths, present = np.array([8.0, 9.0, 10.0, 11.0, 12.0, 0.5, 30.0]), np.ones(7, bool)
    assert np.asarray(is_ordinary(lengths, present, 3.0)).tolist() == [True] * 5 + [False] * 2
    # Lengths all but equal: nothing up to 1.25 times the median is too long, 1.3 times is.
    assert np.asarray(is_ordinary(np.array([1.0, 1.0, 1.0, 1.2, 1.3]), np.ones(5, bool), 3.0)).tolist() == [
        True
    ] * 4 + [False]
    # Very different lengths: twice the median (3.5) is always too long.
    spread = np.array([1.0, 2.0, 3.0, 4.0, 6.9, 7.1])
    assert np.asarray(is_ordinary(spread, np.ones(6, bool), 30.0)).tolist() == [True] * 5 + [False]


def test_honest_sites_that_differ_give_their_mean() -> None:
    # Ten sites that each say something else (a rotation of a basis), and share a direction: nobody is left out.
    values = np.eye(10) + 0.2
    np.testing.assert_allclose(combined(values), values.mean(axis=0), rtol=1e-5)


def test_weights_do_not_count_and_empty_seats_are_not_heard() -> None:
    values = np.eye(10) + 0.2
    seats, weights = np.insert(values, 3, 50.0, axis=0), np.insert(np.arange(1.0, 11.0), 3, 0.0)
    np.testing.assert_allclose(combined(seats, weights), values.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_a_mean_turned_round_by_three_in_ten_does_not_turn_the_step(factor: float) -> None:
    """Six of twenty send minus a multiple of the honest mean; with 3 the plain mean points backwards."""
    random = np.random.default_rng(0)
    honest = random.normal(size=(14, 40)) * 0.5 + random.normal(size=40)
    lies = np.tile(-factor * honest.mean(axis=0), (6, 1))
    found, plain = combined(np.concatenate([honest, lies])), np.concatenate([honest, lies]).mean(axis=0)
    assert found @ honest.mean(axis=0) > 0
    if factor == 3.0:
        assert plain @ honest.mean(axis=0) < 0
        np.testing.assert_allclose(found, honest.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_stretched_lies_are_left_out() -> None:
    random = np.random.default_rng(1)
    honest = random.normal(size=(14, 40)) + random.normal(size=40)
    lies = -3 * (random.normal(size=(6, 40)) + random.normal(size=40))
    np.testing.assert_allclose(combined(np.concatenate([lies, honest])), honest.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_nobody_there_and_nothing_said() -> None:
    assert not combined(np.ones((4, 3)), np.zeros(4)).any()
    assert not combined(np.zeros((4, 3))).any()
