"""The questions that preparation asks: counts, sums, ends, category counts and histograms, never rows.

Means and variances are combined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances", 1979: every site sends squared deviations from its OWN mean, so nothing cancels.
What a site tells: `moments` sums; `category_counts` names and counts; `extremes` where the values lie; `histogram`
counts below edges. With `smallest_cell` = 1 all of it is exact, and extremes are values of single patients. Above that,
every number is coarse, as `cells` says: a column known for fewer patients than a cell counts as unknown at that site, a
rarer category is not named, ends have a cell of patients at or beyond them, and edges are moved to the site's own grid,
so that no choice of edges closes in on a patient.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.errors import Refusal
from wardround.core.recipes import recorded
from wardround.data.cells import Ends, coarse_ends, coarse_moments, in_cells
from wardround.data.columns import as_numbers, as_text, is_measured
from wardround.data.query import pack, unpack

Matrix = np.ndarray[Any, Any]


def numbers_of(site: Site, columns: Sequence[str]) -> Matrix:
    """(rows, columns) in float64, NaN where missing."""
    if not columns:
        return np.empty((len(site.table), 0))
    table = site.table[list(columns)]
    if all(is_measured(dtype) for dtype in table.dtypes):
        return np.asarray(table.to_numpy(dtype=np.float64))
    return np.column_stack([as_numbers(table[name]) for name in columns])


def sum_arrays(answers: Sequence[Message], name: str) -> Matrix:
    return np.asarray(np.sum([answer.arrays[name] for answer in answers], axis=0))


def sorted_known(x: Matrix) -> list[Matrix]:
    """The known values of every column in ascending order."""
    return [np.sort(column[~np.isnan(column)]) for column in x.T]


@recorded("query")
def moments(columns: Sequence[str], *, smallest_cell: int = 1) -> Query:
    """How many values, their mean, squared deviations from it, and how many are missing; a list entry a column."""

    def ask(_: Message, site: Site) -> Message:
        x = numbers_of(site, columns)
        known = ~np.isnan(x)
        count = known.sum(axis=0)
        missing = in_cells(len(x) - count, smallest_cell)
        count = in_cells(count, smallest_cell)
        if smallest_cell > 1:
            told = [coarse_moments(one, smallest_cell) for one in sorted_known(x)]
            mean, variance = np.array(told, np.float64).reshape(-1, 2).T
            return Message({"count": count, "sum": mean * count, "deviations": variance * count, "missing": missing})
        total = np.where(known, x, 0.0).sum(axis=0)
        mean = total / np.maximum(count, 1)
        deviations = (np.where(known, x - mean, 0.0) ** 2).sum(axis=0)
        return Message({"count": count, "sum": total, "deviations": deviations, "missing": missing})

    def combine(answers: Sequence[Message]) -> Report:
        counts = np.array([answer.arrays["count"] for answer in answers], np.float64)
        sums = np.array([answer.arrays["sum"] for answer in answers], np.float64)
        count = counts.sum(axis=0)
        mean = sums.sum(axis=0) / np.maximum(count, 1)
        between = (counts * (sums / np.maximum(counts, 1) - mean) ** 2).sum(axis=0)
        return {
            "count": count.tolist(),
            "mean": mean.tolist(),
            "deviations": (sum_arrays(answers, "deviations") + between).tolist(),
            "missing": sum_arrays(answers, "missing").tolist(),
        }

    return Query(ask, combine)


@recorded("query")
def extremes(columns: Sequence[str], *, smallest_cell: int = 1) -> Query:
    """Where the values of each column lie, and whether they are whole; infinities where nothing is known."""

    def ask(_: Message, site: Site) -> Message:
        ordered = sorted_known(numbers_of(site, columns))
        nowhere = Ends(np.inf, -np.inf, 0.0)
        ends = [ends_of(one, smallest_cell) or nowhere for one in ordered]
        # As many broken values as make a cell; fewer are not told.
        whole = [np.count_nonzero(one % 1) < smallest_cell for one in ordered]
        low, high = (np.array([end[side] for end in ends], np.float64) for side in (0, 1))
        return Message({"low": low, "high": high, "whole": np.array(whole, bool) | np.isinf(low)})

    def combine(answers: Sequence[Message]) -> Report:
        return {
            "low": np.min([answer.arrays["low"] for answer in answers], axis=0).tolist(),
            "high": np.max([answer.arrays["high"] for answer in answers], axis=0).tolist(),
            "whole": np.all([answer.arrays["whole"] for answer in answers], axis=0).tolist(),
        }

    return Query(ask, combine)


def ends_of(ordered: Matrix, smallest_cell: int) -> Ends | None:
    if smallest_cell > 1:
        return coarse_ends(ordered, smallest_cell)
    return Ends(float(ordered[0]), float(ordered[-1]), 0.0) if len(ordered) else None


@recorded("query")
def histogram(columns: Sequence[str], *, smallest_cell: int = 1) -> Query:
    """Counts below and between the edges that the message carries, shape (columns, ranks, edges), and of all."""

    def ask(message: Message, site: Site) -> Message:
        edges: Matrix = message.arrays["edges"]
        below = np.zeros(edges.shape, np.int64)
        known = np.zeros(len(edges), np.int64)
        for index, one in enumerate(sorted_known(numbers_of(site, columns))):
            ends = ends_of(one, smallest_cell)
            if ends is None:
                continue
            asked = edges[index]
            if smallest_cell > 1:
                asked = np.round(asked / ends.step) * ends.step if ends.step else asked
                # Beyond the ends lie fewer patients than a cell: there an edge would close in on the outermost.
                asked = np.clip(asked, ends.low, np.nextafter(ends.high, np.inf))
            below[index] = in_cells(np.searchsorted(one, asked, side="left"), smallest_cell)
            known[index] = in_cells(len(one), smallest_cell)
        return Message({"below": below[..., 0], "counts": np.diff(below, axis=-1), "known": known})

    def combine(answers: Sequence[Message]) -> Report:
        return {name: sum_arrays(answers, name).tolist() for name in ("below", "counts", "known")}

    return Query(ask, combine)


@recorded("query")
def category_counts(columns: Sequence[str], *, most: int, numbers: bool = False, smallest_cell: int = 1) -> Query:
    """How often each category of each column occurs (`numbers`: each number, flags as 0 and 1), and how often none.

    A column with more than `most` categories at a site is refused there, before anything leaves: it is an identifier,
    free text or a measurement, and its list of values would be rows.
    """

    def ask(_: Message, site: Site) -> Message:
        counts: dict[str, dict[str, int]] = {}
        missing = []
        for name in columns:
            column = site.table[name]
            text = as_text(pd.Series(as_numbers(column)) if numbers else column)
            where, labels = pd.factorize(text)
            times = np.bincount(where[where >= 0], minlength=len(labels))
            if len(labels) > most:
                raise Refusal(
                    f"column {name!r} has more than {most} different values, too many for categories",
                    where=f"site {site.name}",
                    remedy="drop the column if it identifies patients or is free text, use another imputation if it is"
                    " a measurement, or raise most_categories if these really are categories",
                )
            pairs = zip(labels.tolist(), times.tolist(), strict=True)
            counts[name] = {
                label: in_cells(number, smallest_cell) for label, number in pairs if number >= smallest_cell
            }
            missing.append(in_cells(int((where < 0).sum()), smallest_cell))
        return Message({"counts": pack(counts), "missing": np.array(missing, np.int64)})

    def combine(answers: Sequence[Message]) -> Report:
        total: dict[str, dict[str, int]] = {name: {} for name in columns}
        for answer in answers:
            for name, counts in unpack(answer.arrays["counts"]).items():
                for label, number in counts.items():
                    total[name][label] = total[name].get(label, 0) + number
        return {"counts": total, "missing": sum_arrays(answers, "missing").tolist()}

    return Query(ask, combine)
