"""Chi-squared and Fisher's exact test of a table of counts."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

Table = np.ndarray[Any, Any]


class Association(NamedTuple):
    """`odds_ratio` with its interval and Fisher's p-value for 2 by 2 tables only."""

    chi2: float
    df: int
    p: float
    cramer: float
    smallest_expected: float
    fisher_p: float | None = None
    odds_ratio: float | None = None
    low: float | None = None
    high: float | None = None
    is_corrected: bool = False


def association(table: Table, level: float = 0.95) -> Association | None:
    """Pearson's test without a continuity correction; none where fewer than two rows or columns hold anybody."""
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < 2:
        return None
    total = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    chi2 = float(((table - expected) ** 2 / expected).sum())
    df = (table.shape[0] - 1) * (table.shape[1] - 1)
    found = Association(
        chi2,
        df,
        float(stats.chi2.sf(chi2, df)),
        math.sqrt(chi2 / (float(total) * (min(table.shape) - 1))),
        float(expected.min()),
    )
    if table.shape != (2, 2):
        return found
    zero = bool((table == 0).any())
    (a, b), (c, d) = table + 0.5 * zero
    odds, error = math.log(a * d / (b * c)), math.sqrt(1 / a + 1 / b + 1 / c + 1 / d)
    reach = float(stats.norm.ppf((1 + level) / 2)) * error
    return found._replace(
        fisher_p=float(stats.fisher_exact(np.asarray(table, np.int64)).pvalue),
        odds_ratio=math.exp(odds),
        low=math.exp(odds - reach),
        high=math.exp(odds + reach),
        is_corrected=zero,
    )
