"""A site's columns as the search for rules sees them: numbers in bins of patients, categories one by one."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.queries.columns import as_codes, as_numbers, kind_of
from wardround.selection.rules import ConditionKind, RuleCondition, short_between

Values = np.ndarray[Any, Any]
TAILS = (0.015, 0.03)
"""Shares at both ends where bins are finer: rules are often about the few who are far out."""
STEPS = 0.05
IN_A_BIN = 8
MOST_CATEGORIES = 20


class RuleColumn(NamedTuple):
    """One thing to ask of a patient: a number, or whether a category (`value`) is the patient's."""

    name: str
    value: str | None = None
    gap: bool = False
    """Asks whether the column is recorded at all."""


class RuleColumns(NamedTuple):
    """`numbers` (columns, rows) holds NaN where a value is missing; bin 0 of `bins` is for these, the others rise.

    `edges[c]` are the values at which bins end: bin b holds those up to edges[b - 1]. All columns have the same number
    of bins, of which some may be empty.
    """

    columns: tuple[RuleColumn, ...]
    numbers: Values
    bins: Values
    edges: Values

    @property
    def width(self) -> int:
        """Bins a column, that of missing values included."""
        return self.edges.shape[1] + 2

    def condition(self, place: int, low: float | None, high: float | None) -> RuleCondition:
        """The condition "above `low` and at most `high`" on a column, with shorter numbers that mean the same here."""
        column = self.columns[place]
        if column.value is not None or column.gap:
            there = low is not None
            if column.gap:
                return RuleCondition(column=column.name, kind="missing" if there else "recorded")
            return RuleCondition(column=column.name, kind="is" if there else "is_not", value=column.value)
        values = self.numbers[place]
        ends = [None if end is None else _rounded(values, end) for end in (low, high)]
        kind: ConditionKind = "at_most" if low is None else "above" if high is None else "between"
        return RuleCondition(column=column.name, kind=kind, low=ends[0], high=ends[1])


def _rounded(values: Values, end: float) -> float:
    above = values[values > end]
    below = values[values <= end]
    low = float(below.max()) if len(below) else end
    return short_between(low, float(above.min())) if len(above) else end


def rule_columns(frame: pd.DataFrame, *, least: float = 0.015, gaps: bool = False) -> RuleColumns:
    """What rules can be about; categories and gaps of fewer than a share `least` of the patients are left out.

    Columns with one value cannot tell patients apart, and are left out too.
    """
    columns: list[RuleColumn] = []
    numbers: list[Values] = []
    rows = len(frame)
    for name in map(str, frame.columns):
        series = frame[name]
        kind = kind_of(series)
        if kind in ("number", "flag"):
            values = as_numbers(series)
            known = values[np.isfinite(values)]
            if len(known) and known.min() < known.max():
                columns.append(RuleColumn(name))
                numbers.append(np.where(np.isfinite(values), values, np.nan))
        elif kind in ("text", "mixed"):
            codes, texts = as_codes(series)
            counts = np.bincount(codes[codes >= 0], minlength=len(texts))
            # Of two categories one is enough: not to be the one is to be the other.
            most = 1 if len(texts) == 2 else MOST_CATEGORIES
            for place in np.argsort(-counts, kind="stable")[:most]:
                if least * rows <= counts[place] < (codes >= 0).sum():
                    columns.append(RuleColumn(name, str(texts[place])))
                    numbers.append(np.where(codes < 0, np.nan, (codes == place).astype(float)))
        if gaps:
            gone = series.isna().to_numpy(bool)
            if least * rows <= gone.sum() <= (1 - least) * rows:
                columns.append(RuleColumn(name, gap=True))
                numbers.append(gone.astype(float))
    held = np.array(numbers) if numbers else np.zeros((0, rows))
    return RuleColumns(tuple(columns), held, *_binned(held))


def _binned(numbers: Values) -> tuple[Values, Values]:
    shares = np.unique(np.round([*TAILS, *np.arange(STEPS, 1, STEPS), *(1 - np.array(TAILS))], 6))
    if numbers.shape[1] < IN_A_BIN * len(shares):
        # Few patients: bins of fewer than these would only cost time, since the ends are moved to exact values anyway.
        many = max(4, numbers.shape[1] // IN_A_BIN)
        shares = np.arange(1, many) / many
    edges = np.full((len(numbers), len(shares)), np.inf)
    bins = np.zeros(numbers.shape, np.uint8)
    for place, values in enumerate(numbers):
        known = values[~np.isnan(values)]
        found = np.unique(np.quantile(known, shares, method="inverted_cdf"))
        found = found[found < known.max()]
        if not len(found) or found[0] > known.min():
            # The smallest value by itself: a column that is mostly 0 is cut there.
            found = np.concatenate([[known.min()], found])[: len(shares)]
        edges[place, : len(found)] = found
        bins[place] = np.where(np.isnan(values), 0, 1 + np.searchsorted(edges[place], values, side="left"))
    return bins, edges
