"""Which pairs of sites mask each other: all of them up to 200 sites, and above a random part that only they know.

Two sites above 200 mask each other if a hash of the secret that only these two share falls below a threshold. So a pair
between honest sites is known to nobody else: neither to the coordinator nor to sites that collude with it, until keys
of lost sites are revealed, and then the survivors are fixed. Nobody's keys but their own decide about it, so there is
nothing to try out either. (A ring that follows from public keys, as in Bell et al., CCS 2020, can be seen: whoever may
declare a third of the sites lost AFTER seeing it cuts out the neighbours of any one site.)

The argument. Let n sites be on the roster, c = colluding at most, t = the threshold, S = the survivors, |S| >= t. A
coalition that knows everything but the masks between honest sites learns the sum over each connected part of the honest
survivors, and no more. It may choose S as it likes, in sight of all it knows, but the pairs between honest sites are
independent of all that: whatever S it chooses, these are a random graph on at least h = t - c sites in which every pair
is there with probability p. There is one choice: a site signs one S a session and opens one session a round. So no
union over choices is needed, and the honest survivors fall apart with probability at most

    sum over k = 1 ... h/2 of C(h, k) (1-p)^(k (h-k))  <=  h (1-p)^(h-1) + r^2 / (1-r),    r = h (1-p)^(h/2),

as C(h, k) <= h^k and k (h-k) >= k h/2. It decreases with h wherever it is small, so more survivors are no worse.

A coordinator may also tell a site that fewer others share masks with it than do, and not ask it to sign at all. The t
that sign, t - c honest ones among them, were told the same; a site that masks among D sites has at least o = D +
(t - c) - n of these among them. Up to 200 sites D = t, which leaves one, and one is enough where every pair is there.
Above, a site masks only where D is so large that n (1-p)^o < 2^-42: then sites that do not sign are cut off, alone or
in groups, with probability below 2^-41. For 217 sites D is 185, for 300 it is 259, for 1,000 it is 884.

What every site checks for itself before it signs the survivors: that K of the sites it masks with are among them. Its
pairs do not know who colludes, so all of K pairs lead to colluding sites with probability at most (c / (t-1))^K; K is
the smallest number for which this, over all n sites, is below 2^-40. And p is the smallest multiple of 1/256 for which
the first bound is below 2^-40 and an honest site with the fewest survivors misses K with probability below 2^-20 / n,
so that the check hardly ever stops an honest round. For 217 sites p is 0.57, which is 123 of 216 others; for 300 it is
0.44 (132), for 1,000 it is 0.15 (152). It costs one key agreement with every site, and at the coordinator one for every
lost site and survivor, to find their pairs.
"""

from functools import lru_cache
from math import ceil, comb, log2

EVERYONE_UP_TO = 200
UNLIKELY = 40
"""Bits: an event of probability 2^-40 or less is taken not to happen."""
SELDOM = 20
"""Bits: how seldom an honest round may be stopped by a site's own check."""
PARTS = 256
"""The probability of a pair is a multiple of 1 / 256."""


@lru_cache(maxsize=256)
def fewest_neighbours(sites: int, threshold: int, colluding: int) -> int:
    """With how many survivors a site must mask at least, before it helps to open their sum."""
    if sites <= EVERYONE_UP_TO:
        return threshold - 1
    if colluding == 0:
        return 1
    return ceil((UNLIKELY + log2(sites)) / log2((threshold - 1) / colluding))


@lru_cache(maxsize=256)
def pair_parts(sites: int, threshold: int, colluding: int) -> int:
    """How probable a pair is, in 256ths."""
    if sites <= EVERYONE_UP_TO:
        return PARTS
    low, high = 1, PARTS
    while low < high:  # both conditions hold from some probability on
        middle = (low + high) // 2
        if is_dense_enough(middle, sites, threshold, colluding):
            high = middle
        else:
            low = middle + 1
    return low


@lru_cache(maxsize=256)
def dealers_needed(sites: int, threshold: int, colluding: int) -> int:
    """With how many sites, itself included, a site must share secrets before it masks."""
    parts = pair_parts(sites, threshold, colluding)
    if parts == PARTS:
        return threshold
    signing = ceil((UNLIKELY + 2 + log2(sites)) / -log2(1 - parts / PARTS))
    return min(sites, max(threshold, sites - (threshold - colluding) + signing))


def is_dense_enough(parts: int, sites: int, threshold: int, colluding: int) -> bool:
    if parts == PARTS:
        return True
    honest = threshold - colluding
    missing = log2(1 - parts / PARTS)
    apart = log2(honest) + missing * honest / 2
    if apart > -1 or log2(honest) + missing * (honest - 1) > -UNLIKELY - 1 or 2 * apart + 1 > -UNLIKELY - 1:
        return False
    # The lower tail of a binomial distribution, in whole numbers: the same on every machine.
    others, fewest = threshold - 1, fewest_neighbours(sites, threshold, colluding)
    tail = sum(comb(others, k) * parts**k * (PARTS - parts) ** (others - k) for k in range(min(fewest, others + 1)))
    return tail * sites * 2**SELDOM < PARTS**others


def is_pair(hashed: bytes, sites: int, threshold: int, colluding: int) -> bool:
    """Whether two sites mask each other; `hashed` are bits that only these two know."""
    return int.from_bytes(hashed[:8], "big") * PARTS < pair_parts(sites, threshold, colluding) << 64
