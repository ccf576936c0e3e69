"""Numbers by hand, and what the sum alone must suffice for."""

import jax.numpy as jnp
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.core.contracts import Message


def total(*answers: tuple[float, list[float]]) -> Message:
    """The sum of answers, each (weight, values), as the engine adds them: multiplied by their weights."""
    weights = np.array([weight for weight, _ in answers], np.float32)
    values = np.array([values for _, values in answers], np.float32)
    return Message({"update": {"w": jnp.asarray(weights @ values)}, "weight": jnp.asarray(weights.sum())})


def test_counts_patients():
    """(1 * [2, 0] + 3 * [6, 4]) / 4 = [5, 3]."""
    combined, state = weighted_mean().reduce((), total((1, [2, 0]), (3, [6, 4])))
    np.testing.assert_allclose(combined.arrays["update"]["w"], [5, 3])
    assert float(combined.arrays["weight"]) == 4
    assert state == ()


def test_nobody_answered_moves_nothing():
    combined, _ = weighted_mean().reduce((), total((0, [7, 7])))
    np.testing.assert_array_equal(combined.arrays["update"]["w"], [0, 0])
    assert float(combined.arrays["weight"]) == 0


def test_is_fit_for_secure_sums():
    assert weighted_mean().is_plain_sum
