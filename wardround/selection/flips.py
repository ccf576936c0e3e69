"""Flips: decisions that another classifier changes, and whether more of them become right than wrong.

The test is the one-tailed binomial one: were a changed decision as likely wrong as right, how often would so many be
right? Two things make it look better than it is, and both are corrected by simulation: looking at many thresholds and
keeping the best, and several rows of the same patient, which are right or wrong together. Signs are drawn for each
patient, and the smallest p-value over the same looks is compared with the one that was found.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtrc, ndtr

from wardround.evaluate.clinical.proportions import Estimate, wilson_interval

Values = np.ndarray[Any, Any]
DRAWS = 999
AT_ONCE = 2_000_000


class Flips(NamedTuple):
    """Changed decisions: how many became right, how many wrong."""

    right: int
    wrong: int

    @property
    def all(self) -> int:
        return self.right + self.wrong

    @property
    def p_value(self) -> float:
        return float(binomial_p(np.array(self.right), np.array(self.wrong)))


def binomial_p(right: Values, wrong: Values) -> Values:
    """The chance of at least so many right ones if each were right with probability one half; 1 where none changed.

    >>> binomial_p(np.array([0, 3, 2]), np.array([0, 0, 2])).tolist()
    [1.0, 0.125, 0.6875]
    """
    right, total = np.asarray(right), np.asarray(right) + np.asarray(wrong)
    # bdtrc(k, n, p) is the chance of more than k.
    tail = bdtrc(np.maximum(right - 1, 0), np.maximum(total, 1), 0.5)
    return np.where(right > 0, tail, 1.0)


def signs_of(own: Values, other: Values, outcome: Values) -> Values:
    """+1 where the other classifier's label is right and the own wrong, -1 the other way round, 0 where they agree."""
    changed = own != other
    return np.where(changed, np.where(other == outcome, 1, -1), 0)


def count_flips(signs: Values) -> Flips:
    return Flips(int((signs > 0).sum()), int((signs < 0).sum()))


def corrected_p(signs: Values, looks: Values, patients: Values, rng: np.random.Generator, draws: int = DRAWS) -> float:
    """The p-value of the best of several looks: look i is at the first `looks[i]` of the signs, which are in order.

    Each draw turns all of a patient's signs, or none of them. Exact up to the number of draws.
    """
    signs, looks = np.asarray(signs), np.unique(np.asarray(looks))
    looks = looks[looks > 0]
    if not len(looks) or not np.any(signs[: looks[-1]]):
        return 1.0
    signs, codes = signs[: looks[-1]], np.unique(patients[: looks[-1]], return_inverse=True)[1]
    # Rows whose decision does not change count for nothing, so only the others are drawn.
    kept = signs != 0
    ends = np.cumsum(kept)[looks - 1]
    signs, codes, ends = signs[kept], np.unique(codes[kept], return_inverse=True)[1], ends[ends > 0]
    found = _smallest(signs[None], ends)[0]
    size = max(1, AT_ONCE // len(signs))
    below = 0
    for first in range(0, draws, size):
        turned = rng.integers(0, 2, (min(size, draws - first), int(codes.max()) + 1), np.int8) * 2 - 1
        below += int((_smallest(turned[:, codes] * signs, ends) <= found * (1 + 1e-9)).sum())
    return (1 + below) / (1 + draws)


def _smallest(signs: Values, ends: Values) -> Values:
    right = np.cumsum(signs > 0, axis=1)[:, ends - 1]
    return binomial_p(right, ends - right).min(axis=1)


def p_by_patient(signs: Values, patients: Values) -> float:
    """One look in which patients count: the sum of signs over its deviation if each patient's sign were fair.

    With one changed row a patient it is the normal form of the binomial test.
    """
    total = np.bincount(np.unique(patients, return_inverse=True)[1], weights=signs)
    spread = float(np.sqrt(np.square(total).sum()))
    return 1.0 if not spread else float(ndtr(-float(total.sum()) / spread))


def success_share(signs: Values, patients: Values, level: float = 0.95) -> Estimate:
    """The share of changed decisions that became right; Wilson's interval for what the patients are worth."""
    kept = signs != 0
    many = int(kept.sum())
    if not many:
        return Estimate(None, reason="no decision was changed")
    right = int((signs > 0).sum())
    share, codes = right / many, np.unique(patients[kept], return_inverse=True)[1]
    # The spread of the patients' own totals around the share, against that of independent rows.
    residual = np.bincount(codes, weights=(signs[kept] > 0) - share)
    inflation = max(1.0, float(np.square(residual).sum()) / max(many * share * (1 - share), 1e-12))
    if share in (0.0, 1.0):
        inflation = many / (int(codes.max()) + 1)
    worth = many / inflation
    low, high = wilson_interval(np.array(share * worth), np.array(worth), level)
    return Estimate(share, float(low), float(high))
