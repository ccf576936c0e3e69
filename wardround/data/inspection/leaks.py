"""Columns that tell the outcome by themselves: often known only afterwards, such as the discharge status of the dead.

How well one column separates an outcome is measured by its ROC-AUC on training rows: of the values (either way round),
of whether there is one at all, and for words of the share of the outcome among rows with the same word, found on one
half of the rows and measured on the other. For a quantity it is the rank correlation.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.queries.columns import as_codes, as_numbers, kind_of

Array = np.ndarray[Any, Any]
LEAKS = 0.98
"""An ROC-AUC, or a rank correlation, that a single honest column hardly ever reaches."""
LEAST_ROWS, LEAST_CASES = 30, 5
"""With fewer, a column separates the outcome by chance."""


def separation(column: "pd.Series[Any]", outcome: Array) -> float | None:
    """How well the column tells the outcome (0 and 1) by itself, from 0.5 to 1; none where rows are too few."""
    if not is_enough(outcome):
        return None
    missing = column.isna().to_numpy()
    found = [auc(missing.astype(np.float64), outcome)] if missing.any() and not missing.all() else []
    if kind_of(column) in ("number", "flag"):
        known = ~missing
        if is_enough(outcome[known]):
            found.append(auc(as_numbers(column)[known], outcome[known]))
    elif kind_of(column) == "text":
        found.append(auc(shares_by_word(column, outcome), outcome))
    best = [max(one, 1 - one) for one in found]
    return max(best, default=None)


def is_enough(outcome: Array) -> bool:
    cases = int(outcome.sum())
    return len(outcome) >= LEAST_ROWS and min(cases, len(outcome) - cases) >= LEAST_CASES


def auc(score: Array, outcome: Array) -> float:
    """The chance that a case has a higher score than another patient; ties count half."""
    cases = int(outcome.sum())
    rank = pd.Series(score).rank().to_numpy()
    return float((rank[outcome > 0].sum() - cases * (cases + 1) / 2) / (cases * (len(outcome) - cases)))


def shares_by_word(column: "pd.Series[Any]", outcome: Array) -> Array:
    """For every row the share of the outcome among rows of the other half that have the same word."""
    codes = as_codes(column)[0] + 1
    half = np.arange(len(codes)) % 2
    mean = float(outcome.mean())
    score = np.empty(len(codes))
    for side in (0, 1):
        other = half != side
        times = np.bincount(codes[other], minlength=int(codes.max()) + 1)
        cases = np.bincount(codes[other], outcome[other], minlength=len(times))
        share = np.where(times > 0, cases / np.maximum(times, 1), mean)
        score[half == side] = share[codes[half == side]]
    return score


def correlation(column: "pd.Series[Any]", outcome: Array) -> float | None:
    """The rank correlation of numbers with a quantity, without its sign; none for words or few rows."""
    if kind_of(column) != "number":
        return None
    values = as_numbers(column)
    known = np.isfinite(values) & np.isfinite(outcome)
    if int(known.sum()) < LEAST_ROWS or len(np.unique(values[known])) < 3:
        return None
    ranks = pd.Series(values[known]).rank(), pd.Series(outcome[known]).rank()
    return abs(float(ranks[0].corr(ranks[1])))
