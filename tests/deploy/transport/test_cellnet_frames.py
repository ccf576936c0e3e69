"""Frames are FLARE's protocol buffer, byte for byte, and nothing else is taken for one."""

import random

import pytest

from wardround.deploy.transport.cellnet_frames import Frame, number, number_at

theirs = pytest.importorskip("nvflare.fuel.f3.drivers.grpc.streamer_pb2", reason="needs wardround[deploy]").Frame


@pytest.mark.parametrize("seq", [1, 127, 128, 300, 2**31 - 1])
@pytest.mark.parametrize("size", [1, 127, 128, 70_000])
def test_both_ways_as_the_generated_class(seq: int, size: int) -> None:
    data = random.Random(size).randbytes(size)
    cut = size // 3
    ours = Frame(seq, (bytearray(data[:cut]), memoryview(data)[cut:])).SerializeToString()
    assert ours == theirs(seq=seq, data=data).SerializeToString()
    read = Frame.FromString(ours)
    assert (read.seq, bytes(read.data)) == (seq, data)


def test_what_a_protocol_buffer_leaves_out() -> None:
    """Zero and nothing are not written by it."""
    assert (Frame.FromString(b"").seq, bytes(Frame.FromString(b"").data)) == (0, b"")
    for frame in (theirs(seq=5), theirs(data=b"abc"), theirs(seq=7, data=b"x")):
        read = Frame.FromString(frame.SerializeToString())
        assert (read.seq, bytes(read.data)) == (frame.seq, frame.data)


def test_numbers_by_hand() -> None:
    # 300 = 0b10_0101100: the low seven bits 0101100 with the eighth set (0xAC), then 10 (0x02).
    assert number(300) == b"\xac\x02"
    assert number_at(b"?\xac\x02!", 1) == (300, 3)


@pytest.mark.parametrize(
    "raw",
    [b"\x08", b"\x08\x80", b"\x12", b"\x12\x05ab", b"\x12\x01ab", b"\x18\x01", b"\x08" + b"\xff" * 11, b"\x0a\x00"],
)
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="frame"):
        Frame.FromString(raw)


def test_noise_never_does_more_than_raise() -> None:
    generator = random.Random(1)
    whole = Frame(300, b"some bytes of a message").SerializeToString()
    for _ in range(20_000):
        raw = bytearray(whole)
        for _ in range(generator.randrange(1, 4)):
            raw[generator.randrange(len(raw))] = generator.randrange(256)
        try:
            read = Frame.FromString(bytes(raw[: generator.randrange(len(raw) + 1)]))
        except ValueError:
            continue
        assert len(read.data) <= len(raw)
