"""Sums over number columns under noise: how many values are known, their sum and that of their squares.

Every value is first clamped to the range that the message gives its column and placed between -1 and 1 within it, so a
patient moves each of the three sums of a column by 1 at most, and all sums of d columns by sqrt(3 d); each sum gets
Gaussian noise of `noise` times that.
"""

import math
from collections.abc import Sequence

import numpy as np

from wardround.core.bounds import NotNegative
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.privacy.noised_sums import noise_key, with_gaussian_noise
from wardround.queries.noised_counts import finite_values
from wardround.queries.values import sum_over_sites

TERMS = Terms("noised counts, sums and sums of squares of numbers within their ranges", lambda of: 3 * of.columns)


@recorded("query", TERMS)
def noised_moments(*, columns: tuple[str, ...], noise: NotNegative, seed: int | None = None) -> Query:
    """Noised sums of values within the ranges that the message carries, shape (columns, 2); an entry a column."""
    deviation = noise * math.sqrt(3 * max(1, len(columns)))

    def ask(message: Message, site: Site) -> Message:
        low, high = np.asarray(message.arrays["ranges"], np.float64).reshape(len(columns), 2).T
        with np.errstate(invalid="ignore", over="ignore"):
            middle, half = (low + high) / 2, np.maximum((high - low) / 2, np.finfo(np.float64).tiny)
        sums = np.zeros((len(columns), 3))
        for place, name in enumerate(columns):
            values = finite_values(site.table[name])
            with np.errstate(invalid="ignore", over="ignore"):
                within = np.clip((values[~np.isnan(values)] - middle[place]) / half[place], -1.0, 1.0)
            within = np.where(np.isfinite(within), within, 0.0)  # a range that makes no sense tells nothing
            sums[place] = len(within), within.sum(), np.square(within).sum()
        return Message({"sums": with_gaussian_noise(sums, deviation, noise_key(seed, "moments", site.name))})

    def combine(answers: Sequence[Message]) -> Report:
        return {"sums": sum_over_sites(answers, "sums").tolist(), "sites": len(answers)}

    return Query(ask, combine)
