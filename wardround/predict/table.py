"""Predictions as a table: a line a patient, with what the reader of a single line must know about it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.predict.predictor import Predictor, Rows
from wardround.queries.columns import as_numbers, as_text, kind_of, suggest_name

FAR = 10.0
"""Times the width of the training range by which a value must lie outside to look like another unit."""


def predict_table(
    predictor: Predictor, frame: pd.DataFrame, *, keep: Sequence[str] = (), where: str = ""
) -> pd.DataFrame:
    """What is predicted for every row, what was missing, and what was outside all that training saw.

    `keep` names columns, such as a patient's number, that stand before the predictions.
    """
    for name in keep:
        if name not in frame.columns:
            raise Refusal(
                f"column {name!r} is missing; {suggest_name(name, map(str, frame.columns))}",
                where=where,
                remedy="name a column of the table",
            )
    predicted = predictor.predict(frame, where=where)
    columns: dict[str, Any] = {name: frame[name].to_numpy() for name in keep}
    if not keep:
        columns["row"] = np.arange(1, len(frame) + 1)
    return pd.DataFrame({**columns, **outcome_columns(predictor, predicted), **remarks(predictor.preparation, frame)})


def outcome_columns(predictor: Predictor, predicted: Rows) -> dict[str, Any]:
    """The value, or the probabilities and the class at the operating point."""
    task, positive = predictor.facts.task, predictor.positive
    if predicted.ndim == 1:
        return {task.target: predicted}
    classes = np.array(task.classes, dtype=object)
    if positive is not None:
        flagged = predicted[:, positive] >= predictor.facts.threshold
        chosen = np.where(flagged, positive, 1 - positive)
        return {f"probability of {classes[positive]}": predicted[:, positive], task.target: classes[chosen]}
    chances = {f"probability of {name}": predicted[:, place] for place, name in enumerate(classes)}
    return {**chances, task.target: classes[predicted.argmax(axis=1)]}


def remarks(preparation: Preparation, frame: pd.DataFrame) -> dict[str, Any]:
    """For every row the names of columns that are missing, outside the range of training, or of an unknown category."""
    missing, outside, unknown = (Remarks(len(frame)) for _ in range(3))
    for column in preparation.columns:
        series = frame[column.name]
        missing.add(column.name, np.asarray(series.isna()))
        if isinstance(column, NumberColumn):
            mark_range(column, series, outside)
        else:
            mark_categories(column, series, unknown)
    return {"missing": missing.text(), "outside the training range": outside.text(), "unknown": unknown.text()}


def mark_range(column: NumberColumn, series: "pd.Series[Any]", outside: "Remarks") -> None:
    ends = range_of(column)
    if ends is None or kind_of(series) == "empty":
        return
    low, high = ends
    values = as_numbers(series)
    with np.errstate(invalid="ignore"):
        off = (values < low) | (values > high)
        far = np.maximum(low - values, values - high) > FAR * (high - low)
    if off.any():
        outside.add(f"{column.name} ({low:g} to {high:g})", off & ~far)
        outside.add(f"{column.name} ({low:g} to {high:g}; far outside, check the unit)", off & far)


def range_of(column: NumberColumn) -> tuple[float, float] | None:
    """Where the values of training lay, as far as that was told."""
    if column.seen is not None:
        return column.seen
    if column.low is not None and column.high is not None:
        return column.low, column.high
    return None


def mark_categories(column: TextColumn, series: "pd.Series[Any]", unknown: "Remarks") -> None:
    codes, values = pd.factorize(as_text(series))
    strange = [place for place, value in enumerate(values) if value not in column.categories]
    for place in strange:
        unknown.add(f"{column.name}={values[place]}", codes == place)


class Remarks:
    """Words gathered row by row, of which most rows have none."""

    def __init__(self, rows: int) -> None:
        self.found: list[tuple[str, Rows]] = []
        self.rows = rows

    def add(self, words: str, where: Rows) -> None:
        rows = np.flatnonzero(where)
        if len(rows):
            self.found.append((words, rows))

    def text(self) -> Rows:
        """One text a row, empty for most."""
        result = np.full(self.rows, "", dtype=object)
        for words, rows in self.found:
            result[rows] = [f"{before}, {words}" if before else words for before in result[rows]]
        return result
