from typing import Any

import jax
import numpy as np
import pytest

from wardround.aggregators.krum import krum
from wardround.aggregators.multi_krum import multi_krum
from wardround.core.contracts import Aggregator, Message

Matrix = np.ndarray[Any, Any]


def combined(aggregator: Aggregator, values: Matrix, weight: Matrix | None = None) -> Matrix:
    weight = np.ones(len(values)) if weight is None else weight
    message = Message({"update": (values * weight[:, None]).astype(np.float32), "weight": weight.astype(np.float32)})
    return np.asarray(jax.jit(aggregator.reduce)((), message)[0].arrays["update"])


@pytest.mark.parametrize(
    ("keep", "expected"),
    [(0, 2.75), (2, 0.5), (3, 4 / 3)],
)
def test_five_answers_on_a_line(keep: int, expected: float) -> None:
    # f = 1: 0 scores 10, 1 scores 5, 3 scores 13, 7 scores 52, 100 far more. Best first: 1, 0, 3, 7, 100; by default
    # 5 - 1 = 4 are kept: (1 + 0 + 3 + 7) / 4. Weights have no say.
    values = np.array([[100.0], [0.0], [3.0], [1.0], [7.0]])
    result = combined(multi_krum(bad=1, keep=keep), values, np.array([9.0, 1.0, 2.0, 4.0, 8.0]))
    np.testing.assert_allclose(result, [expected], rtol=1e-6)


def test_keeping_one_is_krum() -> None:
    values = np.random.default_rng(4).normal(size=(9, 5))
    np.testing.assert_array_equal(combined(multi_krum(bad=2, keep=1), values), combined(krum(bad=2), values))


def test_the_default_follows_the_number_that_is_there() -> None:
    # Five of seven are there and f = 1, so 4 are kept: as above, 2.75.
    values = np.array([[50.0], [100.0], [0.0], [3.0], [1.0], [7.0], [60.0]])
    weight = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(combined(multi_krum(bad=1), values, weight), [2.75], rtol=1e-6)


def test_keeping_more_than_can_be_good_asks_for_more_sites() -> None:
    assert multi_krum(bad=1).fewest == 5
    assert multi_krum(bad=1, keep=8).fewest == 9


def test_no_bad_sites_expected_is_the_plain_mean() -> None:
    values = np.random.default_rng(5).normal(size=(6, 5))
    np.testing.assert_allclose(combined(multi_krum(bad=0), values), values.mean(axis=0), rtol=1e-5, atol=1e-6)
