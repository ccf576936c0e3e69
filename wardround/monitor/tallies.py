"""Sums and counts of one window that further patients are added to."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.special import logit

from wardround.data.preparation import NumberColumn, Preparation
from wardround.monitor.bets import SURE, Numbers
from wardround.monitor.cells import count_symbols
from wardround.monitor.state import ColumnTally, OutcomeTally, WatchedColumn
from wardround.predict.table import range_of
from wardround.queries.columns import as_numbers

STEPS = np.linspace(-7, 7, 101)
"""Of the log-odds: 0.14 apart, an eighth of the odds."""


def add_columns(
    before: Mapping[str, ColumnTally],
    columns: Sequence[WatchedColumn],
    symbols: Mapping[str, Numbers],
    frame: pd.DataFrame,
    preparation: Preparation,
) -> dict[str, ColumnTally]:
    """Every column with the patients of the frame added."""
    trained = {column.name: column for column in preparation.columns}
    found = {}
    for column in columns:
        own = before.get(column.name, ColumnTally(counts=(0,) * column.cells))
        counts = count_symbols(column, symbols[column.name])
        outside, total, squares = 0, 0.0, 0.0
        learned = trained.get(column.name) if column.kind in ("number", "text") else None
        if isinstance(learned, NumberColumn):
            outside, total, squares = against_training(learned, as_numbers(frame[column.name]))
        elif learned is not None:
            outside = int(counts[-2])
        found[column.name] = ColumnTally(
            counts=tuple((np.array(own.counts) + counts).tolist()),
            outside=own.outside + outside,
            total=own.total + total,
            squares=own.squares + squares,
        )
    return found


def against_training(column: NumberColumn, values: Numbers) -> tuple[int, float, float]:
    """How many are outside the range of training, and the sums of (value - centre) / scale and its square."""
    known = values[np.isfinite(values)]
    ends = range_of(column)
    outside = 0 if ends is None else int(((known < ends[0]) | (known > ends[1])).sum())
    if not column.scale:
        return outside, 0.0, 0.0
    z = (known - column.center) / column.scale
    return outside, float(z.sum()), float(np.square(z).sum())


def add_risks(before: OutcomeTally, risk: Numbers, ill: Numbers, threshold: float | None) -> OutcomeTally:
    """Predicted risks and what happened (0 or 1)."""
    errors = np.square(ill - risk)
    step = np.searchsorted(STEPS, logit(np.clip(risk, SURE, 1 - SURE)))
    with_outcome = ill == 1
    ill_counts, well_counts = (
        np.bincount(step[who], minlength=len(STEPS) + 1) for who in (with_outcome, ~with_outcome)
    )
    flags = before.flags
    if threshold is not None:
        flagged = risk >= threshold
        found = (flagged & with_outcome, flagged & ~with_outcome, ~flagged & with_outcome, ~flagged & ~with_outcome)
        right, wrong, missed, left = (old + int(new.sum()) for old, new in zip(flags, found, strict=True))
        flags = (right, wrong, missed, left)
    return with_sums(before, risk, ill, errors).model_copy(
        update={
            "ill": tuple((np.array(before.ill or 0) + ill_counts).tolist()),
            "well": tuple((np.array(before.well or 0) + well_counts).tolist()),
            "flags": flags,
        }
    )


def add_values(before: OutcomeTally, predicted: Numbers, actual: Numbers) -> OutcomeTally:
    """Predicted and observed quantities."""
    errors = np.square(actual - predicted)
    return with_sums(before, predicted, actual, errors)


def with_sums(before: OutcomeTally, predicted: Numbers, actual: Numbers, errors: Numbers) -> OutcomeTally:
    return before.model_copy(
        update={
            "patients": before.patients + len(actual),
            "events": before.events + float(actual.sum()),
            "predicted": before.predicted + float(predicted.sum()),
            "errors": before.errors + float(errors.sum()),
            "errors_squared": before.errors_squared + float(np.square(errors).sum()),
        }
    )
