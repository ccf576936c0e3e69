"""Which pairs of sites mask each other: all of them up to 30 sites, and enough of them above.

Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020. Sites stand on a ring, in an
order that nobody chooses, and each masks with the nearest on both sides. A coalition that sees everything but the
masks between honest sites learns no more than the honest sites' sum as long as these stay connected. They do unless
the ring has two gaps of `degree / 2` bad places each (colluding or dropped), which is at most as likely as
pairs(n) * C(bad, degree) / C(n, degree); the degree is the smallest even number that makes it less than 2^-40 with a
third of the sites colluding and a third dropped. This is 54 of 99 for 100 sites, 96 for 1,000: it grows with log n.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from math import comb

EVERYONE_UP_TO = 30
UNLIKELY = Fraction(1, 2**40)


@lru_cache(maxsize=256)
def degree(sites: int) -> int:
    """With how many others a site masks."""
    if sites > EVERYONE_UP_TO:
        bad = 2 * ((sites - 1) // 3)
        for found in range(2, sites - 1, 2):
            if Fraction(comb(sites, 2) * comb(bad, found), comb(sites, found)) < UNLIKELY:
                return found
    return max(0, sites - 1)


def neighbours(sites: Iterable[str], seed: bytes) -> dict[str, frozenset[str]]:
    """For every site those it masks with; `seed` decides the order on the ring."""
    ring = sorted(set(sites), key=lambda site: sha256(seed + site.encode()).digest())
    count = len(ring)
    if degree(count) == count - 1:
        return {site: frozenset(ring) - {site} for site in ring}
    steps = range(1, degree(count) // 2 + 1)
    return {
        site: frozenset(ring[(place + sign * step) % count] for step in steps for sign in (1, -1))
        for place, site in enumerate(ring)
    }
