"""What every column of a table holds, and why it is taken for that; for whoever has the rows before them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from wardround.data.table import Table
from wardround.queries.columns import as_numbers, as_text, kind_of, number_text

Role = Literal["target", "input", "aside"]
SHOWN = 3
"""Examples of a column."""


@dataclass(frozen=True)
class ColumnProfile:
    """One column over all sites. `examples` are values of patients: they are shown where the rows lie, nowhere else."""

    name: str
    role: Role
    kind: str
    why: str
    rows: int
    missing: int
    levels: int
    low: float | None
    high: float | None
    examples: tuple[str, ...]
    by_site: Mapping[str, str]
    """The kinds at single sites, where they differ."""


def profile_table(table: Table, aside: Sequence[str] = ()) -> tuple[ColumnProfile, ...]:
    """Every column over all sites, in the order of the table."""
    frames = list(table.sites.values())
    names = list(dict.fromkeys(str(column) for frame in frames for column in frame.columns))
    return tuple(profile_column(table, name, (*table.aside, *aside)) for name in names)


def profile_column(table: Table, name: str, aside: Sequence[str]) -> ColumnProfile:
    parts = {site: frame[name] for site, frame in table.sites.items() if name in frame.columns}
    series = join(list(parts.values()))
    kind, known = str(kind_of(series)), series.dropna()
    low = high = None
    if kind in ("number", "flag") and len(known):
        values = as_numbers(known)
        low, high, levels = float(values.min()), float(values.max()), len(np.unique(values))
    elif kind == "image":
        levels = len(sizes_of(known))
    else:
        levels = int(pd.Series(as_text(known)).nunique())
    kinds = {site: str(kind_of(part)) for site, part in parts.items()}
    differs = len({one for one in kinds.values() if one != "empty"}) > 1
    role: Role = "target" if name == table.target else "aside" if name in aside else "input"
    return ColumnProfile(
        name,
        role,
        kind,
        reason(table, name, kind, known, differs),
        len(series),
        len(series) - len(known),
        levels,
        low,
        high,
        examples_of(known, kind),
        kinds if differs else {},
    )


def join(parts: Sequence["pd.Series[Any]"]) -> "pd.Series[Any]":
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if len(filled) > 1 else (filled or list(parts))[0]


def reason(table: Table, name: str, kind: str, known: "pd.Series[Any]", differs: bool) -> str:
    """Why a column is taken for what it is."""
    if name in table.categories:
        return "declared as text"
    if differs:
        return "not the same at every site"
    if name in table.numbers and kind == "number":
        return "declared"
    return {
        "number": "all numbers",
        "flag": "true or false",
        "text": "words",
        "date": "dates",
        "mixed": "numbers and other text",
        "empty": "no value at all",
        "image": "pixels",
    }[kind]


def sizes_of(known: "pd.Series[Any]") -> tuple[str, ...]:
    """Height, width and channels of pictures, the commonest first: their pixels are no values to show or to count."""
    sizes = pd.Series(["x".join(str(side) for side in one.pixels.shape) for one in known])
    return tuple(str(one) for one in sizes.value_counts().index)


def examples_of(known: "pd.Series[Any]", kind: str) -> tuple[str, ...]:
    """The commonest words, some numbers from low to high, or of a mixture what is not a plain number."""
    if not len(known):
        return ()
    if kind in ("number", "flag"):
        values = np.unique(as_numbers(known))
        places = np.linspace(0, len(values) - 1, min(SHOWN, len(values))).astype(int)
        return tuple(number_text(float(values[place])) for place in places)
    if kind == "image":
        return sizes_of(known)[:SHOWN]
    if kind == "mixed":
        odd = [str(one) for one in known if not isinstance(one, str | int | float)] or [str(one) for one in known]
        return tuple(dict.fromkeys(odd))[:SHOWN]
    return tuple(str(word) for word in pd.Series(as_text(known)).value_counts().index[:SHOWN])
