"""How text may stand for a number or a date, and the number that it stands for.

A file has no types: one "<0.5", a decimal comma or a date turns a whole column into text. Here the forms are told
apart, so that such a column is noticed, named, and read as it was meant.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pandas as pd

NumberForm = Literal["number", "decimal_comma", "thousands_comma", "percent"]
Form = Literal["number", "comma", "thousands", "percent", "bound", "date", "other"]

PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
DATE = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{4})([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
)
BOUND = re.compile(r"[<>]=?|[≤≥~]")
STARTS = frozenset("0123456789+-.<>≤≥~")
MOSTLY = 0.5
"""The share of values that read as numbers (or dates) from which on a text column was meant to hold them."""
DAY = pd.Timedelta(days=1)


def form_of(text: str) -> Form:  # noqa: PLR0911 - one line a form
    """
    >>> [form_of(one) for one in ("1.5", "1,5", "1,234", "95%", "<0.5", "2024-02-29", "unknown")]
    ['number', 'comma', 'thousands', 'percent', 'bound', 'date', 'other']
    """
    text = text.strip()
    if not text or text[0] not in STARTS:  # the common and quick case
        return "other"
    if PLAIN.fullmatch(text):
        return "number"
    if THOUSANDS.fullmatch(text):
        return "thousands"
    if DECIMAL_COMMA.fullmatch(text):
        return "comma"
    if text.endswith("%") and form_of(text[:-1]) in ("number", "comma"):
        return "percent"
    if DATE.fullmatch(text):
        return "date"
    sign = BOUND.match(text)
    if sign and form_of(text[sign.end() :]) in ("number", "comma"):
        return "bound"
    return "other"


def likely_form(texts: Iterable[str]) -> NumberForm:
    """In which form most of them are numbers, so that a remedy names the one that reads them.

    >>> likely_form(["95%", "80%", "unknown"]), likely_form(["1,5", "2,25"]), likely_form(["<0.5", "3"])
    ('percent', 'decimal_comma', 'number')
    """
    names: dict[Form, NumberForm] = {"percent": "percent", "comma": "decimal_comma", "thousands": "thousands_comma"}
    counts = Counter(form_of(text) for text in texts)
    most = max(names, key=lambda form: counts[form])
    return names[most] if counts[most] > counts["number"] else "number"


def read_number(text: str, form: NumberForm) -> float | None:
    """The number that a text stands for in this form, or none. A plain number is read in every form.

    >>> read_number("1.234,5", "decimal_comma"), read_number("1,234.5", "thousands_comma")
    (1234.5, 1234.5)
    >>> read_number("95 %", "percent")
    95.0
    """
    text = text.strip()
    if form == "percent":
        text = text.removesuffix("%").strip()
        text = text.replace(",", ".") if DECIMAL_COMMA.fullmatch(text) else text
    elif form == "decimal_comma" and DECIMAL_COMMA.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    elif form == "thousands_comma" and THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    return float(text) if PLAIN.fullmatch(text) else None


def read_dates(texts: "pd.Series[Any]", pattern: str | None) -> "pd.Series[Any]":
    """Days with their time of day, NaT where a text is none; without a pattern only year-month-day is read."""
    read = pd.to_datetime(texts, format=pattern or "ISO8601", errors="coerce", utc=True)
    return read.dt.tz_localize(None)


def read_date(text: str) -> pd.Timestamp | None:
    """One day, written year-month-day."""
    found = read_dates(pd.Series([text], dtype=object), None).iloc[0]
    return None if pd.isna(found) else found


def days_between(dates: "pd.Series[Any]", since: Any) -> np.ndarray[Any, Any]:
    """Days (with fractions) from `since`, a day or one for every row."""
    return np.asarray((dates - since) / DAY, np.float64)
