"""Whole numbers that add up exactly, in a compiled program and in the ring."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amount import examples
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.fixed_point import (
    ANSWER_BITS,
    DIGIT_BITS,
    LIMBS,
    MOST_SITES,
    decode_sum,
    digits_of,
    encode_answer,
    from_ring,
    limbs_of,
    refuse_too_wide,
    ring_of,
    ring_vector,
    value_of,
)

LARGEST = 2**DIGIT_BITS - 1
# Compiled, as in a round; eagerly every single operation would be compiled for itself.
digits_of = jax.jit(digits_of, static_argnums=1)
value_of = jax.jit(value_of, static_argnums=1)
encode_answer = jax.jit(encode_answer, static_argnums=(1, 2))
decode_sum = jax.jit(decode_sum, static_argnums=1)


def in_python(digits) -> int:
    """What digits mean, with Python's own integers."""
    return sum(int(digit) * 2 ** (DIGIT_BITS * place) for place, digit in enumerate(digits))


def to_float32(number: int, fraction_bits: int) -> np.float32:
    """The nearest: a Python integer becomes a float64 or, beyond 53 bits, was chosen so that this is exact enough."""
    return np.float32(number / 2**fraction_bits)


def test_digits_by_hand():
    # 3.25 with 2 places is 13; -1000.5 with 2 places is -4002 = -(1954 + 1 * 2048); half to even: 0.125 -> 0.5 -> 0.
    digits = np.asarray(digits_of(np.float32([3.25, -1000.5, 0.125, 0.375, 0.0]), 2))
    assert digits.T.tolist() == [[13, 0, 0, 0], [-1954, -1, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]]


@settings(max_examples=examples(200), deadline=None)
@given(st.floats(-(2.0**22), 2.0**22, width=32))
def test_digits_mean_the_rounded_number(value):
    digits = np.asarray(digits_of(np.float32(value), 20))
    assert in_python(digits) == round(value * 2**20)  # exact in float64; Python rounds half to even, too
    assert np.abs(digits).max() <= LARGEST
    assert int(ring_of(digits[:, None])[0]) == round(value * 2**20) % 2**64


def test_a_million_sites_add_up_exactly_and_come_back_exactly():
    # Every digit at its largest, as often as there may be sites, in 32-bit integers.
    one = np.full((LIMBS, 1), LARGEST, np.int32)
    assert in_python(one[:, 0]) == 2**44 - 1
    total = one * np.int32(MOST_SITES)
    assert total.dtype == np.int32
    assert in_python(np.asarray(total)[:, 0]) == MOST_SITES * (2**44 - 1)
    for sign in (1, -1):
        # 2^20 (2^44 - 1) / 2^20 rounds to 2^44.
        assert float(value_of(sign * total, 20)[0]) == sign * 2.0**44


def test_sums_of_many_answers_are_those_of_python_integers():
    generator = np.random.default_rng(0)
    # Of all sizes and both signs, so that digits of different places cancel.
    values = generator.normal(size=(2000, 20)) * 2.0 ** generator.integers(-18, 18, (2000, 20))
    values = values.astype(np.float32)
    total = np.asarray(jax.jit(lambda x: jax.vmap(lambda one: digits_of(one, 20))(x).sum(axis=0))(values))
    exact = [sum(round(float(v) * 2**20) for v in column) for column in values.T]
    assert [in_python(digits) for digits in total.T] == exact
    seen = np.asarray(value_of(total, 20))
    nearest = np.array([to_float32(number, 20) for number in exact])
    assert (np.abs(seen - nearest) <= np.spacing(np.abs(nearest))).all()


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(-LARGEST * MOST_SITES, LARGEST * MOST_SITES), min_size=LIMBS, max_size=LIMBS))
def test_any_summed_digits_come_back_as_the_nearest_float_or_its_neighbour(digits):
    seen = np.float32(value_of(np.array(digits, np.int32)[:, None], 20)[0])
    nearest = to_float32(in_python(digits), 20)
    assert abs(float(seen) - float(nearest)) <= float(np.spacing(abs(nearest)))


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(-(2**24), 2**24), st.integers(0, 37))
def test_a_sum_that_float32_can_hold_comes_back_exactly(mantissa, shift):
    number = mantissa << shift
    digits = limbs_of(np.array([number % 2**64], np.uint64))
    assert float(value_of(digits, 20)[0]) == number / 2**20


def test_the_ring_and_the_digits_are_the_same_numbers():
    numbers = [0, 1, -1, 2047, 2048, -2048, 2**33, -(2**33) - 1, 2**62, -(2**62), 123456789012345678]
    ring = np.array([number % 2**64 for number in numbers], np.uint64)
    digits = limbs_of(ring)
    assert [in_python(one) for one in digits.T] == numbers
    np.testing.assert_array_equal(ring_of(digits), ring)


def answer() -> Message:
    return Message(
        {"update": {"b": np.float32([[1.5, -2.25]]), "a": np.float32([0.1])}, "weight": np.float32(640)},
        (("phase", "one"),),
    )


def test_an_answer_goes_through_the_ring_and_back():
    sent = encode_answer(answer(), 20, 2.0**22)
    vector = ring_vector(sent)
    # Names in order: update/a, update/b, weight. 0.1 in float32 is 0.100000001490116, times 2^20 is 104857.6016.
    assert vector.tolist() == [104858, 3 * 2**19, 2**64 - 9 * 2**18, 640 * 2**20]
    back = decode_sum(from_ring(3 * vector, jax.eval_shape(lambda: sent)), 20)
    np.testing.assert_array_equal(back.arrays["update"]["b"], [[4.5, -6.75]])
    assert float(back.arrays["weight"]) == 1920.0
    assert float(back.arrays["update"]["a"][0]) == np.float32(3 * 104858 / 2**20)
    assert back.meta == (("phase", "one"),)
    with pytest.raises(Refusal, match="has 3 entries, and an answer has 4"):
        from_ring(vector[:3], sent)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**22 + 1, -(2.0**23), 1e38])
def test_what_is_beyond_the_bound_is_told_and_does_not_leave(bad):
    arrays = answer().arrays
    sent = encode_answer(Message({**arrays, "update": {"a": np.float32([1.0, bad])}}), 20, 2.0**22)
    assert np.isnan(sent.arrays["outside"])
    assert not ring_vector(sent).any()
    edge = encode_answer(Message({"weight": np.float32(2.0**22)}), 20, 2.0**22)
    assert edge.arrays["outside"] == 0.0
    assert ring_vector(edge).tolist() == [2**ANSWER_BITS]


def test_more_bits_than_there_is_room_for_are_refused():
    refuse_too_wide(20, 2.0**22)
    refuse_too_wide(0, 2.0**42)
    for bits, bound in ((21, 2.0**22), (20, 2.0**22 + 1), (0, float("inf")), (0, float("nan"))):
        with pytest.raises(Refusal, match="take more than 42 bits"):
            refuse_too_wide(bits, bound)
