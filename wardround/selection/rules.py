"""Rules in words: conditions on columns as recorded, which a clinician can read and a program apply.

A value that is not recorded meets no condition on numbers. Thresholds are the shortest decimal between two neighbouring
values of the validation patients, so the words are exactly what is applied.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from wardround.queries.columns import as_numbers, as_text

Values = np.ndarray[Any, Any]
ConditionKind = Literal["above", "at_most", "between", "is", "is_not", "missing", "recorded"]


class RuleCondition(BaseModel):
    """One condition on one column: above `low`, at most `high`, between them, or (not) the category `value`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: str
    kind: ConditionKind
    low: float | None = None
    high: float | None = None
    value: str | None = None

    def holds(self, frame: pd.DataFrame) -> Values:
        """For every row whether it is met."""
        series = frame[self.column]
        if self.kind in ("missing", "recorded"):
            gone = series.isna().to_numpy(bool)
            return gone if self.kind == "missing" else ~gone
        if self.kind in ("is", "is_not"):
            texts = as_text(series)
            known = ~pd.isna(texts)
            same = np.asarray(texts == self.value, bool)
            return known & (same if self.kind == "is" else ~same)
        numbers = as_numbers(series)
        with np.errstate(invalid="ignore"):
            met = ~np.isnan(numbers)
            if self.low is not None:
                met &= numbers > self.low
            if self.high is not None:
                met &= numbers <= self.high
        return met

    def words(self, units: Mapping[str, str] | None = None) -> str:
        """
        >>> RuleCondition(column="FiO2", kind="above", low=0.65).words()
        'FiO2 above 0.65'
        >>> RuleCondition(column="age", kind="between", low=40, high=60.5).words({"age": "years"})
        'age above 40 and at most 60.5 years'
        """
        unit = f" {units[self.column]}" if units and units.get(self.column) else ""
        if self.kind == "above":
            return f"{self.column} above {_plain(self.low)}{unit}"
        if self.kind == "at_most":
            return f"{self.column} at most {_plain(self.high)}{unit}"
        if self.kind == "between":
            return f"{self.column} above {_plain(self.low)} and at most {_plain(self.high)}{unit}"
        if self.kind in ("missing", "recorded"):
            return f"{self.column} {'not ' if self.kind == 'missing' else ''}recorded"
        return f"{self.column} is {'not ' if self.kind == 'is_not' else ''}{self.value}"


class WordRule(BaseModel):
    """All conditions together; no condition is everybody. `source` is whose classifier decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    conditions: tuple[RuleCondition, ...]
    source: str

    def holds(self, frame: pd.DataFrame) -> Values:
        met = np.ones(len(frame), bool)
        for condition in self.conditions:
            met &= condition.holds(frame)
        return met

    def words(self, units: Mapping[str, str] | None = None) -> str:
        return " and ".join(condition.words(units) for condition in self.conditions) or "all patients"


def first_rule(rules: tuple[WordRule, ...], frame: pd.DataFrame) -> Values:
    """For every row the place of the first rule that takes it, -1 for none: a decision list."""
    place = np.full(len(frame), -1)
    for number, rule in enumerate(rules):
        place[(place < 0) & rule.holds(frame)] = number
    return place


def short_between(low: float, high: float) -> float:
    """The decimal with the fewest digits from `low` (included) to below `high`.

    >>> short_between(0.6481, 0.6533), short_between(84.0, 85.0), short_between(1234.0, 1301.0)
    (0.65, 84.0, 1300.0)
    """
    if not (math.isfinite(low) and math.isfinite(high)) or not low < high:
        return float(low)
    largest = max(abs(low), abs(high))
    start = -math.floor(math.log10(largest)) if largest > 0 else 0
    for digits in range(start, start + 18):
        step = 10.0**-digits
        found = round(math.ceil(round(low / step, 9)) * step, max(0, digits))
        if low <= found < high:
            return float(found)
    return float(low)


def _plain(value: float | None) -> str:
    assert value is not None, "this kind of condition has this end"
    return f"{value:.10g}"
