from typing import Any

import jax
import numpy as np

from wardround.aggregators.norm_bounded import norm_bounded
from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core.contracts import Message

Matrix = np.ndarray[Any, Any]


def combined(norm: float, values: Matrix, weight: Matrix) -> Message:
    """As the engine does: `each` for every site, then the sum, then `reduce`."""
    aggregator = norm_bounded(norm=norm)
    sent = (values * weight[:, None]).astype(np.float32)
    stack = Message({"update": {"a": sent[:, :1], "b": sent[:, 1:]}, "weight": weight.astype(np.float32)})
    assert aggregator.each is not None

    def run(stack: Message) -> Message:
        each = jax.vmap(lambda answer: aggregator.each((), answer))(stack)  # type: ignore[misc]
        return aggregator.reduce((), jax.tree.map(lambda leaf: leaf.sum(axis=0), each))[0]

    return jax.jit(run)(stack)


def test_long_answers_are_scaled_before_they_are_averaged_by_weight() -> None:
    # (3, 4) has length 5 and becomes (0.6, 0.8) * 2.5 = (1.5, 2); (1, 0) stays. Weights 1 and 3: (4.5, 2) / 4.
    result = combined(2.5, np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([1.0, 3.0])).arrays
    np.testing.assert_allclose([result["update"]["a"][0], result["update"]["b"][0]], [1.125, 0.5], rtol=1e-6)
    assert float(result["weight"]) == 4.0


def test_a_bound_that_nobody_reaches_is_the_weighted_mean() -> None:
    values, weight = np.random.default_rng(0).normal(size=(5, 6)), np.arange(1.0, 6.0)
    result = combined(1e3, values, weight).arrays["update"]
    expected = np.average(values, axis=0, weights=weight)
    np.testing.assert_allclose(np.concatenate([result["a"], result["b"]]), expected, rtol=1e-5, atol=1e-6)


def test_an_answer_of_any_size_counts_for_at_most_its_weight_times_the_bound() -> None:
    # One vote of four: at most 2 / 4 from what the other three (all 0) say; a size whose square overflows too.
    for size in (1e3, 1e15, 1e30):
        values = np.zeros((4, 3))
        values[2] = size
        result = combined(2.0, values, np.ones(4)).arrays["update"]
        assert np.linalg.norm(np.concatenate([result["a"], result["b"]])) <= 0.5 + 1e-6


def test_nobody_there_gives_zeros_and_it_is_not_for_secure_sums() -> None:
    result = combined(1.0, np.zeros((3, 2)), np.zeros(3)).arrays
    np.testing.assert_array_equal(result["update"]["b"], [0.0])
    assert norm_bounded().linear
    assert not norm_bounded().is_plain_sum
    assert weighted_mean().is_plain_sum
