"""Conditions of rules on tables: how a row meets them, many rules at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.queries.columns import as_numbers, as_text, kind_of
from wardround.statistics.selection.conditions import Condition, compare_numbers, is_number, read_conditions
from wardround.weak_supervision.function import KIND, Values


def conditions_of(text: str, count: int, kind: str) -> tuple[Condition, ...]:
    """So many conditions on different columns; refused otherwise."""
    where = f"{KIND} {kind}"
    found = read_conditions(text, where=where)
    if len(found) != count or len({one.column for one in found}) != count:
        raise Refusal(
            f"{text!r} should be {'one condition' if count == 1 else f'{count} conditions on different columns'}",
            where=where,
            remedy='write "lactate > 2"' if count == 1 else 'write "lactate > 2 and age >= 65"',
        )
    for one in found:
        if one.sign not in ("=", "!=") and not is_number(one.value):
            raise Refusal(f"{one.value!r} is no number", where=where, remedy="compare with a number, or by = or !=")
    return found


def all_met(rules: Sequence[tuple[Condition, ...]], frame: pd.DataFrame) -> Values:
    """A flag for every row and rule: whether the row meets all conditions of it. A missing value meets none."""
    found = np.ones((len(frame), len(rules)), bool)
    groups: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for place, rule in enumerate(rules):
        for condition in rule:
            groups.setdefault((condition.column, condition.sign), []).append((place, condition.value))
    for (column, sign), told in groups.items():
        places = [place for place, _ in told]
        found[:, places] &= met(frame[column], sign, [value for _, value in told])
    return found


def met(series: "pd.Series[Any]", sign: str, values: Sequence[str]) -> Values:
    """A flag for every row and value."""
    kind = kind_of(series)
    if kind in ("number", "flag", "empty") and all(map(is_number, values)):
        numbers = as_numbers(series)[:, None]
        return np.asarray(compare_numbers(numbers, sign, np.array(values, np.float64)) & ~np.isnan(numbers))
    if sign not in ("=", "!="):
        raise Refusal(
            f"a rule compares {series.name!r} with a number, and the column holds {kind}",
            where="labeling functions",
            remedy="clean the column, or correct the rule",
        )
    texts = as_text(series)
    same = texts[:, None] == np.array(values, dtype=object)
    known = ~np.asarray(pd.isna(texts), bool)[:, None]
    return np.asarray(known & (same if sign == "=" else ~same.astype(bool)), bool)
