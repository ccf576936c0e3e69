from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.aggregators.centered_clipping import centered_clipping
from wardround.core.contracts import Aggregator, Message

Matrix = np.ndarray[Any, Any]


def answers(values: Matrix, weight: Matrix | None = None) -> Message:
    weight = np.ones(len(values)) if weight is None else weight
    sent = (values * weight[:, None]).astype(np.float32)
    return Message({"update": {"w": sent}, "weight": weight.astype(np.float32)})


def combined(aggregator: Aggregator, values: Matrix, state: Any = None) -> tuple[Matrix, Any]:
    message = answers(values)
    state = aggregator.init(jax.tree.map(lambda leaf: np.zeros_like(leaf[0]), message)) if state is None else state
    result, after = jax.jit(aggregator.reduce)(state, message)
    return np.asarray(result.arrays["update"]["w"]), after


def test_two_answers_one_clipped() -> None:
    # v = 0, radius 2. (3, 4) has length 5 and becomes (1.2, 1.6); (0, 1) stays. Mean: (0.6, 1.3).
    result, after = combined(centered_clipping(radius=2.0), np.array([[3.0, 4.0], [0.0, 1.0]]))
    np.testing.assert_allclose(result, [0.6, 1.3], rtol=1e-6)
    np.testing.assert_allclose(after["update"]["w"], [0.6, 1.3], rtol=1e-6)


def test_the_next_round_and_the_next_iteration_start_at_the_last_result() -> None:
    # One number, answers 10 and 0, radius 2. From 0: (2 + 0) / 2 = 1. From 1: 1 + (2 - 1) / 2 = 1.5. From 1.5:
    # 1.5 + (2 - 1.5) / 2 = 1.75.
    values = np.array([[10.0], [0.0]])
    once = centered_clipping(radius=2.0)
    state = None
    for expected in (1.0, 1.5, 1.75):
        result, state = combined(once, values, state)
        np.testing.assert_allclose(result, [expected], rtol=1e-6)
    np.testing.assert_allclose(combined(centered_clipping(radius=2.0, iterations=3), values)[0], [1.75], rtol=1e-6)


def test_a_large_radius_is_the_plain_mean_whatever_came_before() -> None:
    values = np.random.default_rng(0).normal(size=(5, 8))
    state = {"update": {"w": jnp.full(8, 3.0)}}
    np.testing.assert_allclose(
        combined(centered_clipping(radius=1e3), values, state)[0], values.mean(axis=0), rtol=1e-5, atol=1e-6
    )


def test_a_round_without_answers_keeps_the_state_and_gives_zeros() -> None:
    state = {"update": {"w": jnp.array([1.0, 2.0])}}
    result, after = jax.jit(centered_clipping().reduce)(state, answers(np.ones((3, 2)), np.zeros(3)))
    np.testing.assert_array_equal(result.arrays["update"]["w"], [0.0, 0.0])
    np.testing.assert_array_equal(after["update"]["w"], [1.0, 2.0])


@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), exponent=st.floats(0, 30))
def test_a_bad_site_moves_the_result_by_at_most_its_share_of_the_radius(seed: int, exponent: float) -> None:
    # Against a site that stays at v (0 here), one of seven moves the mean by at most radius / 7.
    random = np.random.default_rng(seed)
    values = random.normal(size=(7, 5))
    values[3] = 0.0
    aggregator = REUSED
    quiet, _ = combined(aggregator, values)
    values[3] = random.normal(size=5) * 10.0**exponent
    assert np.linalg.norm(combined(aggregator, values)[0] - quiet) <= 1.5 / 7 + 1e-5


REUSED = centered_clipping(radius=1.5)
