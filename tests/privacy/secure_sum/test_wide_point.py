"""Doubles as whole numbers: sums come back as exact arithmetic gives them, whatever their sizes."""

from fractions import Fraction

import numpy as np
import pytest

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.wide_point import DIGIT_BITS, LIMIT, from_digits, to_digits


def summed(*answers):
    total = np.stack([to_digits(one) for one in answers]).sum(axis=0, dtype=np.uint64)
    return from_digits(total, answers[0]).arrays


def test_one_number_by_hand():
    # 3 * 2^30 + 5 * 2^-10: the digits are 3, 5, 0, 0. Of -1.5 they are 0, -1.5 * 2^10 = -1536, 0, 0.
    found = to_digits(Message({"x": np.array([3 * 2.0**30 + 5 * 2.0**-10, -1.5])})).view(np.int64)
    assert found.tolist() == [3, 5, 0, 0, 0, -1536, 0, 0]


def test_every_double_from_small_to_large_comes_back():
    random = np.random.default_rng(1)
    x = random.normal(size=2000) * 10.0 ** random.uniform(-10, 20, 2000)
    np.testing.assert_array_equal(summed(Message({"x": x}))["x"], x)
    tiny = np.array([2.0**-90, -(2.0**-89), 1e-300, 0.0])
    np.testing.assert_array_equal(summed(Message({"x": tiny}))["x"], [2.0**-90, -(2.0**-89), 0.0, 0.0])


def test_a_sum_is_the_exact_one_rounded_once():
    # Where doubles cancel, a plain sum of doubles loses what the whole numbers keep.
    random = np.random.default_rng(2)
    parts = [random.normal(size=50) * 10.0 ** random.uniform(-8, 15, 50) for _ in range(20)]
    exact = [float(sum(Fraction(part[i]) for part in parts)) for i in range(50)]
    np.testing.assert_array_equal(summed(*(Message({"x": part}) for part in parts))["x"], exact)


def test_shapes_and_names_come_back():
    answer = Message({"b": {"matrix": np.arange(6.0).reshape(2, 3)}, "a": np.array(4.0)})
    found = summed(answer, answer)
    np.testing.assert_array_equal(found["b"]["matrix"], 2 * np.arange(6.0).reshape(2, 3))
    assert found["a"].shape == ()


def test_digits_leave_room_for_a_million_sites():
    digits = to_digits(Message({"x": np.array([np.nextafter(LIMIT, 0), -np.nextafter(LIMIT, 0)])})).view(np.int64)
    assert np.abs(digits).max() <= 2**DIGIT_BITS
    assert 2**20 * 2**DIGIT_BITS < 2**63


@pytest.mark.parametrize("bad", [np.nan, np.inf, LIMIT, -LIMIT])
def test_what_does_not_fit_is_refused(bad):
    with pytest.raises(Refusal, match="not finite, or beyond 1e"):
        to_digits(Message({"x": np.array([1.0, bad])}))


def test_a_sum_of_another_length_is_refused():
    with pytest.raises(Refusal, match="8 entries, and an answer has 4"):
        from_digits(np.zeros(8, np.uint64), Message({"x": np.zeros(1)}))
