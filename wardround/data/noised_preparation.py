"""Fits a preparation of which nothing is exact: from ranges and categories that the study declares, or from noise.

Declared columns cost nothing, since nothing is asked about them: numbers are clamped to their range and scaled by it,
a missing one becomes the middle; words become the declared categories. Otherwise two questions are put to the sites,
each under noise: between which powers of two the numbers lie and which categories are not rare (`noised_counts`), then
the means and deviations within these ranges (`noised_moments`). A missing number becomes the mean: a median would need
many more counts, and each has noise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.data.query import Ask
from wardround.queries.columns import list_some
from wardround.queries.noised_counts import cell_edges, noised_counts
from wardround.queries.noised_moments import noised_moments

Column = NumberColumn | TextColumn
Ranges = Mapping[str, Sequence[float]]
Categories = Mapping[str, Sequence[str]]
CLEARLY = 3.0
"""Deviations of the noise above which a cell is taken to hold values: of 121 empty cells about one in six studies
shows one."""


class StatisticsNoise(NamedTuple):
    """How much noise the statistics of a private study get; none where they are not made at all."""

    noise: float | None
    delta: float = 0.0
    seed: int | None = None
    """Of a simulation; real sites draw their own."""


def declared_column(name: str, kind: str, ranges: Ranges, categories: Categories, *, scale: str) -> Column | None:
    """The column as it is declared, or none where it is not; refuses numbers declared as words and the reverse."""
    said = "ranges" if name in ranges else "categories" if name in categories else ""
    if not said:
        return None
    if kind != "empty" and (kind == "text") != (said == "categories"):
        raise Refusal(
            f"column {name!r} holds {'words' if kind == 'text' else 'numbers'} and has an entry under {said}",
            where="[data.preparation]",
            remedy=f"declare it under {'categories' if kind == 'text' else 'ranges'}",
        )
    if said == "categories":
        return TextColumn(name, tuple(categories[name]))
    low, high = (float(end) for end in ranges[name])
    middle, half = (low + high) / 2, (high - low) / 2
    return scaled(name, middle, middle, half, (low, high), scale)


def scaled(name: str, fill: float, center: float, width: float, ends: tuple[float, float], scale: str) -> NumberColumn:
    """A column clamped to its ends; "minmax" maps these to 0 and 1, "none" leaves the values as they are."""
    low, high = ends
    if scale == "minmax":
        center, width = low, high - low
    elif scale == "none":
        center, width = 0.0, 1.0
    return NumberColumn(name, fill, center, width if width > 0 else 1.0, low=low, high=high)


def fit_privately(
    ask: Ask, kinds: Mapping[str, str], ranges: Ranges, categories: Categories, *, noise: StatisticsNoise, scale: str
) -> tuple[Preparation, tuple[str, ...]]:
    """The preparation of a private study, all declared or all from noised statistics, and remarks."""
    if ranges or categories or noise.noise is None:
        return declared_preparation(kinds, ranges, categories, scale=scale), ()
    words = [name for name, kind in kinds.items() if kind == "text"]
    told = ask(
        noised_counts(columns=tuple(kinds), words=tuple(words), noise=noise.noise, delta=noise.delta, seed=noise.seed),
        Message({}),
    )
    deviation = noise.noise * math.sqrt(len(kinds) * told["sites"])
    ends = {name: likely_range(np.array(cells), deviation) for name, cells in told["cells"].items()}
    lost = [name for name, kind in kinds.items() if kind not in ("text", "empty") and ends[name] is None]
    lost += [name for name in words if not told["names"][name]]
    if lost:
        raise Refusal(
            f"the noise hides the statistics of {list_some(lost)}: too few patients for so little epsilon",
            where="[privacy] statistics",
            remedy="declare ranges and categories of all columns under [data.preparation], which costs nothing, or give"
            " statistics a larger share of epsilon",
        )
    fitted: dict[str, Column] = {
        name: TextColumn(name, tuple(sorted(told["names"][name])), fullest(told["names"][name])) for name in words
    }
    known = {name: end for name, end in ends.items() if end is not None}
    fitted |= noised_columns(ask, known, noise, scale) if known else {}
    missing = {name: NumberColumn(name, scale=0.0) for name in kinds if name not in fitted}
    remark = "How columns become numbers follows from noised statistics: missing numbers become the noised mean."
    return Preparation(tuple({**fitted, **missing}[name] for name in kinds)), (remark,)


def declared_preparation(
    kinds: Mapping[str, str], ranges: Ranges, categories: Categories, *, scale: str
) -> Preparation:
    found = {name: declared_column(name, kind, ranges, categories, scale=scale) for name, kind in kinds.items()}
    open_ = [name for name, column in found.items() if column is None]
    if open_:
        raise Refusal(
            f"under [privacy] nothing may be asked about {list_some(open_)}: neither its range nor its categories are"
            " declared",
            where="[data.preparation]",
            remedy="declare ranges = { NAME = [low, high] } for numbers and categories = { NAME = [...] } for words of"
            ' all columns, or drop these; with level = "sample" declare none, and noised statistics are asked for',
        )
    return Preparation(tuple(column for column in found.values() if column is not None))


def noised_columns(
    ask: Ask, ends: Mapping[str, tuple[float, float]], noise: StatisticsNoise, scale: str
) -> dict[str, Column]:
    names = tuple(ends)
    query = noised_moments(columns=names, noise=noise.noise or 0.0, seed=noise.seed)
    told = ask(query, Message({"ranges": np.array([ends[name] for name in names], np.float64)}))
    fitted: dict[str, Column] = {}
    for name, (count, total, squares) in zip(names, told["sums"], strict=True):
        low, high = ends[name]
        middle, half = (low + high) / 2, (high - low) / 2
        rows = max(count, 1.0)
        mean = float(np.clip(total / rows, -1.0, 1.0))
        # Noise can leave less than nothing; a tenth of the range at least keeps values small.
        spread = math.sqrt(max(squares / rows - mean**2, 0.01))
        fitted[name] = scaled(name, middle + half * mean, middle + half * mean, half * spread, (low, high), scale)
    return fitted


def likely_range(cells: np.ndarray[Any, Any], deviation: float) -> tuple[float, float] | None:
    """From the first to the last cell that clearly holds values; none where no cell does."""
    full = np.flatnonzero(cells > max(CLEARLY * deviation, 0.5))
    if not len(full):
        return None
    edges = cell_edges()
    return float(edges[full[0], 0]), float(edges[full[-1], 1])


def fullest(counts: Mapping[str, float]) -> str | None:
    return min(counts, key=lambda label: (-counts[label], label), default=None)
