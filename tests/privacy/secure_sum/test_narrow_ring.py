"""A secure sum modulo less than 2^64: exact as long as the sum fits, as few bytes as its bits, and nothing wraps."""

import numpy as np
import pytest

from tests.support import secure_sum_round as rounds
from wardround.core.codes.bit_field import pack_words, packed_bytes, unpack_words
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol.ring_bytes import arrays_of, read_vector
from wardround.privacy.secure_sum.masks import signed_from
from wardround.privacy.secure_sum.messages import BadMessage
from wardround.privacy.secure_sum.server import receive_vector
from wardround.privacy.secure_sum.session import session_from_json, session_to_json


@pytest.mark.parametrize(("bits", "count"), [(12, 3), (16, 7), (32, 7), (63, 4)])
def test_the_sum_of_answers_with_a_sign_is_exact_with_a_third_lost(bits, count):
    most = (2 ** (bits - 1) - 1) // count
    one = rounds.begun(count, entries=5, ring_bits=bits, fraction_bits=0, bound=float(most) if bits < 50 else 2.0**40)
    generator = np.random.default_rng(bits)
    plain = {name: generator.integers(-most, most + 1, 5) for name in one.session.roster}
    plain = {name: np.concatenate([[most], numbers[1:]]) for name, numbers in plain.items()}  # all at the bound
    one.vectors = {name: numbers.astype(np.int64).view(np.uint64) for name, numbers in plain.items()}
    lost = [] if count == 3 else list(one.session.roster[:1])
    total = one.total({"mask": lost} if lost else {})
    expected = sum(numbers for name, numbers in plain.items() if name not in lost)
    assert total.view(np.int64).tolist() == expected.tolist()
    masked = [message.vector for message in one.said if message.vector is not None]
    assert all(int(vector.max()) < 2**bits for vector in masked)


def test_masked_numbers_look_even():
    """Of 20,000 masked zeros each of the 256 values comes up about 78 times, no more unevenly than by chance."""
    one = rounds.begun(3, entries=20_000, ring_bits=8, fraction_bits=0, bound=10.0)
    one.vectors = {name: np.zeros(20_000, np.uint64) for name in one.session.roster}
    assert not one.total({}).any()
    counts = np.bincount(next(m.vector for m in one.said if m.vector is not None).astype(int), minlength=256)
    # Chi-square with 255 degrees of freedom: mean 255, deviation sqrt(510) = 22.6.
    assert np.square(counts - 20_000 / 256).sum() / (20_000 / 256) < 255 + 5 * 22.6


@pytest.mark.parametrize("bits", [8, 12, 31, 33, 63])
def test_bytes_are_those_of_the_bits_and_a_wrong_length_is_refused_before_it_is_unpacked(bits):
    session = rounds.session_of(3, 1001, ring_bits=bits, fraction_bits=0, bound=10.0)
    vector = np.random.default_rng(0).integers(0, 2**bits, 1001, np.uint64)
    arrays = arrays_of(vector, bits)
    assert arrays["packed"].nbytes == packed_bytes(1001, bits) == bits * 126
    np.testing.assert_array_equal(read_vector(Message(arrays), session, "a"), vector)
    for wrong in (arrays["packed"][:-1], np.append(arrays["packed"], 0).astype(np.uint8)):
        with pytest.raises(BadMessage, match="1001 numbers of"):
            read_vector(Message({"packed": wrong}), session, "a")
    np.testing.assert_array_equal(unpack_words(pack_words(vector, bits), bits, 1001), vector)


def test_what_does_not_fit_is_refused():
    # 3 x 50 = 150 needs more than 8 bits with a sign; 3 x 42 = 126 does not.
    with pytest.raises(Refusal, match="does not fit into 8 bits"):
        rounds.session_of(3, 5, ring_bits=8, fraction_bits=0, bound=50.0)
    session = rounds.session_of(3, 5, ring_bits=8, fraction_bits=0, bound=42.0)
    assert session_from_json(session_to_json(session)) == session
    assert "ring_bits" not in session_to_json(rounds.session_of(3, 5)), "as parties say it that know no other ring"
    assert session.digest != rounds.session_of(3, 5, ring_bits=9, fraction_bits=0, bound=42.0).digest
    with pytest.raises(Refusal, match="does not fit into 65 bits"):
        rounds.session_of(3, 5, ring_bits=65)


def test_numbers_beyond_the_ring_are_no_answer():
    one = rounds.begun(3, entries=5, ring_bits=8, fraction_bits=0, bound=42.0)
    one.vectors = {name: np.zeros(5, np.uint64) for name in one.session.roster}
    one.total({})
    letter = next(m for m in one.said if m.vector is not None)
    large = type(letter)(**{**letter.__dict__, "vector": letter.vector + np.uint64(256)})
    with pytest.raises(BadMessage, match="more than 8 bits"):
        receive_vector(one.server, large)


def test_signs_come_back():
    found = signed_from(np.array([0, 1, 2047, 2048, 4095, 4096 + 5], np.uint64), 12).view(np.int64)
    assert found.tolist() == [0, 1, 2047, -2048, -1, 5]
