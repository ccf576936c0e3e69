"""What became of patients, as far as it is known: a column of the table beside the predictions."""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.schema import against_the_rest
from wardround.data.site_rows import encode_labels, one_against_the_rest
from wardround.predict.predictor import Predictor, Rows
from wardround.queries.columns import as_numbers, as_text, kind_of, list_some, suggest_name


def outcomes_of(frame: pd.DataFrame, predictor: Predictor, column: str | None = None, *, where: str = "") -> Rows:
    """The number of each patient's class, or the value; NaN where it is not known yet."""
    task = predictor.facts.task
    if task.kind == "survival":
        raise Refusal(
            "the model predicts survival, and an outcome without the time of follow-up cannot be compared with it",
            where=where,
            remedy="judge it where it was trained: the study's report has its calibration at every horizon",
        )
    name = column or task.target
    series = column_of(frame, name, where, remedy="name the column of outcomes with --outcome")
    if bool(series.isna().all()):
        raise Refusal(
            f"the outcome {name!r} is missing in all {len(frame):,} rows",
            where=where,
            remedy="wait until outcomes are known, or name another column with --outcome",
        )
    if not task.classes:
        if kind_of(series) not in ("number", "flag"):
            raise Refusal(f"the outcome {name!r} holds {kind_of(series)} but numbers were expected", where=where)
        return as_numbers(series)
    if task.positive is not None and task.classes == against_the_rest(task.positive):
        series = pd.Series(one_against_the_rest(series, task.positive), index=series.index, dtype=object)
    labels = as_text(series)
    found = encode_labels(series, task.classes).astype(np.float64)
    known = np.asarray(series.notna())
    strange = sorted({str(one) for one in labels[known & (found < 0)]})
    if strange:
        raise Refusal(
            f"the outcome {name!r} holds {list_some(map(repr, strange))}; the model knows {list_some(task.classes)}",
            where=where,
            remedy="write outcomes as the training table did, or name another column with --outcome",
        )
    return np.where(known, found, np.nan)


def column_of(frame: pd.DataFrame, name: str, where: str, *, remedy: str) -> "pd.Series[Any]":
    if name not in frame.columns:
        raise Refusal(
            f"column {name!r} is missing; {suggest_name(name, map(str, frame.columns))}", where=where, remedy=remedy
        )
    series: pd.Series[Any] = frame[name]
    return series


def is_known(outcomes: Rows) -> Rows:
    return ~np.isnan(outcomes)


def event_of(predictor: Predictor, outcomes: Rows) -> Rows:
    """Of two classes, 1 for patients with the class that is looked for and 0 for others; NaN stays."""
    return np.where(np.isnan(outcomes), np.nan, outcomes == predictor.positive)
