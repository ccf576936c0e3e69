"""CellNet's frames on their way through gRPC: the bytes of FLARE's own protocol buffer, with one copy instead of six.

A frame is a number and some bytes (`message Frame { int32 seq = 1; bytes data = 2; }`). FLARE puts a part of a message
into a frame, the frame into a buffer, that into a protocol buffer, and that into a string, each time with a copy. Here
the pieces stay where they are until gRPC asks for the string, and what arrived is only looked at.
"""

from collections.abc import Iterator, Sequence
from queue import SimpleQueue

Piece = bytes | bytearray | memoryview
NUMBER, DATA = 0x08, 0x12
"""The tags of the two fields: field 1 as a number, field 2 as bytes."""
LONGEST_NUMBER = 10


class Frame:
    """What FLARE's generated class of this name is to its driver; `data` may be given in pieces."""

    __slots__ = ("pieces", "seq")

    def __init__(self, seq: int = 0, data: Piece | Sequence[Piece] = b"") -> None:
        self.seq = seq
        self.pieces: Sequence[Piece] = (data,) if isinstance(data, bytes | bytearray | memoryview) else data

    @property
    def data(self) -> Piece:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that gRPC's generated code knows
        size = sum(len(piece) for piece in self.pieces)
        return b"".join((bytes((NUMBER,)), number(self.seq), bytes((DATA,)), number(size), *self.pieces))

    @staticmethod
    def FromString(raw: bytes) -> "Frame":  # noqa: N802
        """The frame in these bytes; a ValueError where they hold anything else."""
        place, seq = 0, 0
        if raw[:1] == bytes((NUMBER,)):
            seq, place = number_at(raw, 1)
        if place == len(raw):
            return Frame(seq)
        if raw[place] != DATA:
            raise ValueError("this is not a frame")
        size, place = number_at(raw, place + 1)
        if place + size != len(raw):
            raise ValueError("a frame is not as long as it claims")
        return Frame(seq, memoryview(raw)[place:])


class FrameQueue:
    """In place of FLARE's queue of frames to be sent, which looks ten times a second whether it was closed."""

    def __init__(self) -> None:
        self._frames: SimpleQueue[Frame | None] = SimpleQueue()
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self._frames.put(None)

    def append(self, frame: Frame) -> None:
        self._frames.put(frame)

    def __iter__(self) -> Iterator[Frame]:
        while not self.closed and (frame := self._frames.get()) is not None:
            yield frame


def number(value: int) -> bytes:
    """A number of a protocol buffer: seven bits in each byte, the lowest first, the eighth says that more follow."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number_at(raw: bytes, place: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends."""
    value = 0
    for shift, byte in enumerate(raw[place : place + LONGEST_NUMBER]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place + shift + 1
    raise ValueError("a number in a frame does not end")
