"""Secure sum: the coordinator learns the sum of the answers and no single one.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, with shares that can
be checked; above 200 sites with fewer masks, of pairs that only the two sites know. Between real sites every answer,
sample count included, is turned into whole numbers modulo 2^64 and hidden under masks that cancel in the sum
(`wardround.privacy.secure_sum.site` and `wardround.privacy.secure_sum.server`). In simulation the masks are left out:
they cancel exactly, so they would change no bit of the sum; the rounding to whole numbers is done and shows.

Needs an aggregator that works on the sum, and at least 3 sites in a round. Must be the last transform. A number beyond
`bound`, or no number at all, stops the study and names the site. Costs 8 bytes a parameter on the wire instead of 4.
With [privacy] level = "site" each site adds its share of the noise to its whole numbers (discrete Gaussian; Kairouz et
al., ICML 2021), so that nobody ever holds a sum without noise.
"""

from typing import Annotated

from wardround.core.bounds import Bound, Positive
from wardround.core.chain import identity
from wardround.core.contracts import Key, Message, Transform, Tree
from wardround.privacy.integer_noise import add_owed_noise, draw_exact, draw_simulated
from wardround.privacy.secure_sum.fixed_point import decode_sum, refuse_too_wide, ring_bytes
from wardround.privacy.secure_sum.session import FEWEST

FractionBits = Annotated[int, Bound(low=0, high=40)]


def secure_sum(*, fraction_bits: FractionBits = 20, bound: Positive = 2.0**22) -> Transform:
    """Hides each site's answer: only the sum of all is opened (fraction_bits: precision, bound: largest number)."""
    refuse_too_wide(fraction_bits, bound)

    def up(received: Message, answer: Message, key: Key) -> Message:
        return add_owed_noise(answer, fraction_bits, bound, draw_simulated)

    def at_site(received: Message, answer: Message, key: Key) -> Message:
        return add_owed_noise(answer, fraction_bits, bound, draw_exact)

    def release(state: Tree, total: Message) -> Message:
        return decode_sum(total, fraction_bits)

    return identity()._replace(
        up=up,
        release=release,
        sum_only=True,
        fewest=FEWEST,
        at_site=at_site,
        bytes_up=ring_bytes,
        limit=f"{bound:g}, the largest number that the secure sum takes",
        words="The coordinator sees the sum of the sites' answers, and no single one.",
    )
