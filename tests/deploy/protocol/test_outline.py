"""A message as named segments: what the other side has does not travel, and what arrives is the same to the byte."""

import struct

import numpy as np
import pytest

from wardround.core.contracts import Message
from wardround.deploy.protocol.outline import (
    ENTRY,
    NAME,
    OUTLINE,
    OutlinedMessage,
    is_outline,
    name_of,
    read_outline,
    without,
)
from wardround.deploy.protocol.wire import Malformed, array_ends, encode

RNG = np.random.default_rng(5)
WEIGHTS, BIAS = RNG.normal(size=(100, 50)).astype(np.float32), np.zeros(50, np.float32)
MODEL = {"kernel": WEIGHTS, "bias": BIAS}
ROUND = OutlinedMessage(encode({"topic": "round"}, Message({"params": MODEL})))
JUDGE = OutlinedMessage(
    encode({"topic": "judge", "part": "test"}, Message({"sent": {"params": MODEL}, "params": MODEL}))
)


def test_segments_are_what_stands_before_the_arrays_and_the_arrays() -> None:
    # 20,000 bytes of weights are a segment; 200 bytes of a bias are fewer than 512 and belong to the one before.
    lengths = [one.end - one.begin for one in ROUND.segments]
    assert lengths[1:] == [WEIGHTS.nbytes + BIAS.nbytes]
    assert sum(lengths) == len(ROUND.content)
    assert array_ends(ROUND.content)[-2:] == [len(ROUND.content) - BIAS.nbytes, len(ROUND.content)]


def test_a_model_has_the_same_name_in_every_message() -> None:
    names = {one.name for one in ROUND.segments[1:]}
    assert {one.name for one in JUDGE.segments[1:]} == names
    # Judging sends the model twice, of which once travels; and not at all to one who has it from the round before.
    header = JUDGE.segments[0].end
    assert JUDGE.unknown_bytes(()) == header + WEIGHTS.nbytes + BIAS.nbytes
    assert JUDGE.unknown_bytes(names) == header


def test_an_outline_is_read_as_it_was_written() -> None:
    read = read_outline(JUDGE.outline((), inline=True))
    assert (read.segments, read.size, read.name) == (JUDGE.segments, len(JUDGE.content), JUDGE.name)
    assert b"".join(read.inline[one.name] for one in read.segments) == JUDGE.content
    assert is_outline(JUDGE.outline((), inline=False))
    assert read_outline(JUDGE.outline((), inline=False)).inline == {}
    known = {JUDGE.segments[1].name}
    assert set(read_outline(JUDGE.outline(known, inline=True)).inline) == {JUDGE.segments[0].name}


@pytest.mark.parametrize("content", [b"x" * 5000, b"WR1\n" + b"\xff" * 5000, b"WR1\n", b"WR1\n\0\0\0\0" + b"\xff" * 90])
def test_bytes_that_are_no_message_of_ours_are_one_segment(content: bytes) -> None:
    [segment] = OutlinedMessage(content).segments
    assert segment == (name_of(content), 0, len(content))


def claim(*lengths: int, more: bytes = b"") -> bytes:
    entries = b"".join(ENTRY.pack(bytes(NAME), length) for length in lengths)
    return OUTLINE + struct.pack("<I", len(lengths)) + entries + more


@pytest.mark.parametrize(
    "content",
    [
        b"",
        OUTLINE,
        OUTLINE + b"\0\0\0\0",
        OUTLINE + b"\xff\xff\xff\x7f",
        claim(10)[:-1],
        claim(2**31, 1),
        claim(2**62),
        claim(10 | 1 << 63),
        claim(10 | 1 << 63, more=b"123"),
        claim(10, more=b"123"),
    ],
    ids=repr,
)
def test_nonsense_is_malformed(content: bytes) -> None:
    with pytest.raises(Malformed):
        read_outline(content)


def test_ranges_by_hand() -> None:
    gaps = [(0, 10), (20, 30)]
    assert without(gaps, 5, 25) == [(0, 5), (25, 30)]
    assert without(gaps, 10, 20) == gaps
    assert without(gaps, 2, 3) == [(0, 2), (3, 10), (20, 30)]
    assert without(gaps, 0, 30) == []
