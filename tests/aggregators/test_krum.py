from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from wardround.aggregators.krum import krum, squared_distances
from wardround.aggregators.stacks import open_stack
from wardround.core.contracts import Message

Matrix = np.ndarray[Any, Any]


@cache
def reduce(bad: int) -> Any:
    return jax.jit(krum(bad=bad).reduce)


def answers(values: Matrix, weight: Matrix | None = None) -> Message:
    weight = np.ones(len(values)) if weight is None else weight
    return Message({"update": (values * weight[:, None]).astype(np.float32), "weight": weight.astype(np.float32)})


def chosen(values: Matrix, bad: int, weight: Matrix | None = None) -> Matrix:
    return np.asarray(reduce(bad)((), answers(values, weight))[0].arrays["update"])


def test_five_answers_on_a_line() -> None:
    # f = 1: two neighbours each. 0: 1 + 9 = 10; 1: 1 + 4 = 5; 3: 4 + 9 = 13; 7: 16 + 36 = 52; 100: 93² + 97². So 1.
    values = np.array([[100.0], [0.0], [3.0], [1.0], [7.0]])
    np.testing.assert_allclose(chosen(values, 1, np.array([9.0, 1.0, 2.0, 4.0, 8.0])), [1.0])


def test_two_that_are_each_others_neighbour_are_parted_by_their_distance_to_all() -> None:
    # f = 0, one neighbour each: 0 and 1 both score 1, 5 scores 16; in all, 0 has 1 + 25 and 1 has 1 + 16.
    for order in ([0.0, 1.0, 5.0], [5.0, 1.0, 0.0], [1.0, 5.0, 0.0]):
        np.testing.assert_array_equal(chosen(np.array(order)[:, None], 0), [1.0])


@pytest.mark.parametrize(("sites", "bad"), [(5, 1), (9, 2), (9, 3), (9, 0)])
def test_agrees_with_the_definition_written_out(sites: int, bad: int) -> None:
    values = np.random.default_rng(sites * 10 + bad).normal(size=(sites, 6))
    scores = []
    for i in range(sites):
        distances = sorted(float(np.sum((values[i] - values[j]) ** 2)) for j in range(sites) if j != i)
        scores.append(sum(distances[: sites - bad - 2]))
    np.testing.assert_allclose(chosen(values, bad), values[int(np.argmin(scores))], rtol=1e-6)


def test_distances_survive_a_large_common_part_and_a_far_outlier() -> None:
    # 4096 + k / 64 is exact in single precision, but its square is not known to better than 1, four thousand times the
    # squared distances asked for here; the outlier would carry a mean off to 2e11.
    values = np.array([[4096.0 + k / 64] for k in (0, 1, 3, 7)] + [[1e12]])
    found = jax.jit(lambda message: squared_distances(open_stack(message)))(answers(values))
    expected = (values - values.T) ** 2
    np.testing.assert_allclose(found[:4, :4], expected[:4, :4], rtol=1e-6)
    np.testing.assert_allclose(found[4, :4], expected[4, :4], rtol=1e-6)


def test_two_colluding_sites_of_seven_are_not_chosen() -> None:
    good = np.random.default_rng(0).normal(size=(5, 4))
    values = np.concatenate([np.full((2, 4), 30.0), good])
    best = chosen(values, 2)
    assert any(np.allclose(best, row, rtol=1e-6) for row in good)


def test_too_few_answers_count_as_none() -> None:
    assert krum(bad=2).fewest == 7
    weight = np.array([1.0] * 6 + [0.0])
    message = reduce(2)((), answers(np.ones((7, 4)), weight))[0]
    np.testing.assert_array_equal(message.arrays["update"], np.zeros(4))
    assert float(message.arrays["weight"]) == 0.0
