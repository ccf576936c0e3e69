"""When patients came: dates read without guessing, and the windows of time that they fall into."""

import re
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.predict.outcomes import column_of
from wardround.queries.columns import as_text, list_some

Labels = np.ndarray[Any, Any]
CALENDAR = {"day": "D", "week": "W-SUN", "month": "M"}
ISO = re.compile(r"\d{4}(-\d{2}(-\d{2}([T ].*)?)?)?")


def dates_of(frame: pd.DataFrame, column: str, form: str | None, *, where: str) -> "pd.Series[Any]":
    """A date for every row; written as 2026-04-30 unless `form` says how."""
    series = column_of(frame, column, where, remedy="name the column of dates with --by")
    if bool(series.isna().any()):
        raise Refusal(
            f"{int(series.isna().sum()):,} of {len(series):,} rows have no date in {column!r}",
            where=where,
            remedy="leave these rows out, or name another column with --by",
        )
    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        found = series
    else:
        text = pd.Series(as_text(series), index=series.index, dtype=object)
        plain = text if form else text.where(text.str.fullmatch(ISO))
        found = pd.to_datetime(plain, format=form or "ISO8601", errors="coerce", utc=True)
        if bool(found.isna().any()):
            strange = list(dict.fromkeys(text[found.isna()]))
            raise Refusal(
                f"{list_some(map(repr, strange), 3)} in {column!r} cannot be read as dates",
                where=where,
                remedy="write dates as 2026-04-30, or say how they are written, such as --date-format %d.%m.%Y",
            )
    return found.dt.tz_localize(None) if found.dt.tz is not None else found


def parse_every(text: str) -> str | int:
    """A part of the calendar, or a number of patients."""
    if text in CALENDAR:
        return text
    if text.isdigit() and int(text) >= 10:
        return int(text)
    raise Refusal(
        f"{text!r} is no window of time",
        where="--every",
        remedy="say day, week, month, or a number of patients from 10 on",
    )


def label_windows(dates: "pd.Series[Any]", every: str | int) -> Labels:
    """The window of each row, in the order of their dates."""
    if isinstance(every, int):
        return name_windows(np.arange(len(dates)), every)
    periods = dates.dt.to_period(CALENDAR[every])
    if every == "month":
        return np.asarray(periods.dt.strftime("%Y-%m"), dtype=object)
    return np.asarray(periods.dt.start_time.dt.strftime("%Y-%m-%d"), dtype=object)


def name_windows(place: Labels, every: int) -> Labels:
    """Windows of so many patients, from each patient's place among all that were counted."""
    names = {one: f"{one * every + 1:,} to {(one + 1) * every:,}" for one in np.unique(place // every).tolist()}
    return np.array([names[one] for one in (place // every).tolist()], dtype=object)
