"""Conditions on patients: "age >= 60 and sex = female". A small grammar that is read, never run.

A condition is a column, a sign (=, !=, <, <=, >, >=) and a value; several are joined by "and". Names and values with
blanks or signs in them stand in quotation marks. A patient whose value is missing does not meet it.
"""

import re
from typing import Any, NamedTuple

import numpy as np

from wardround.core.analysis import Agreed
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.queries.columns import suggest_name
from wardround.statistics.selection.columns import codes_of, values_of

WORD = r"\"[^\"]+\"|'[^']+'|[^\s<>=!\"']+"
CONDITION = re.compile(rf"\s*({WORD})\s*(<=|>=|!=|==|=|<|>)\s*({WORD})\s*")
JOINT = re.compile(r"\s+and\s+", re.IGNORECASE)


class Condition(NamedTuple):
    """One column compared with one value."""

    column: str
    sign: str
    value: str


def read_conditions(text: str, where: str = "[analysis] only") -> tuple[Condition, ...]:
    """
    >>> read_conditions("age >= 60 and 'blood group' = A")
    (Condition(column='age', sign='>=', value='60'), Condition(column='blood group', sign='=', value='A'))
    """
    if not text.strip():
        return ()
    found = []
    for part in JOINT.split(text.strip()):
        matched = CONDITION.fullmatch(part)
        if matched is None:
            raise Refusal(
                f"the condition {part!r} cannot be read",
                where=where,
                remedy='write a column, a sign (=, !=, <, <=, >, >=) and a value, such as "age >= 60 and sex = female"',
            )
        name, sign, value = (word.strip("\"'") for word in matched.groups())
        found.append(Condition(name, "=" if sign == "==" else sign, value))
    return tuple(found)


def check_conditions(conditions: tuple[Condition, ...], agreed: Agreed) -> None:
    """Refuse what does not fit the agreed columns, before anybody is asked."""
    for column, sign, value in conditions:
        if column not in agreed.columns:
            raise Refusal(
                f"there is no column {column!r}", where="[analysis] only", remedy=suggest_name(column, agreed.columns)
            )
        kind, levels = agreed.columns[column]
        if kind == "category" and (sign not in ("=", "!=") or value not in levels):
            raise Refusal(
                f"the condition {column} {sign} {value} does not fit the categories of {column!r}",
                where="[analysis] only",
                remedy=f"compare by = or != with one of {', '.join(levels)}",
            )
        if kind == "number" and not is_number(value):
            raise Refusal(
                f"{value!r} is no number", where=f"[analysis] only, {column}", remedy="compare it with a number"
            )


def is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def meets(conditions: tuple[Condition, ...], agreed: Agreed, site: Site) -> Any:
    """A flag a row: whether the patient meets them all."""
    kept = np.ones(len(site.table), bool)
    for column, sign, value in conditions:
        if agreed.columns[column].kind == "category":
            codes = codes_of(agreed, site, column)
            same = codes == agreed.columns[column].levels.index(value)
            kept &= (codes >= 0) & (same if sign == "=" else ~same)
        else:
            x, bound = values_of(site, column), float(value)
            kept &= compare_numbers(x, sign, bound) & ~np.isnan(x)
    return kept


COMPARISONS = {"=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal}
COMPARISONS |= {">": np.greater, ">=": np.greater_equal}


def compare_numbers(values: Any, sign: str, bound: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return COMPARISONS[sign](values, bound)
