"""Secure sum: the coordinator learns the sum of the answers and no single one.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, with shares that can
be checked; above 200 sites with fewer masks, of pairs that only the two sites know. Between real sites every answer,
sample count included, is turned into whole numbers modulo 2^bits and hidden under masks that cancel in the sum
(`wardround.privacy.secure_sum.site` and `wardround.privacy.secure_sum.server`). In simulation the masks are left out:
they cancel exactly, so they would change no bit of the sum; the rounding to whole numbers is done and shows.

Needs an aggregator that works on the sum, and at least 3 sites in a round. Must be the last transform. A number beyond
`bound`, or no number at all, stops the study and names the site. Costs bits/8 bytes a parameter on the wire: 8 by
default, 4 at bits = 32, 1.5 at bits = 12. The sum of all sites must fit: sites x bound x 2^fraction_bits below
2^(bits - 1), else the study is refused, so no sum ever wraps. Below 64 bits numbers are rounded at random, so that the
mean is right however coarse the grid is; the count of a site's patients is a number too (`weights = "uniform"` in
[algorithm] lets every site count 1, and `bound` be small).
With [privacy] level = "site" each site adds its share of the noise to its whole numbers (discrete Gaussian; Kairouz et
al., ICML 2021), so that nobody ever holds a sum without noise.
"""

from math import ceil
from typing import Annotated

import jax
import jax.numpy as jnp

from wardround.core.bounds import Bound, Positive
from wardround.core.chain import identity
from wardround.core.codes.bit_field import packed_bytes
from wardround.core.contracts import OWED, Key, Message, Transform, Tree
from wardround.core.errors import Refusal
from wardround.privacy.integer_noise import add_owed_noise, draw_exact, draw_simulated
from wardround.privacy.secure_sum.fixed_point import decode_sum, refuse_too_wide, ring_bytes
from wardround.privacy.secure_sum.session import FEWEST, LEAST_RING_BITS, RING_BITS

FractionBits = Annotated[int, Bound(low=0, high=40)]
RingBits = Annotated[int, Bound(low=LEAST_RING_BITS, high=RING_BITS)]


def secure_sum(*, fraction_bits: FractionBits = 20, bound: Positive = 2.0**22, bits: RingBits = RING_BITS) -> Transform:
    """Hides each site's answer: only the sum of all is opened (fraction_bits: precision, bound: largest number)."""
    refuse_too_wide(fraction_bits, bound)
    most = (2 ** (bits - 1) - 1) // ceil(bound * 2.0**fraction_bits)
    if bits < RING_BITS and most < FEWEST:
        raise Refusal(
            f"{bits} bits have no room for {FEWEST} answers of up to {bound:g} with {fraction_bits} binary places",
            where="transform secure_sum",
            remedy=f"choose a bound of at most {2.0 ** (bits - 1 - fraction_bits) / (FEWEST + 1):g}, fewer "
            "fraction_bits, or more bits",
        )

    def rounded(answer: Message, key: Key) -> Message:
        """On a coarse grid at random, where no noise will blur it: to the nearest, small numbers would all be lost."""
        if bits == RING_BITS or OWED in answer.arrays:
            return answer
        leaves, structure = jax.tree.flatten(answer.arrays)
        return Message(
            jax.tree.unflatten(
                structure,
                [
                    jnp.floor(
                        leaf * 2.0**fraction_bits + jax.random.uniform(jax.random.fold_in(key, place), leaf.shape)
                    )
                    * 2.0**-fraction_bits
                    for place, leaf in enumerate(leaves)
                ],
            ),
            answer.meta,
        )

    def up(received: Message, answer: Message, key: Key) -> Message:
        return add_owed_noise(rounded(answer, key), fraction_bits, bound, draw_simulated)

    def at_site(received: Message, answer: Message, key: Key) -> Message:
        return add_owed_noise(rounded(answer, key), fraction_bits, bound, draw_exact)

    def release(state: Tree, total: Message) -> Message:
        return decode_sum(total, fraction_bits)

    def bytes_up(answer: Message) -> int:
        return ring_bytes(answer) if bits == RING_BITS else packed_bytes(ring_bytes(answer) // 8, bits)

    words = "The coordinator sees the sum of the sites' answers, and no single one."
    return identity()._replace(
        up=up,
        release=release,
        sum_only=True,
        fewest=FEWEST,
        most=None if bits == RING_BITS else most,
        at_site=at_site,
        bytes_up=bytes_up,
        limit=f"{bound:g}, the largest number that the secure sum takes",
        words=words if bits == RING_BITS else f"{words} Every number is rounded to steps of 1/{2**fraction_bits:,}.",
    )
