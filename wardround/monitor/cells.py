"""The cells over which a column is watched: tenths of the reference, or categories; the last is what is missing.

Every second patient of the reference draws the edges and the others are counted, so that edges and counts do not know
each other: ranks among these counts and later patients are then uniform to the last digit while nothing changes.
"""

from typing import Any, Literal

import numpy as np
import pandas as pd

from wardround.monitor import bets
from wardround.monitor.bets import Numbers
from wardround.monitor.state import WatchedColumn
from wardround.queries.columns import as_numbers, as_text

FEWEST = 40
"""Patients of a reference, at least."""
TENTHS = np.arange(1, 10) / 10


def begin_column(
    name: str, kind: Literal["number", "text", "prediction", "error"], values: Any, categories: tuple[str, ...] = ()
) -> WatchedColumn:
    """A column over the cells that the reference draws."""
    edges: tuple[float, ...] = ()
    if kind != "text":
        known = numbers_in(values)[::2]
        known = known[~np.isnan(known)]
        edges = tuple(np.unique(np.quantile(known, TENTHS, method="inverted_cdf")).tolist()) if len(known) else ()
    bare = WatchedColumn(
        name=name,
        kind=kind,
        edges=edges,
        categories=categories,
        reference=(),
        seen=(),
        capital=bets.first_capital(bets.RANK_BETS),
    )
    symbols = symbols_of(bare, values)
    whole, half = (tuple(count_symbols(bare, part).tolist()) for part in (symbols, symbols[1::2]))
    return bare.model_copy(update={"reference": whole, "seen": half})


def numbers_in(values: Any) -> Numbers:
    return as_numbers(values) if isinstance(values, pd.Series) else np.asarray(values, np.float64)


def symbols_of(column: WatchedColumn, values: Any) -> Numbers:
    """The number of each value's cell."""
    if column.kind == "text":
        texts = as_text(values)
        code = pd.Index(column.categories, dtype=object).get_indexer(pd.Index(texts, dtype=object))
        code = np.where(code < 0, len(column.categories), code)
        return np.where(pd.isna(texts), column.cells - 1, code)
    numbers = numbers_in(values)
    return np.where(np.isnan(numbers), column.cells - 1, np.searchsorted(column.edges, numbers, side="right"))


def count_symbols(column: WatchedColumn, symbols: Numbers) -> Numbers:
    return np.bincount(symbols, minlength=column.cells)
