"""What the weights of Weight Erosion tell about the sites: how far a site's share of sick patients is from the asker's.

Property inference (Ganju et al., "Property Inference Attacks on Fully Connected Neural Networks using Permutation
Invariant Representations", CCS 2018, have the idea for models). Weights and distances are shown to everybody who reads
a run, and a site whose patients fall ill more often has other gradients. The attacker ranks the partners by the
distance that was told, and takes that for the order of the differences in prevalence.

Needs at least 4 partners for a rank to mean anything; more than chance is judged by shuffling the sites.
"""

from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from wardround.core.errors import Refusal

FEWEST = 4
SHUFFLES = 9_999
FEW = 7
"""Partners up to which all orders are tried."""


class PrevalenceLeak(NamedTuple):
    """How well the told numbers rank the partners by their difference in prevalence: 1 is perfectly."""

    correlation: float
    p_value: float
    """How often chance alone would do as well."""
    partners: int


def infer_prevalence(published: Any, prevalence: Any, user: int, seed: int = 0) -> PrevalenceLeak:
    """Rank correlation of what was told (distance, or minus the weight) with |prevalence - the asking site's|."""
    numbers, shares = np.asarray(published, np.float64), np.asarray(prevalence, np.float64)
    others = np.arange(len(numbers)) != user
    if others.sum() < FEWEST:
        raise Refusal(
            f"{int(others.sum())} partners are too few to see whether weights reveal their prevalence",
            where="attack",
            remedy=f"ask with at least {FEWEST} partners",
        )
    first, second = rankdata(numbers[others]), rankdata(np.abs(shares - shares[user])[others])
    found = correlation(first, second)
    count = len(first)
    generator = np.random.default_rng(seed)
    orders = permutations(range(count)) if count <= FEW else (generator.permutation(count) for _ in range(SHUFFLES))
    shuffled = np.array([correlation(first[list(order)], second) for order in orders])
    as_good = int((shuffled >= found - 1e-12).sum())
    # All orders include the real one; drawn ones do not.
    p_value = as_good / len(shuffled) if count <= FEW else (1 + as_good) / (1 + len(shuffled))
    return PrevalenceLeak(found, p_value, count)


def correlation(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Of two ranks; 0 where one of them has no order."""
    a, b = a - a.mean(), b - b.mean()
    lengths = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / lengths if lengths > 0 else 0.0
