"""The questions that preparation asks: counts, sums, extremes, category counts and histograms, never rows.

Means and variances are combined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances", 1979: every site sends squared deviations from its OWN mean, so nothing cancels.
What a site tells: `moments` sums; `category_counts` names and counts; `extremes` the smallest and largest value, which
are values of single patients; `histogram` counts between edges that narrow around the median. Where the last two are
too much, ask for `impute = "mean"` and `scale = "standard"`, which need neither. A number below `smallest_cell` rows is
withheld: a column known for fewer patients counts as unknown at that site, a rarer category is not named.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.errors import Refusal
from wardround.core.recipes import recorded
from wardround.data.asking import pack, unpack
from wardround.data.columns import as_numbers, as_text, is_measured

Matrix = np.ndarray[Any, Any]


def numbers_of(site: Site, columns: Sequence[str]) -> Matrix:
    """(rows, columns) in float64, NaN where missing."""
    if not columns:
        return np.empty((len(site.table), 0))
    table = site.table[list(columns)]
    if all(is_measured(dtype) for dtype in table.dtypes):
        return np.asarray(table.to_numpy(dtype=np.float64))
    return np.column_stack([as_numbers(table[name]) for name in columns])


def summed(answers: Sequence[Message], name: str) -> Matrix:
    return np.asarray(np.sum([answer.arrays[name] for answer in answers], axis=0))


@recorded("query")
def moments(columns: Sequence[str], *, smallest_cell: int = 1) -> Query:
    """How many values, their mean, squared deviations from it, and how many are missing; a list entry a column."""

    def ask(_: Message, site: Site) -> Message:
        x = numbers_of(site, columns)
        known = ~np.isnan(x)
        count = known.sum(axis=0)
        missing = len(x) - count
        count = np.where(count < smallest_cell, 0, count)
        total = np.where(count > 0, np.where(known, x, 0.0).sum(axis=0), 0.0)
        mean = total / np.maximum(count, 1)
        deviations = (np.where(known, x - mean, 0.0) ** 2).sum(axis=0)
        return Message(
            {
                "count": count,
                "sum": total,
                "deviations": np.where(count > 0, deviations, 0.0),
                "missing": np.where(missing < smallest_cell, 0, missing),
            }
        )

    def combine(answers: Sequence[Message]) -> Report:
        counts = np.array([answer.arrays["count"] for answer in answers], np.float64)
        sums = np.array([answer.arrays["sum"] for answer in answers], np.float64)
        count = counts.sum(axis=0)
        mean = sums.sum(axis=0) / np.maximum(count, 1)
        between = (counts * (sums / np.maximum(counts, 1) - mean) ** 2).sum(axis=0)
        return {
            "count": count.tolist(),
            "mean": mean.tolist(),
            "deviations": (summed(answers, "deviations") + between).tolist(),
            "missing": summed(answers, "missing").tolist(),
        }

    return Query(ask, combine)


@recorded("query")
def extremes(columns: Sequence[str], *, smallest_cell: int = 1) -> Query:
    """Smallest and largest value of each column, and whether all are whole; infinities where nothing is known."""

    def ask(_: Message, site: Site) -> Message:
        x = numbers_of(site, columns)
        known = ~np.isnan(x)
        told = known.sum(axis=0) >= smallest_cell
        low = np.where(known, x, np.inf).min(axis=0, initial=np.inf)
        high = np.where(known, x, -np.inf).max(axis=0, initial=-np.inf)
        whole = (~known | (np.where(known, x, 0.0) % 1 == 0)).all(axis=0)
        return Message(
            {"low": np.where(told, low, np.inf), "high": np.where(told, high, -np.inf), "whole": whole | ~told}
        )

    def combine(answers: Sequence[Message]) -> Report:
        return {
            "low": np.min([answer.arrays["low"] for answer in answers], axis=0).tolist(),
            "high": np.max([answer.arrays["high"] for answer in answers], axis=0).tolist(),
            "whole": np.all([answer.arrays["whole"] for answer in answers], axis=0).tolist(),
        }

    return Query(ask, combine)


@recorded("query")
def histogram(columns: Sequence[str], *, smallest_cell: int = 1) -> Query:
    """Counts below and between the edges that the message carries, shape (columns, ranks, edges)."""

    def ask(message: Message, site: Site) -> Message:
        edges: Matrix = message.arrays["edges"]
        x = np.sort(numbers_of(site, columns), axis=0)
        known = (~np.isnan(x)).sum(axis=0)
        below = np.zeros(edges.shape, np.int64)
        for index, count in enumerate(known):
            if count >= smallest_cell:
                below[index] = np.searchsorted(x[:count, index], edges[index], side="left")
        return Message({"below": below[..., 0], "counts": np.diff(below, axis=-1)})

    def combine(answers: Sequence[Message]) -> Report:
        return {name: summed(answers, name).tolist() for name in ("below", "counts")}

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
                    f"column {name!r} has {len(labels)} different values, more than {most} categories",
                    where=f"site {site.name}",
                    remedy="drop the column if it identifies patients or is free text, use another imputation if it is"
                    " a measurement, or raise most_categories if these really are categories",
                )
            pairs = zip(labels.tolist(), times.tolist(), strict=True)
            counts[name] = {label: number for label, number in pairs if number >= smallest_cell}
            absent = int((where < 0).sum())
            missing.append(absent if absent >= smallest_cell else 0)
        return Message({"counts": pack(counts), "missing": np.array(missing, np.int64)})

    def combine(answers: Sequence[Message]) -> Report:
        total: dict[str, dict[str, int]] = {name: {} for name in columns}
        for answer in answers:
            for name, counts in unpack(answer.arrays["counts"]).items():
                for label, number in counts.items():
                    total[name][label] = total[name].get(label, 0) + number
        return {"counts": total, "missing": summed(answers, "missing").tolist()}

    return Query(ask, combine)
