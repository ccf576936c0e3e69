"""Answers as whole numbers modulo 2^64, which add up exactly in any order: what a secure sum adds.

A number x becomes round(x * 2^fraction_bits); the bound says how large |x| may be, so that sums do not overflow. In a
compiled program, where there are no 64-bit integers, a number is four digits to the base 2^11, all with its sign, in
32-bit integers: digit by digit, a plain sum of up to 2^20 answers is exact. At a real site `ring_vector` puts the
digits together to 64-bit ring elements; `limbs_of` takes their opened sum apart again. Rounding is to the nearest and
loses at most half of 2^-fraction_bits an answer; sums come back as the nearest float32 or its neighbour.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Array, Message, Tree
from wardround.core.errors import Refusal
from wardround.privacy.secure_sum.masks import Ring

DIGIT_BITS = 11
LIMBS = 4
MOST_SITES = 1 << 20
"""2^20 digits below 2^11 stay below 2^31."""
ANSWER_BITS = 42
"""Bits of one answer at most: 2^20 of them stay below 2^62, and the ring ends at 2^63."""
FIXED = "fixed"
RING = "ring"
"""An answer that is ring elements already (see `wide_point`)."""
OUTSIDE = "outside"
"""0, or NaN where a number was beyond the bound or not finite: so that engines notice, as they do for any NaN."""


def refuse_too_wide(fraction_bits: int, bound: float) -> None:
    if not bound * 2.0**fraction_bits <= 2.0**ANSWER_BITS:
        raise Refusal(
            f"numbers up to {bound:g} with {fraction_bits} binary places take more than {ANSWER_BITS} bits",
            where="transform secure_sum",
            remedy=f"choose a bound of at most {2.0 ** (ANSWER_BITS - fraction_bits):g}, or fewer fraction_bits",
        )


# ---- in a compiled program ----


def encode_answer(answer: Message, fraction_bits: int, bound: float) -> Message:
    """The answer as digits along a new first axis of every array."""
    within = jnp.all(
        jnp.stack([jnp.all(jnp.abs(leaf) <= bound) for leaf in jax.tree.leaves(answer.arrays)])  # NaN is not
    )
    digits = jax.tree.map(lambda leaf: digits_of(jnp.where(within, leaf, 0.0), fraction_bits), answer.arrays)
    return Message({FIXED: digits, OUTSIDE: jnp.where(within, 0.0, jnp.nan)}, answer.meta)


def digits_of(value: Array, fraction_bits: int) -> Array:
    """Exact: scaling by a power of two, floors and the differences all fit into a float's 24 bits."""
    whole = jnp.round(value.astype(jnp.float32) * 2.0**fraction_bits)
    sign, rest = jnp.sign(whole), jnp.abs(whole)
    digits = []
    for place in reversed(range(LIMBS)):
        digit = jnp.floor(rest * 2.0 ** (-DIGIT_BITS * place))
        rest = rest - digit * 2.0 ** (DIGIT_BITS * place)
        digits.append((sign * digit).astype(jnp.int32))
    return jnp.stack(digits[::-1])


def decode_sum(total: Message, fraction_bits: int) -> Message:
    """The sum of digits as ordinary numbers again."""
    arrays = jax.tree.map(lambda digits: value_of(digits, fraction_bits), total.arrays[FIXED])
    return Message(arrays, total.meta)


def value_of(digits: Array, fraction_bits: int) -> Array:
    """The number that summed digits mean, without ever cancelling: carried over first, and by its absolute value."""
    negative = carry_digits(list(digits))[-1] < 0
    parts = carry_digits([jnp.where(negative, -digit, digit) for digit in digits])
    value = jnp.zeros(digits.shape[1:], jnp.float32)
    for place, part in enumerate(parts):  # from the smallest, so that little is rounded away
        value = value + part.astype(jnp.float32) * 2.0 ** (DIGIT_BITS * place - fraction_bits)
    return jnp.where(negative, -value, value)


def carry_digits(digits: list[Any]) -> list[Any]:
    """The same number with all digits but the last from 0 to 2^11 - 1; the last has the sign."""
    result, carry = [], jnp.zeros_like(digits[0])
    for digit in digits[:-1]:
        whole = digit + carry
        result.append(whole & (2**DIGIT_BITS - 1))
        carry = whole >> DIGIT_BITS
    return [*result, digits[-1] + carry]


# ---- at a real site and its coordinator ----


def ring_vector(answer: Message) -> Ring:
    """A fixed answer as one vector of ring elements, array after array; or the vector that an answer holds itself."""
    if RING in answer.arrays:
        return np.asarray(answer.arrays[RING], np.uint64)
    parts = [ring_of(np.asarray(leaf)).ravel() for leaf in jax.tree.leaves(answer.arrays[FIXED])]
    return np.concatenate(parts)


def ring_bytes(answer: Message) -> int:
    """Bytes of that vector, also of an abstract answer: a ring element has 8, whatever its digits take in memory."""
    return sum(8 * int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(answer.arrays[FIXED]))


def ring_of(digits: np.ndarray[Any, Any]) -> Ring:
    total = digits[-1].astype(np.int64)
    for digit in digits[-2::-1]:
        total <<= DIGIT_BITS
        total += digit
    return total.view(np.uint64)


def from_ring(total: Ring, template: Message) -> Message:
    """The opened sum in the form of a fixed answer (`template` may be abstract, as `jax.eval_shape` gives it)."""
    leaves, structure = jax.tree.flatten(template.arrays[FIXED])
    sizes = [int(np.prod(leaf.shape[1:])) for leaf in leaves]
    if sum(sizes) != len(total):
        raise Refusal(
            f"the opened sum has {len(total)} entries, and an answer has {sum(sizes)}",
            where="secure sum",
            remedy="compare the versions of wardround and the model on both sides",
        )
    parts = np.split(total, np.cumsum(sizes)[:-1])
    digits = [limbs_of(part).reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    tree: Tree = jax.tree.unflatten(structure, digits)
    return Message({FIXED: tree, OUTSIDE: np.zeros((), np.float32)}, template.meta)


def limbs_of(total: Ring) -> np.ndarray[Any, Any]:
    """Digits of ring elements, which are read as signed numbers; the last digit takes what is left."""
    rest = np.ascontiguousarray(total, np.uint64).view(np.int64).copy()
    digits = np.empty((LIMBS, *rest.shape), np.int32)
    for place in range(LIMBS - 1):
        digits[place] = rest & (2**DIGIT_BITS - 1)
        rest >>= DIGIT_BITS
    digits[LIMBS - 1] = rest
    return digits
