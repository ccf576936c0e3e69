"""Double-precision answers as whole numbers modulo 2^64, four for each number: what the secure sum of an analysis adds.

A number x is cut into four signed digits of 40 bits, x = d3 2^30 + d2 2^-10 + d1 2^-50 + d0 2^-90. All 53 bits of a
double fit for any |x| from 2^-37 (7e-12) to 2^70 (1e21), so no scale has to be agreed on and nothing is rounded that a
plain sum would keep; smaller numbers are rounded to 2^-90 (8e-28). 2^20 digits below 2^40 stay below 2^60, so the sum
of as many answers is exact digit by digit, and is rounded once, when it is put together.
"""

from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Message, Tree
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.masks import Ring

DIGIT_BITS = 40
PLACES = (30, -10, -50, -90)
"""Powers of two that a one of each digit means, the largest first."""
LIMIT = 2.0 ** (PLACES[0] + DIGIT_BITS)
PRECISION = (0, 2.0**DIGIT_BITS)
"""Of the ring elements, which are digits: no binary places, and below 2^40 each."""


def to_digits(answer: Message) -> Ring:
    """An answer as one vector of ring elements: array after array, number after number, digit after digit."""
    leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(answer.arrays)]
    rest = np.concatenate([*leaves, np.empty(0)])
    if not (np.abs(rest) < LIMIT).all():  # what is not a number is not
        raise Refusal(
            f"the answer is not finite, or beyond {LIMIT:.0e}, the largest number that the secure sum takes",
            remedy="scale the columns, or leave out what overflows",
        )
    digits = np.empty((len(rest), len(PLACES)), np.int64)
    for at, place in enumerate(PLACES):
        cut = np.round if at == len(PLACES) - 1 else np.trunc
        whole = cut(np.ldexp(rest, -place))
        # Exact: a digit holds leading bits of the number, and what is left are its last ones.
        rest = rest - np.ldexp(whole, place)
        digits[:, at] = whole
    return digits.ravel().view(np.uint64)


def from_digits(total: Ring, pattern: Message) -> Message:
    """The sum of such vectors as arrays again, in the form of `pattern`; each number is rounded once."""
    leaves, structure = jax.tree.flatten(pattern.arrays)
    sizes = [int(np.size(leaf)) for leaf in leaves]
    if len(total) != sum(sizes) * len(PLACES):
        raise Refusal(
            f"the opened sum has {len(total)} entries, and an answer has {sum(sizes) * len(PLACES)}",
            where="secure sum",
            remedy="compare the versions of wardround on both sides",
        )
    digits = np.ascontiguousarray(total, np.uint64).view(np.int64).reshape(-1, len(PLACES))
    numbers = np.array([value_of(row) for row in digits.tolist()], np.float64)
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    shaped: list[Any] = [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    tree: Tree = jax.tree.unflatten(structure, shaped)
    return Message(tree)


def value_of(digits: list[int]) -> float:
    """Whole numbers of any length, so that nothing is lost before the one division."""
    last = PLACES[-1]
    return sum(digit << (place - last) for digit, place in zip(digits, PLACES, strict=True)) / (1 << -last)


def entries_of(pattern: Message) -> int:
    """Ring elements of an answer."""
    return len(PLACES) * sum(int(np.size(leaf)) for leaf in jax.tree.leaves(pattern.arrays))
