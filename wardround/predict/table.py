"""Predictions as a table: a line a patient, with what the reader of a single line must know about it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.data.survival.intervals import number_text
from wardround.predict.patients import PatientRows, align_categories
from wardround.predict.predictor import Predictor, Rows
from wardround.queries.columns import as_codes, as_numbers, kind_of
from wardround.runs.sites import PredictionTask, horizons_of

FAR = 10.0
"""Times the width of the training range by which a value must lie outside to look like another unit."""
MISSING, OUTSIDE, UNKNOWN = "missing", "outside the training range", "unknown"
"""Columns of remarks."""
KEYS = 62
"""Remarks that one whole number can hold."""


def predict_table(
    predictor: Predictor,
    patients: PatientRows,
    *,
    keep: Sequence[str] = (),
    on_rows: Callable[[int], None] = lambda rows: None,
) -> pd.DataFrame:
    """What is predicted for every row, what was missing, and what was outside all that training saw.

    `keep` names columns, such as a patient's number, that stand before the predictions. `on_rows` is told how many
    rows are done.
    """
    preparation = predictor.preparation
    needed = [column.name for column in preparation.columns]
    patients.require(keep, "name a column of the table with --keep")
    patients.require(needed, "rename the columns, or add them with empty values, which are then filled")
    done, tables = 0, []
    for frame in patients.pieces([*needed, *keep]):
        tables.append(predict_frame(predictor, frame, keep=keep, first=done + 1, where=patients.where))
        done += len(frame)
        on_rows(done)
    return pd.concat(tables, ignore_index=True)


def predict_frame(
    predictor: Predictor, given: pd.DataFrame, *, keep: Sequence[str] = (), first: int = 1, where: str = ""
) -> pd.DataFrame:
    """The same for some rows, of which the first has this number."""
    frame = align_categories(given, predictor.preparation)
    predicted = predictor.predict(frame, where=where)
    found = {**outcome_columns(predictor, predicted), **remarks(predictor.preparation, frame)}
    # The known outcome, say, kept beside what is predicted.
    columns = {f"{name} (given)" if name in found else name: given[name].to_numpy() for name in keep}
    if not keep:
        columns["row"] = np.arange(first, first + len(frame))
    return pd.DataFrame({**columns, **found})


def outcome_columns(predictor: Predictor, predicted: Rows) -> dict[str, Any]:
    """The value, or the probabilities and the class at the operating point."""
    task, positive = predictor.facts.task, predictor.positive
    if predicted.ndim == 1:
        return {task.target: predicted}
    if task.kind == "survival":
        return horizon_columns(task, predicted)
    classes = np.array(task.classes, dtype=object)
    if positive is not None:
        flagged = predicted[:, positive] >= predictor.threshold
        chosen = np.where(flagged, positive, 1 - positive)
        return {f"probability of {classes[positive]}": predicted[:, positive], task.target: classes[chosen]}
    chances = {f"probability of {name}": predicted[:, place] for place, name in enumerate(classes)}
    return {**chances, task.target: classes[predicted.argmax(axis=1)]}


def horizon_columns(task: PredictionTask, predicted: Rows) -> dict[str, Any]:
    """The risk of the event by each horizon, a column each: the chances of the intervals up to it, added up."""
    risks = np.minimum(np.cumsum(np.asarray(predicted, np.float64)[:, :-1], axis=1), 1.0)
    return {
        f"risk of {task.target} by {number_text(one)}": risks[:, place] for place, one in enumerate(horizons_of(task))
    }


def remarks(preparation: Preparation, frame: pd.DataFrame) -> dict[str, Any]:
    """For every row the names of columns that are missing, outside the range of training, or of an unknown category."""
    missing, outside, unknown = Remarks(len(frame)), Remarks(len(frame)), np.full(len(frame), "", dtype=object)
    for column in preparation.columns:
        series = frame[column.name]
        missing.add(column.name, np.asarray(series.isna()))
        if isinstance(column, NumberColumn):
            mark_range(column, series, outside)
        else:
            mark_categories(column, series, unknown)
    return {MISSING: missing.text(), OUTSIDE: outside.text(), UNKNOWN: unknown}


def mark_range(column: NumberColumn, series: "pd.Series[Any]", outside: "Remarks") -> None:
    ends = range_of(column)
    if ends is None or kind_of(series) == "empty":
        return
    low, high = ends
    values = as_numbers(series)
    off = (values < low) | (values > high)
    if off.any():
        far = np.maximum(low - values, values - high) > FAR * (high - low)
        outside.add(f"{column.name} ({low:g} to {high:g})", off & ~far)
        outside.add(f"{column.name} ({low:g} to {high:g}; far outside, check the unit)", off & far)


def range_of(column: NumberColumn) -> tuple[float, float] | None:
    """Where the values of training lay, as far as that was told."""
    if column.seen is not None:
        return column.seen
    if column.low is not None and column.high is not None:
        return column.low, column.high
    return None


def mark_categories(column: TextColumn, series: "pd.Series[Any]", unknown: Rows) -> None:
    codes, texts = as_codes(series)
    strange = np.array([*(text not in column.categories for text in texts), False])
    rows = np.flatnonzero(strange[codes])
    unknown[rows] = [
        f"{before}, {column.name}={text}" if before else f"{column.name}={text}"
        for before, text in zip(unknown[rows], texts[codes[rows]], strict=True)
    ]


class Remarks:
    """Words gathered row by row, of which most rows have none and many have the same."""

    def __init__(self, rows: int) -> None:
        self.found: list[tuple[str, Rows]] = []
        self.rows = rows

    def add(self, words: str, where: Rows) -> None:
        if where.any():
            self.found.append((words, where))

    def text(self) -> Rows:
        """One text a row, empty for most."""
        result = np.full(self.rows, "", dtype=object)
        for begin in range(0, len(self.found), KEYS):
            some = self.found[begin : begin + KEYS]
            keys = np.zeros(self.rows, np.int64)
            for place, (_, where) in enumerate(some):
                keys |= where.astype(np.int64) << place
            codes, distinct = pd.factorize(keys)
            texts = np.array([words_of(int(key), some) for key in distinct], dtype=object)[codes]
            result = (
                texts
                if not begin
                else np.array([", ".join(filter(None, pair)) for pair in zip(result, texts, strict=True)], dtype=object)
            )
        return result


def words_of(key: int, found: Sequence[tuple[str, Rows]]) -> str:
    """The words whose bits are in the key."""
    return ", ".join(words for place, (words, _) in enumerate(found) if key >> place & 1)
