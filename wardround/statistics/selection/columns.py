"""A site's columns as all sites agreed to take them: numbers, places among agreed levels, flags."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from wardround.core.analysis import Agreed
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.core.text import toml_key
from wardround.queries.columns import as_codes, as_numbers, suggest_name

Vector = np.ndarray[Any, Any]


def values_of(site: Site, name: str) -> Vector:
    """Float64, NaN where missing."""
    return as_numbers(site.table[name])


def codes_of(agreed: Agreed, site: Site, name: str) -> Vector:
    """The place of each patient's word among the agreed levels, -1 where it is missing."""
    codes, texts = as_codes(site.table[name])
    levels = {level: place for place, level in enumerate(agreed.columns[name].levels)}
    unknown = [str(text) for text in texts if str(text) not in levels]
    if unknown:
        raise Refusal(
            f"the column {name!r} has values that are not among its agreed categories ({len(unknown)} of them)",
            where=f"site {site.name}",
            remedy=f"make them one of {', '.join(levels)}, or agree on the columns anew",
        )
    places = np.array([levels[str(text)] for text in texts] or [-1], np.int64)
    return np.where(codes >= 0, places[np.maximum(codes, 0)], -1)


def flags_of(agreed: Agreed, site: Site, name: str, level: str = "") -> Vector:
    """1 where the column has the level (0 and 1 as they are for numbers), 0 where not, NaN where missing."""
    if agreed.columns[name].kind == "category":
        levels = agreed.columns[name].levels
        codes = codes_of(agreed, site, name)
        return np.where(codes < 0, np.nan, codes == levels.index(level or levels[-1]))
    x = values_of(site, name)
    if not np.isin(x[~np.isnan(x)], (0.0, 1.0)).all():
        raise Refusal(
            f"the column {name!r} has values other than 0 and 1, so it is no yes or no",
            where=f"site {site.name}",
            remedy="name a column of 0 and 1, or one of words with two values",
        )
    return x


def check_columns(agreed: Agreed, names: Iterable[str], *, kind: str = "", where: str = "") -> None:
    """Refuse a column that nobody has, that is of another kind, or that is named twice."""
    asked = list(names)
    for place, name in enumerate(asked):
        if name not in agreed.columns:
            raise Refusal(f"there is no column {name!r}", where=where, remedy=suggest_name(name, agreed.columns))
        if name in asked[:place]:
            raise Refusal(f"the column {name!r} is named twice", where=where, remedy="name it once")
        if kind and agreed.columns[name].kind != kind:
            numbers = kind == "number"
            raise Refusal(
                f"the column {name!r} holds {'words' if numbers else 'numbers'}, and"
                f" {'numbers' if numbers else 'categories'} are needed",
                where=where,
                remedy="name a column of numbers"
                if numbers
                else f'say in [data.cleaning] that its numbers are words: kinds = {{{toml_key(name)} = "text"}}',
            )


def check_levels(agreed: Agreed, name: str, most: int, *, least: int = 2, where: str = "") -> tuple[str, ...]:
    """The levels of a category, if they are neither too few to compare nor too many to be groups."""
    check_columns(agreed, (name,), kind="category", where=where)
    levels = agreed.columns[name].levels
    if not least <= len(levels) <= most:
        raise Refusal(
            f"the column {name!r} has {len(levels)} categories, and {least} to {most} can be compared",
            where=where,
            remedy="merge categories, or name another column",
        )
    return levels


def check_flag(agreed: Agreed, name: str, level: str = "", *, where: str = "") -> str:
    """The level that counts as yes ("1" for numbers), or a refusal where the column is no yes or no."""
    check_columns(agreed, (name,), where=where)
    kind, levels = agreed.columns[name]
    if kind == "number":
        return "1"
    if level and level not in levels:
        raise Refusal(f"{name!r} has no category {level!r}", where=where, remedy=suggest_name(level, levels))
    if not level and len(levels) != 2:
        raise Refusal(
            f"the column {name!r} has {len(levels)} categories, so which of them is meant is not clear",
            where=where,
            remedy=f"say which counts as yes: one of {', '.join(levels)}",
        )
    return level or levels[-1]
