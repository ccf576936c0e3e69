"""Statistics of the preparation from the rows of many simulated sites at once: what their answers would add up to."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.components.recipes import recipe_of
from wardround.core.contracts import Message, Query, Report
from wardround.core.errors import Refusal
from wardround.data.pooled.rows import PooledRows
from wardround.data.query import Ask
from wardround.queries.columns import as_codes, as_numbers

Rows = np.ndarray[Any, Any]


def pooled_ask(pool: PooledRows, ask: Ask) -> Ask:
    """Answers from all rows at once what the sites' answers would add up to; other questions go to each site."""
    numbers: dict[tuple[str, ...], Rows] = {}
    ordered: dict[str, Rows] = {}

    def matrix(columns: tuple[str, ...]) -> Rows:
        if columns not in numbers:
            numbers[columns] = np.column_stack([as_numbers(pool.frame[name]) for name in columns])
        return numbers[columns]

    def known(name: str) -> Rows:
        """The known values of a column in ascending order."""
        if name not in ordered:
            values = as_numbers(pool.frame[name])
            ordered[name] = np.sort(values[~np.isnan(values)])
        return ordered[name]

    def answer(query: Query, message: Message) -> Report:
        recipe = recipe_of(query)
        settings = dict(recipe.settings)
        columns = tuple(settings.get("columns", ()))
        if recipe.name not in ANSWERS or settings.get("smallest_cell", 1) != 1 or not columns:
            return ask(query, message)
        try:
            return ANSWERS[recipe.name](settings, message, pool, matrix, known)
        except Refusal:  # a site by itself can say which one it is
            return ask(query, message)

    return answer


Matrix = Callable[[tuple[str, ...]], Rows]
Known = Callable[[str], Rows]


def moments(settings: Mapping[str, Any], _: Message, pool: PooledRows, matrix: Matrix, known: Known) -> Report:
    """As `queries.moments` combines them: sums of every site's deviations from its own mean."""
    x = matrix(tuple(settings["columns"]))
    there = ~np.isnan(x)
    count = pool.add(there.astype(np.int64)).astype(np.float64)
    sums = pool.add(np.where(there, x, 0.0))
    own = np.repeat(sums / np.maximum(count, 1), np.diff(pool.first), axis=0)
    deviations = pool.add(np.where(there, x - own, 0.0) ** 2)
    total = count.sum(axis=0)
    mean = sums.sum(axis=0) / np.maximum(total, 1)
    between = (count * (sums / np.maximum(count, 1) - mean) ** 2).sum(axis=0)
    return {
        "count": total.tolist(),
        "mean": mean.tolist(),
        "deviations": (deviations.sum(axis=0) + between).tolist(),
        "missing": (len(x) - total).astype(np.int64).tolist(),
    }


def extremes(settings: Mapping[str, Any], _: Message, pool: PooledRows, matrix: Matrix, known: Known) -> Report:
    ordered = [known(name) for name in settings["columns"]]
    return {
        "low": [float(one[0]) if len(one) else np.inf for one in ordered],
        "high": [float(one[-1]) if len(one) else -np.inf for one in ordered],
        "whole": [not np.count_nonzero(one % 1) for one in ordered],
    }


def histogram(settings: Mapping[str, Any], message: Message, pool: PooledRows, matrix: Matrix, known: Known) -> Report:
    edges: Rows = message.arrays["edges"]
    ordered = [known(name) for name in settings["columns"]]
    pairs = zip(ordered, edges, strict=True)
    below = np.array([np.searchsorted(one, asked, side="left") for one, asked in pairs]).reshape(edges.shape)
    counts = np.diff(below, axis=-1)
    return {"below": below[..., 0].tolist(), "counts": counts.tolist(), "known": [len(one) for one in ordered]}


def category_counts(settings: Mapping[str, Any], _: Message, pool: PooledRows, matrix: Matrix, known: Known) -> Report:
    counts, missing = {}, []
    for name in settings["columns"]:
        where, labels = as_codes(
            pd.Series(as_numbers(pool.frame[name])) if settings.get("numbers") else pool.frame[name]
        )
        if len(labels) > settings["most"]:
            raise Refusal(f"column {name!r} has too many values")
        times = np.bincount(where[where >= 0], minlength=len(labels))
        counts[name] = dict(zip(labels.tolist(), times.tolist(), strict=True))
        missing.append(int((where < 0).sum()))
    return {"counts": counts, "missing": missing}


ANSWERS: Mapping[str, Callable[..., Report]] = {
    "moments": moments,
    "extremes": extremes,
    "histogram": histogram,
    "category_counts": category_counts,
}
