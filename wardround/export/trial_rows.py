"""Made-up rows on which an export is compared with the model itself before it is handed out."""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.predict.predictor import Rows
from wardround.predict.table import range_of

ROWS = 500
GAPS = 0.1
"""Share of values that are missing, and of categories nobody has seen."""
UNSEEN = "\u2020 never seen"
APART = 1e-5
"""By how much an export may differ from the model, in probability or as a share of the value."""


def trial_table(preparation: Preparation, rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Values within and somewhat beyond the training range, every category, gaps and unseen categories."""
    random = np.random.default_rng(seed)
    return pd.DataFrame({column.name: trial_column(column, rows, random) for column in preparation.columns})


def trial_column(column: NumberColumn | TextColumn, rows: int, random: np.random.Generator) -> Rows:
    gaps = random.random(rows) < GAPS
    if isinstance(column, TextColumn):
        known = np.array([*column.categories, UNSEEN], dtype=object)
        drawn = known[random.integers(len(known), size=rows)]
        drawn[gaps] = None
        return drawn
    low, high = range_of(column) or (column.center - 3 * column.scale, column.center + 3 * column.scale)
    beyond = 0.2 * (high - low)
    values = random.uniform(low - beyond, high + beyond, rows)
    return np.where(gaps, np.nan, np.where(random.random(rows) < 0.5, np.round(values), values))


def refuse_difference(found: Rows, expected: Rows, kind: str) -> None:
    """An export that does not give the model's numbers is not handed out."""
    largest = largest_difference(found, expected)
    if not largest <= APART:
        raise Refusal(
            f"the {kind} gives other predictions than the model, up to {largest:.2g} apart, so it was not written",
            remedy="use the model with `wardround predict`, and report this",
        )


def largest_difference(found: Rows, expected: Rows) -> float:
    """Of probabilities as they are; of other values as a share of their size."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    size: Any = np.maximum(1.0, np.abs(expected))
    return float(np.max(np.abs(found - expected) / size, initial=0.0)) if np.isfinite(found).all() else np.inf
