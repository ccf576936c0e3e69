"""A site's patients counted over cells that the message names: numbers between edges, categories by name.

Every patient is in one cell of each column, so two-sided geometric noise in every cell makes an answer about c columns
c * epsilon differentially private (Ghosh, Roughgarden and Sundararajan 2009). Cells below `smallest_cell` are told as
0; what they held is told as one sum, or where that would give it away is added to the column's largest cell. Without
noise all counts are rounded down to multiples of it (`in_cells`), since exact ones between other edges would differ by
single patients; for the same reason a question names each column once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.bounds import Count, NotNegative
from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Extent, Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.errors import Refusal
from wardround.privacy.discrete_laplace import noise_source
from wardround.queries.cells import in_cells
from wardround.queries.names_of import MOST_NAMES, epsilon_spent
from wardround.queries.values import typed_values, words_of

Numbers = np.ndarray[Any, Any]
MOST_EDGES = 29
"""Edges of a number's cells, at most (those by which the search for its range begins)."""


def most_numbers(of: Extent) -> int:
    """In every column a count for each range, or for each name that any of the sites told; and what was withheld."""
    return of.columns * (max(MOST_EDGES, MOST_NAMES * of.sites) + 3)


TERMS = Terms(
    "counts of your training patients in every column, outcome included, by ranges and by categories; no count below"
    " {smallest_cell} patients",
    most_numbers,
    times=5,
    rows="training",
    spends=epsilon_spent,
    in_part=("epsilon",),
)
"""Four questions find the ranges, the fifth is for the counts."""


class ColumnCells(NamedTuple):
    """The cells of one column: between inner edges from `low` to `high`, or by name; the last cell is the missing."""

    name: str
    edges: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    number: bool = False

    @property
    def cells(self) -> int:
        return len(self.edges) + 2 if self.number else len(self.names) + 2


@recorded("query", TERMS)
def cells_of(*, epsilon: NotNegative, smallest_cell: Count, seed: int | None) -> Query:
    """The counts of every site over the cells that the message names, noised and with small ones withheld."""

    def ask(message: Message, site: Site) -> Message:
        noise = noise_source(epsilon, seed, f"cells {site.name}")
        arrays: dict[str, Any] = {"site": pack(site.name)}
        columns = [ColumnCells(**fields) for fields in unpack(message.arrays["columns"])]
        refuse_repeated(columns, site)
        for index, column in enumerate(columns):
            noisy = np.array([int(n) + noise() for n in count_cells(site, column)], np.int64)
            told = withhold_small_cells(noisy, smallest_cell, noisy=epsilon > 0)
            grid = 1 if epsilon > 0 else smallest_cell
            arrays[f"cells_{index}"], arrays[f"rest_{index}"] = (in_cells(one, grid) for one in told)
        arrays["names"] = message.arrays["columns"]
        return Message(arrays)

    def combine(answers: Sequence[Message]) -> Report:
        sites = {}
        for answer in answers:
            names = [fields["name"] for fields in unpack(answer.arrays["names"])]
            sites[unpack(answer.arrays["site"])] = {
                name: {"cells": answer.arrays[f"cells_{i}"].tolist(), "rest": int(answer.arrays[f"rest_{i}"])}
                for i, name in enumerate(names)
            }
        return {"sites": sites}

    return Query(ask, combine)


def refuse_repeated(columns: Sequence[ColumnCells], site: Site) -> None:
    """Refuse a question with a column twice: between two sets of edges lie groups smaller than any cell."""
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refusal(
            f"counts of the column {twice[0]!r} were asked for more than once in one question",
            where=f"site {site.name}",
            remedy="name each column once",
        )


def withhold_small_cells(counts: Numbers, smallest: int, *, noisy: bool) -> tuple[Numbers, int]:
    """Small cells as 0, and what they held together; where a sum would tell single cells, the largest cell takes it."""
    small = counts < smallest
    rest = int(counts[small].sum())
    told = np.where(small, 0, counts)
    if noisy or small.all() or (rest >= smallest and int((counts[small] != 0).sum()) > 1):
        return told, max(0, rest) if noisy or rest >= smallest else 0
    told[int(np.argmax(told))] += rest
    return told, 0


def count_cells(site: Site, column: ColumnCells) -> Numbers:
    """The site's training rows in each cell; every row is in exactly one."""
    if len(column.edges) > MOST_EDGES:
        raise Refusal(
            f"counts between {len(column.edges)} edges were asked for, and finer ones would reveal single patients",
            where=f"site {site.name}, column {column.name!r}",
            remedy=f"ask for {MOST_EDGES} edges at most",
        )
    counts = np.zeros(column.cells, np.int64)
    rows = len(site.table)
    if not column.number:
        words = words_of(site, column.name)
        where = {name: index for index, name in enumerate(column.names)}
        np.add.at(counts, [where.get(word, len(column.names)) for word in words], 1)
        known = len(words)
    else:
        values = typed_values(site.table[column.name])[1] if column.name in site.table.columns else np.empty(0)
        np.add.at(counts, np.searchsorted(column.edges, values, side="right"), 1)
        known = len(values)
    counts[-1] = rows - known
    return counts
