import jax
import numpy as np
import pytest

from wardround.aggregators.median import median
from wardround.core.contracts import Message

reduce = jax.jit(median().reduce)


def test_middle_of_three_and_mean_of_the_middle_two_of_four_whatever_the_weights() -> None:
    # Columns 0, 10, 4 -> 4 and 1, 2, 9 -> 2; with a fourth row (6, 3): 0, 4, 6, 10 -> 5 and 1, 2, 3, 9 -> 2.5.
    values = np.array([[0.0, 9.0], [10.0, 1.0], [4.0, 2.0], [6.0, 3.0]])
    for weights, expected in (([7.0, 1.0, 2.0, 0.0], [4.0, 2.0]), ([7.0, 1.0, 2.0, 5.0], [5.0, 2.5])):
        weight = np.array(weights)
        message = Message(
            {"update": (values * weight[:, None]).astype(np.float32), "weight": weight.astype(np.float32)}
        )
        np.testing.assert_allclose(reduce((), message)[0].arrays["update"], expected, rtol=1e-6)


@pytest.mark.parametrize("present", [1, 2, 5, 8])
def test_agrees_with_numpy(present: int) -> None:
    values = np.random.default_rng(0).normal(size=(8, 3000)).astype(np.float32)
    weight = (np.arange(8) < present).astype(np.float32)
    message = Message({"update": (values * weight[:, None]).astype(np.float32), "weight": weight.astype(np.float32)})
    expected = np.median(values[:present], axis=0)
    np.testing.assert_allclose(reduce((), message)[0].arrays["update"], expected, rtol=1e-6, atol=1e-7)
