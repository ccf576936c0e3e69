"""What shrinks travels packed and arrives as it was; what lies about itself is refused before it costs memory."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.core.contracts import Message
from wardround.deploy.protocol.compression import PACKED, SMALLEST, pack, unpack
from wardround.deploy.protocol.wire import Malformed, decode, encode


def half_zeros(size: int) -> bytes:
    noise = np.random.default_rng(3).integers(0, 256, size // 2, np.uint8).tobytes()
    return b"".join(noise[i : i + 64] + bytes(64) for i in range(0, len(noise), 64))


@pytest.mark.parametrize("size", [SMALLEST, 1 << 17, 5_000_000])
def test_zeros_shrink_and_come_back(size):
    content = half_zeros(size)
    travels = pack(content)
    # Half of it is noise, which does not shrink.
    assert 0.5 * len(content) < len(travels) < 0.6 * len(content)
    assert bytes(unpack(travels)) == content
    assert bytes(unpack(memoryview(travels))) == content


def test_a_model_travels_as_it_is():
    weights = np.random.default_rng(1).normal(size=100_000).astype(np.float32)
    content = encode({"study": "s"}, Message({"update": {"w": weights}}))
    assert pack(content) is content
    assert unpack(content) is content


def test_an_answer_with_few_numbers_arrives():
    sparse = np.zeros(100_000, np.float32)
    sparse[::7] = np.random.default_rng(1).normal(size=len(sparse[::7]))
    content = encode({"study": "s"}, Message({"update": {"w": sparse}}))
    travels = pack(content)
    assert len(travels) < 0.3 * len(content)
    np.testing.assert_array_equal(decode(unpack(travels))[1].arrays["update"]["w"], sparse)


@given(st.binary(max_size=200))
def test_small_messages_are_left_alone(content):
    assert pack(content) is content
    if not content.startswith(PACKED):
        assert unpack(content) is content


def test_what_shrinks_beyond_belief_travels_as_it_is():
    assert pack(bytes(1 << 20)) == bytes(1 << 20)


def said(size: int, content: bytes) -> bytes:
    return PACKED + struct.pack("<Q", size) + content


@pytest.mark.parametrize(
    "lie",
    [
        PACKED,
        PACKED + b"\x01" * 7,
        said(10, b"nonsense"),
        said(1 << 62, zlib.compress(bytes(1000))),
        said(999, zlib.compress(bytes(1000))),
        said(1001, zlib.compress(bytes(1000))),
        said(1000, zlib.compress(bytes(1000))[:-1]),
        said(1000, zlib.compress(bytes(1000)) + b"more"),
        said(0, zlib.compress(b"x")),
    ],
)
def test_lies_are_refused(lie):
    with pytest.raises(Malformed):
        unpack(lie)


def test_a_bomb_takes_no_memory():
    """A gigabyte of zeros in a megabyte, and a header that says what is allowed for a megabyte."""
    bomb = zlib.compress(bytes(1 << 28), 9)
    for size in (1 << 28, 50 * len(bomb)):
        tracemalloc.start()
        with pytest.raises(Malformed):
            unpack(said(size, bomb))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 110 * len(bomb)
