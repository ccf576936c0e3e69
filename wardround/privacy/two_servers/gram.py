"""What the inner products of updates tell: distances, Krum's and Multi-Krum's choice, Weight Erosion's distances.

Two servers open these products and nothing else (`wardround.privacy.two_servers.protocol`). They are exact whole
numbers, so that distances keep their digits also where updates are long and close together.

Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017.
Grimberg, "Incentivized, Privacy-preserving, and Personalized Distributed Machine Learning Framework for Medical Data",
EPFL 2020, algorithm 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.errors import Refusal

LENGTH_BITS = 30
"""The longest update as a whole number: its square takes 60 bits, a squared distance 62, and the ring has 63."""
WEIGHT_BITS = 20
"""Unequal weights are rounded to so many bits of the largest."""
SLACK = 1e-5
"""Lengths may pass the bound by so much, since entries are rounded."""
Matrix = np.ndarray[Any, Any]


class Gram(NamedTuple):
    """Products of all pairs of updates, in units of 2^(-2 fraction_bits)."""

    sites: tuple[str, ...]
    products: Matrix
    fraction_bits: int

    def select(self, sites: Sequence[str]) -> "Gram":
        index = [self.sites.index(site) for site in sites]
        return self._replace(sites=tuple(sites), products=self.products[np.ix_(index, index)])

    def squared_length(self, weights: Mapping[str, int]) -> float:
        """Of the weighted sum, in units; in whole numbers of any size, so that nothing wraps."""
        factors = [weights.get(site, 0) for site in self.sites]
        rows = self.products.tolist()
        return float(sum(a * b * rows[i][j] for i, a in enumerate(factors) for j, b in enumerate(factors)))


def drop_implausible(gram: Gram) -> tuple[Gram, tuple[str, ...]]:
    """Without the sites whose products no vectors of the agreed length can have; and who these are.

    Lengths must be within the bound, and |a b| <= |a| |b|. Of a pair that breaks the latter, the one that breaks it
    with more sites goes.
    """
    squares = np.diag(gram.products).astype(np.float64)
    fits = (squares >= 0) & (squares <= 2.0 ** (2 * LENGTH_BITS) * (1 + SLACK))
    lengths = np.sqrt(np.where(fits, squares, 0.0))
    # A unit of slack: entries are rounded, and a site may have sent next to nothing.
    broken = np.abs(gram.products.astype(np.float64)) > np.outer(lengths, lengths) * (1 + 1e-9) + 1.0
    kept = fits.copy()
    while True:
        counts = np.where(kept, (broken & kept[:, None] & kept[None, :]).sum(axis=1), 0)
        if not counts.any():
            break
        kept[int(np.argmax(counts))] = False
    left_out = tuple(site for site, stays in zip(gram.sites, kept, strict=True) if not stays)
    return gram.select([site for site in gram.sites if site not in left_out]), left_out


def squared_distances(gram: Gram) -> Matrix:
    """Between all pairs of updates."""
    squares = np.diag(gram.products)
    apart = squares[:, None] + squares[None, :] - 2 * gram.products
    return np.ldexp(np.maximum(apart, 0).astype(np.float64), -2 * gram.fraction_bits)


def krum_order(gram: Gram, bad: int) -> list[str]:
    """Sites by Krum's score, the best first: the sum of squared distances to the nearest n - bad - 2 others."""
    count = len(gram.sites)
    if count < 2 * bad + 3:
        raise Refusal(
            f"among {count} updates {bad} bad ones cannot be detected",
            where="two servers",
            remedy=f"expect fewer bad sites, or take at least {2 * bad + 3} sites into a round",
        )
    apart = squared_distances(gram)
    np.fill_diagonal(apart, np.inf)
    ordered = np.sort(apart, axis=1)[:, :-1]
    score, total = ordered[:, : count - bad - 2].sum(axis=1), ordered.sum(axis=1)
    # Two that are each other's only neighbour score alike: the one nearer to all others goes first.
    return [gram.sites[int(place)] for place in np.lexsort((total, score))]


def krum_weights(gram: Gram, bad: int) -> dict[str, int]:
    """All weight to the one site with the best score. Its update is then opened, to whoever reads the result."""
    return {krum_order(gram, bad)[0]: 1}


def multi_krum_weights(gram: Gram, bad: int, keep: int = 0) -> dict[str, int]:
    """One vote each for the best `keep` sites; 0: all but the bad ones expected."""
    number = keep or len(gram.sites) - bad
    if number + bad > len(gram.sites):
        raise Refusal(
            f"of {len(gram.sites)} sites with {bad} bad ones, {number} good ones cannot be kept",
            where="two servers",
            remedy=f"keep at most {len(gram.sites) - bad}",
        )
    return dict.fromkeys(krum_order(gram, bad)[:number], 1)


def erosion_distances(gram: Gram, user: str) -> dict[str, float]:
    """|g_i - g_0| / |g_0| of every site, for Weight Erosion; refused where the asking site's update is 0."""
    if user not in gram.sites:
        raise Refusal(f"the asking site {user} has not answered", where="two servers", remedy="skip this round")
    place = gram.sites.index(user)
    own = int(gram.products[place, place])
    if own <= 0:
        raise Refusal(
            f"the update of {user} is 0, so nothing can be compared with it", where="two servers", remedy="skip it"
        )
    relative = np.sqrt(squared_distances(gram)[place] / np.ldexp(float(own), -2 * gram.fraction_bits))
    return dict(zip(gram.sites, relative.tolist(), strict=True))


def whole_weights(weights: Mapping[str, float]) -> dict[str, int]:
    """Weights as whole numbers in the same proportions, to one part in 2^20 of the largest."""
    largest = max(weights.values(), default=0.0)
    if not (largest > 0 and np.isfinite(largest) and min(weights.values()) >= 0):
        raise Refusal("no site has a weight above 0", where="two servers", remedy="skip this round")
    return {site: round(weight / largest * 2**WEIGHT_BITS) for site, weight in weights.items()}
