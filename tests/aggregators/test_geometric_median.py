from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from wardround.aggregators.geometric_median import geometric_median, weiszfeld
from wardround.aggregators.stacks import open_stack
from wardround.core.contracts import Message

Matrix = np.ndarray[Any, Any]


reduce = jax.jit(geometric_median().reduce)


def answers(values: Matrix, weight: Matrix) -> Message:
    return Message({"update": (values * weight[:, None]).astype(np.float32), "weight": weight.astype(np.float32)})


def combined(values: Matrix, weight: Matrix | None = None) -> Matrix:
    weight = np.ones(len(values)) if weight is None else weight
    return np.asarray(reduce((), answers(values, weight))[0].arrays["update"])


def test_three_points_on_a_line_give_the_middle_one() -> None:
    values = np.array([[0.0, 0.0], [10.0, 20.0], [1.0, 2.0]])
    np.testing.assert_allclose(combined(values), [1.0, 2.0], atol=1e-5)


def test_the_weighted_median_on_a_line_where_the_plain_one_is_another() -> None:
    # Weights 1, 1, 3 at 0, 1, 2: from anywhere left of 2 the right has weight 3, the left at most 2.
    np.testing.assert_allclose(combined(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 1.0, 3.0])), [2.0], atol=1e-5)


def test_the_fermat_point_of_a_right_triangle() -> None:
    # (0,0), (1,0), (0,1): on the axis of symmetry, (t, t), the sum is sqrt(2) t + 2 sqrt(1 - 2t + 2t²); its derivative
    # is 0 at t = (3 - sqrt 3) / 6, where all sides are seen at 120 degrees.
    t = (3 - np.sqrt(3)) / 6
    np.testing.assert_allclose(combined(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])), [t, t], atol=2e-6)


def test_a_corner_of_more_than_120_degrees_is_the_median_itself() -> None:
    # At (0, 0.5) the sides to (-2, 0) and (2, 0) open by 2 arctan(4) = 152 degrees.
    np.testing.assert_allclose(combined(np.array([[-2.0, 0.0], [0.0, 0.5], [2.0, 0.0]])), [0.0, 0.5], atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_a_general_minimizer(seed: int) -> None:
    random = np.random.default_rng(seed)
    values, weight = random.normal(size=(6, 4)), random.integers(1, 9, 6).astype(float)

    def total(point: Matrix) -> float:
        return float(weight @ np.linalg.norm(values - point, axis=1))

    best = minimize(
        total, values.mean(axis=0), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 9999}
    )
    found = combined(values, weight)
    np.testing.assert_allclose(found, best.x, atol=2e-5)
    assert total(found) <= best.fun * (1 + 1e-6)


def test_it_comes_to_rest_soon_even_with_outliers_and_a_large_common_part() -> None:
    values = np.random.default_rng(7).normal(size=(9, 30)) + 1000.0
    values[:3] = 1e11
    steps = jax.jit(lambda message: weiszfeld(open_stack(message), 1e-6, 200)[1])(answers(values, np.ones(9)))
    assert int(steps) < 60


def test_a_majority_of_weight_decides() -> None:
    # One site with more weight than all others together: its answer is the median.
    values = np.random.default_rng(8).normal(size=(4, 3))
    np.testing.assert_allclose(combined(values, np.array([1.0, 7.0, 2.0, 3.0])), values[1], atol=1e-5)
