"""The trees: for every node the column it asks about and the bins that go left, for every leaf what it adds to a score.

All trees have the same shape, node i with children 2i + 1 and 2i + 2; where a branch ends early its rows go left to the
end. A forest holds nothing of the patients but its splits and leaf values: no counts, no sums.
"""

from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]
NOTHING = -1
"""The column of a node that asks nothing."""


class Forest(NamedTuple):
    """Arrays over (trees, groups, nodes or leaves)."""

    column: Numbers
    """(trees, groups, 2^depth - 1) of int16: which column a node asks about."""
    left: Numbers
    """(trees, groups, 2^depth - 1, bytes) of uint8: a bit for every bin, the last for missing values."""
    value: Numbers
    """(trees, groups, 2^depth) of float32."""

    @property
    def trees(self) -> int:
        return len(self.column)

    @property
    def depth(self) -> int:
        return int(self.value.shape[-1]).bit_length() - 1

    def first(self, trees: int) -> "Forest":
        return Forest(*(array[:trees] for array in self))

    def plus(self, other: "Forest") -> "Forest":
        return Forest(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def bare_forest(trees: int, groups: int, depth: int, width: int) -> Forest:
    """Trees that ask nothing and add nothing."""
    nodes = (trees, groups, 2**depth - 1)
    left = np.full((*nodes, -(-width // 8)), 255, np.uint8)
    return Forest(np.full(nodes, NOTHING, np.int16), left, np.zeros((trees, groups, 2**depth), np.float32))


def pack_bins(left: Numbers) -> Numbers:
    """Whether each bin goes left, as bits."""
    return np.packbits(left, axis=-1)


def unpack_bins(bits: Numbers, width: int) -> Numbers:
    return np.unpackbits(bits, axis=-1, count=width).astype(bool)


def descend(at: Numbers, codes: Numbers, column: Numbers, left: Numbers) -> Numbers:
    """One level down: from each row's node among those of a level to its child among those of the next.

    `codes` has the shape (columns, rows); `column` and `left` are those of the level's nodes, `left` unpacked.
    """
    rows = np.arange(codes.shape[1])
    if len(column) == 1:
        return np.asarray(~left[0][codes[column[0]]], at.dtype)
    code = codes.ravel()[np.maximum(column, 0).astype(np.int64)[at] * codes.shape[1] + rows]
    return np.asarray(2 * at + ~left.ravel()[at.astype(np.int64) * left.shape[1] + code], at.dtype)


def leaves_of(column: Numbers, left: Numbers, codes: Numbers) -> Numbers:
    """The leaf of every row in one tree; `left` unpacked, `codes` of the shape (columns, rows)."""
    at = np.zeros(codes.shape[1], np.uint16)
    for level in range((len(column) + 1).bit_length() - 1):
        nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
        at = descend(at, codes, column[nodes], left[nodes])
    return at


def scores_of(forest: Forest, base: Numbers, codes: Numbers, width: int) -> Numbers:
    """Scores of the shape (groups, rows), in single precision."""
    left = unpack_bins(forest.left, width)
    score = np.repeat(np.asarray(base, np.float32)[:, None], codes.shape[1], axis=1)
    for tree in range(forest.trees):
        for group in range(len(score)):
            at = leaves_of(forest.column[tree, group], left[tree, group], codes)
            score[group] += forest.value[tree, group][at]
    return score
