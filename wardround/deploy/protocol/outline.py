"""A message as a list of named segments, so that nothing travels which the other side already has.

The segments of a message are its arrays and what stands before them; each is named by a hash of its bytes. A judged
model and the model of the next round are the same arrays under other words, so they have the same names. The sender
makes up the names and the receiver believes them: they only tell it what to copy from what the same sender sent before.

Layout of an outline: 4 bytes "WRO\\n", 4 bytes number of segments, for each its name (16 bytes) and length (8 bytes,
the highest bit says that its bytes follow), then those bytes, packed as `compression` says.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from wardround.deploy.protocol.compression import Content, is_worth, pack, unpack
from wardround.deploy.protocol.wire import LARGEST_MESSAGE, Malformed, array_ends

OUTLINE = b"WRO\n"
NAME = 16
"""Bytes of a name."""
SMALLEST_NAMED = 512
"""Bytes of an array from which on it is a segment of its own; shorter ones belong to the one before."""
MOST_SEGMENTS = 1 << 15
ENTRY = struct.Struct(f"<{NAME}sQ")
INLINE = 1 << 63
Range = tuple[int, int]
"""From the first byte up to, without, the last."""


class Segment(NamedTuple):
    """Part of a message: its name, and where it lies."""

    name: bytes
    begin: int
    end: int


def name_of(content: Content) -> bytes:
    return hashlib.blake2b(content, digest_size=NAME).digest()


@dataclass(frozen=True)
class OutlinedMessage:
    """A message to be sent, with its segments; made once for all who get it."""

    content: Content

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        view = memoryview(self.content)
        begin, found = 0, []
        for end in segment_ends(view):
            found.append(Segment(name_of(view[begin:end]), begin, end))
            begin = end
        return tuple(found)

    @cached_property
    def name(self) -> bytes:
        """Of the whole: the same segments in the same order."""
        return whole_name(self.segments)

    @cached_property
    def shrinks(self) -> bool:
        """Whether its parts are packed: found out once, not for each of them."""
        return is_worth(self.content)

    def unknown_bytes(self, known: Collection[bytes]) -> int:
        """Bytes that must travel to one who has these segments; what occurs twice travels once."""
        lengths = {one.name: one.end - one.begin for one in self.segments if one.name not in known}
        return sum(lengths.values())

    def outline(self, known: Collection[bytes], *, inline: bool) -> Content:
        """The list of segments; with `inline` followed by the bytes of those that are not known."""
        view, given = memoryview(self.content), set(known)
        entries, bodies = [], []
        for name, begin, end in self.segments:
            told = inline and name not in given
            entries.append(ENTRY.pack(name, (end - begin) | (INLINE if told else 0)))
            if told:
                given.add(name)
                bodies.append(view[begin:end])
        packed = pack(b"".join(bodies))
        return b"".join((OUTLINE, struct.pack("<I", len(entries)), *entries, packed))


def segment_ends(content: memoryview) -> list[int]:
    """Where the segments of a message end: after what stands before its arrays, and after each array of some size."""
    ends: list[int] = []
    last = 0
    for end in array_ends(content):
        if not ends or end - last >= SMALLEST_NAMED:
            ends.append(end)
        else:
            ends[-1] = end
        last = end
    if not ends or len(ends) > MOST_SEGMENTS:
        return [content.nbytes]
    return ends


def whole_name(segments: Iterable[Segment]) -> bytes:
    return name_of(b"".join(ENTRY.pack(one.name, one.end - one.begin) for one in segments))


class ReadOutline(NamedTuple):
    """An outline as it came: the segments, and the bytes of those that came with it."""

    segments: tuple[Segment, ...]
    inline: Mapping[bytes, memoryview]

    @property
    def size(self) -> int:
        return self.segments[-1].end

    @property
    def name(self) -> bytes:
        return whole_name(self.segments)


def is_outline(content: Content) -> bool:
    return bytes(memoryview(content)[: len(OUTLINE)]) == OUTLINE


def read_outline(content: Content, *, most: int = LARGEST_MESSAGE) -> ReadOutline:
    """The outline in these bytes; Malformed where they are none, or its message has more than `most` bytes."""
    view = memoryview(content)
    start = len(OUTLINE) + 4
    if not is_outline(content) or view.nbytes < start:
        raise Malformed("this is not the outline of a message")
    (count,) = struct.unpack("<I", view[len(OUTLINE) : start])
    if not 0 < count <= MOST_SEGMENTS or view.nbytes < start + count * ENTRY.size:
        raise Malformed("the outline of a message is not as long as it claims")
    segments, told, place = [], [], 0
    for name, words in ENTRY.iter_unpack(view[start : start + count * ENTRY.size]):
        length = words & ~INLINE
        segments.append(Segment(name, place, place + length))
        place += length
        if words & INLINE:
            told.append((name, length))
    if place > most:
        raise Malformed(f"the message has {place} bytes, and {most} are allowed")
    rest = memoryview(unpack(view[start + count * ENTRY.size :], most=max(1, sum(length for _, length in told))))
    if rest.nbytes != sum(length for _, length in told):
        raise Malformed("the outline of a message does not have the bytes that it claims")
    inline, place = {}, 0
    for name, length in told:
        inline[name] = rest[place : place + length]
        place += length
    return ReadOutline(tuple(segments), inline)


# ---- what is still missing ----


def without(gaps: Iterable[Range], begin: int, end: int) -> list[Range]:
    """What is left of these ranges when this one is taken out."""
    left: list[Range] = []
    for first, last in gaps:
        if last <= begin or first >= end:
            left.append((first, last))
            continue
        left += [(first, begin)] if first < begin else []
        left += [(end, last)] if last > end else []
    return left


def size_of(gaps: Iterable[Range]) -> int:
    return sum(end - begin for begin, end in gaps)
