"""Whole numbers of a few bits each, packed into bytes without gaps.

Eight numbers of q bits become q bytes. The first of each eight stand together, then the second ones, and so on: long
rows instead of groups of eight, which NumPy and compiled programs go through quickly. Works on the arrays of both.
"""

from typing import Any

import numpy as np

GROUP = 8


def packed_bytes(entries: int, bits: int) -> int:
    """Bytes that so many numbers take."""
    return bits * -(-entries // GROUP)


def bytes_of_rows(rows: Any, bits: int) -> list[Any]:
    """From eight rows of numbers below 2^bits to `bits` rows of bytes, still in the numbers' own type."""
    found = []
    for byte in range(bits):
        value: Any = 0
        for place in range(GROUP):
            shift = place * bits - 8 * byte
            if -bits < shift < 8:
                value = value | (rows[place] << shift if shift >= 0 else rows[place] >> -shift)
        found.append(value & 0xFF)
    return found


def rows_of_bytes(packed: Any, bits: int) -> list[Any]:
    """The eight rows of numbers again."""
    found = []
    for place in range(GROUP):
        value: Any = 0
        for byte in range(bits):
            shift = 8 * byte - place * bits
            if -8 < shift < bits:
                value = value | (packed[byte] << shift if shift >= 0 else packed[byte] >> -shift)
        found.append(value & (2**bits - 1))
    return found


def pack_words(words: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Unsigned 64-bit numbers, below 2^bits, as bytes."""
    rows = np.pad(words.astype(np.uint64, copy=False), (0, -len(words) % GROUP)).reshape(GROUP, -1)
    return np.concatenate([row.astype(np.uint8) for row in bytes_of_rows(rows, bits)])


def unpack_words(packed: np.ndarray[Any, Any], bits: int, entries: int) -> np.ndarray[Any, Any]:
    """The numbers again; whoever reads a message has looked at its length before."""
    return np.concatenate(rows_of_bytes(packed.reshape(bits, -1).astype(np.uint64), bits))[:entries]
