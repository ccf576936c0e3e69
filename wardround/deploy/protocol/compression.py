"""Messages on the wire, packed where that makes them much smaller: statistics, words, answers with many zeros.

A model's numbers hardly shrink (by a tenth, for ten times the time of sending them), so a sample of the message
decides. What arrives packed is unpacked into no more memory than an answer to this question may take (`most`), and
into no more than a hundred times what arrived, whatever its header says; memory is taken as it fills.
"""

import struct
import zlib

from wardround.deploy.protocol.wire import LARGEST_MESSAGE, Malformed

PACKED = b"WRZ\n"
"""How a packed message begins; any other begins as `wire` says."""
START = len(PACKED) + 8
SMALLEST = 1 << 14
"""Bytes below which nothing is gained."""
SAMPLE = 1 << 16
WORTH = 0.7
"""Packed is sent what shrinks to this part of itself, or less;"""
MOST_TIMES = 100
"""and to no less than a hundredth: a party that does not know how large a message may be believes no more."""
QUICKLY = 1

Content = bytes | bytearray | memoryview


def is_worth(content: Content) -> bool:
    """Whether a message shrinks so much that it is packed, as far as a sample from its middle tells."""
    view = memoryview(content)
    begin = max(0, (view.nbytes - SAMPLE) // 2)
    sample = view[begin : begin + SAMPLE]
    return view.nbytes >= SMALLEST and len(zlib.compress(sample, QUICKLY)) <= WORTH * sample.nbytes


def pack(content: Content) -> Content:
    """The message as it travels: packed, or as it is."""
    view = memoryview(content)
    if not is_worth(content):
        return content
    shrunk = zlib.compress(view, QUICKLY)
    if not view.nbytes / MOST_TIMES < START + len(shrunk) <= WORTH * view.nbytes:
        return content
    return PACKED + struct.pack("<Q", view.nbytes) + shrunk


def unpack(content: Content, *, most: int = LARGEST_MESSAGE) -> Content:
    """The message that was packed; Malformed where it is not what it says, or larger than `most` bytes."""
    view = memoryview(content)
    if bytes(view[: len(PACKED)]) != PACKED:
        return content
    if view.nbytes < START:
        raise Malformed("a packed message ends before it begins")
    (size,) = struct.unpack("<Q", view[len(PACKED) : START])
    if size > min(most, MOST_TIMES * view.nbytes):
        raise Malformed("a packed message claims to be larger than allowed")
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(view[START:], size + 1)
    except zlib.error:
        raise Malformed("a packed message cannot be unpacked") from None
    if len(found) != size or not unpacking.eof or unpacking.unused_data:
        raise Malformed("a packed message is not as long as it claims")
    return found
