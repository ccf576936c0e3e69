"""Makes a table's values what the study means by them: trimmed, recoded, read as numbers, dates as days, rows left out.

Everything is done at the site, row by row (except `duplicates`), from what the study file says under [data.cleaning]: a
simulation and a real site give the same rows. Nothing is refused here because of a value: a column that cannot be read
as it was declared keeps its text, and the schema check names it. A text column that was meant to hold numbers or dates
is given back as a mixture, which no model reads: `wardround.data.schema` refuses it by name.

Last, free text becomes numbers and labeling functions vote, a column for each (see `wardround.data.derived_columns`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import counted, toml_key
from wardround.data.derived_columns import declared_functions, derive_columns, labels_voted_for
from wardround.data.table import Table
from wardround.data.value_forms import MOSTLY, days_between, form_of, read_date, read_dates, read_number
from wardround.queries.columns import as_codes, as_numbers, as_text, kind_of, list_some, suggest_name

DeclaredKind = Literal["number", "decimal_comma", "thousands_comma", "percent", "text"]


@dataclass(frozen=True)
class Cleanup:
    """What a study says about the values of its columns; see [data.cleaning] of the study file."""

    trim: bool = True
    kinds: Mapping[str, DeclaredKind] = field(default_factory=dict)
    recode: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    missing: Mapping[str, Sequence[str | float]] = field(default_factory=dict)
    plausible: Mapping[str, Sequence[float]] = field(default_factory=dict)
    days: Mapping[str, str] = field(default_factory=dict)
    date_formats: Mapping[str, str] = field(default_factory=dict)
    unreadable: Literal["refuse", "missing"] = "refuse"
    drop_rows: Mapping[str, Sequence[str | float]] = field(default_factory=dict)
    duplicates: Literal["keep", "drop"] = "keep"
    texts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rules: Sequence[Mapping[str, Any]] = ()
    withheld: tuple[str, ...] = ()
    """Columns that texts or rules name and that are not read here: their functions abstain."""
    fewest: int = 1
    """A rule that fires on fewer rows, and a listed word that fewer texts have, is found in none."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are named."""
        named = (self.kinds, self.recode, self.missing, self.plausible, self.days, self.date_formats, self.drop_rows)
        made_from = [column for column in self.made_from if column not in self.withheld]
        return tuple(dict.fromkeys([*(column for one in named for column in one), *made_from]))

    @property
    def made_from(self) -> tuple[str, ...]:
        """The columns that texts and rules read."""
        voting = (column for one in declared_functions(self.rules) for column in one.columns)
        return tuple(dict.fromkeys((*self.texts, *voting)))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that are declared to hold numbers, in whatever form; dates become numbers, too."""
        return (*(column for column, kind in self.kinds.items() if kind != "text"), *self.days)

    @property
    def references(self) -> tuple[str, ...]:
        """What rows are left out by, days counted from, functions vote by: needed first, even if dropped then."""
        voting = [column for column in self.made_from if column not in (*self.texts, *self.withheld)]
        return tuple(dict.fromkeys((*self.drop_rows, *self.days.values(), *voting)))

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(column for column, kind in self.kinds.items() if kind == "text")


def restrict(cleanup: Cleanup, columns: Sequence[str]) -> Cleanup:
    """What is said about these columns only; days since a column that is not among them are not counted."""
    kept: dict[str, Any] = {
        name: {column: said for column, said in getattr(cleanup, name).items() if column in columns}
        for name in ("kinds", "recode", "missing", "plausible", "days", "date_formats", "drop_rows")
    }
    kept["days"] = {column: since for column, since in kept["days"].items() if since in columns or read_date(since)}
    kept["withheld"] = tuple(column for column in cleanup.made_from if column not in columns)
    return replace(cleanup, **kept)


def clean_table(table: Table, cleanup: Cleanup, *, drop: Sequence[str] = ()) -> Table:
    """Every site's rows as the study means them, then without `drop`; the table's notes say what was changed."""
    known = list(dict.fromkeys(str(column) for frame in table.sites.values() for column in frame.columns))
    refuse_unknown(cleanup, known, table.origin)
    declared = (*table.categories, *cleanup.words)
    sites: dict[str, pd.DataFrame] = {}
    trimmed: dict[str, int] = {}
    dropped = 0
    for name, frame in table.sites.items():
        trims: dict[str, int] = {}
        rows = clean_frame(frame, cleanup, words=declared, trims=trims)
        dropped += len(frame) - len(rows)
        trimmed.update({column: trimmed.get(column, 0) + count for column, count in trims.items()})
        gone = [column for column in drop if column in rows.columns and column not in table.groups]
        if cleanup.rules and table.target not in rows.columns:
            rows = rows.assign(**{table.target: None})  # a site where nobody has labelled anything
        sites[name] = rows.drop(columns=gone)
    notes = list(table.notes)
    if trimmed:
        values = counted(sum(trimmed.values()), "value")
        notes.append(f"Blanks around words were removed in {list_some(trimmed)} ({values}).")
    if dropped:
        notes.append(f"Left out by drop_rows and duplicates in [data.cleaning]: {counted(dropped, 'row')}.")
    aside = tuple(dict.fromkeys((*table.aside, *(column for column in drop if column in table.groups))))
    read = {name: len(frame) for name, frame in table.sites.items()}
    return declare(replace(table, sites=sites, notes=tuple(notes), aside=aside, read=read), cleanup)


def declare(table: Table, cleanup: Cleanup) -> Table:
    """The table with what the study declares about its columns; its rows are left as they are."""
    codes = cleanup.recode.get(table.target, {})
    return replace(
        table,
        categories=tuple(dict.fromkeys((*table.categories, *cleanup.words))),
        numbers=tuple(column for column in cleanup.numbers if column not in table.aside),
        distinct=tuple(label for label, new in codes.items() if label == new),
        labels=labels_voted_for(cleanup.rules),
    )


def refuse_unknown(cleanup: Cleanup, known: Sequence[str], origin: str) -> None:
    """Names that do not exist, and references that are neither a column nor a day."""
    for column in cleanup.columns:
        if column not in known:
            raise Refusal(
                f"column {column!r} is missing; {suggest_name(column, known)}",
                where=f"[data.cleaning], {origin}",
                remedy="correct the name, or remove it",
            )
    for column, since in cleanup.days.items():
        if since not in known and read_date(since) is None:
            raise Refusal(
                f"the days of {column!r} are counted from {since!r}, which is neither a column nor a day",
                where=f"[data.cleaning], {origin}",
                remedy=f'name a column, or write a day as year-month-day: days = {{{toml_key(column)} = "2020-01-01"}}',
            )


def clean_frame(
    frame: pd.DataFrame,
    cleanup: Cleanup,
    *,
    words: Sequence[str] = (),
    trims: dict[str, int] | None = None,
) -> pd.DataFrame:
    """One site's rows as the study means them; text columns that were meant to hold numbers are mixtures then.

    `words` are columns that hold words whatever these look like. `trims` takes up how many values were trimmed.
    """
    frame = clean_values(frame, cleanup, words=words, trims=trims)
    for column in frame.columns:
        if column not in words and is_words(frame[column]):
            frame[column] = as_meant(frame[column])
    return frame


def clean_values(
    frame: pd.DataFrame,
    cleanup: Cleanup,
    *,
    words: Sequence[str] = (),
    trims: dict[str, int] | None = None,
) -> pd.DataFrame:
    """The same without a guess at what columns hold: for a model that knows it.

    In the order of the settings: trim, recode, missing, leave out rows, kinds, days, plausible, texts, rules.
    """
    frame = frame.copy(deep=False)
    if cleanup.trim:
        trim_words(frame, {} if trims is None else trims)
    for column, codes in cleanup.recode.items():
        if column in frame.columns:
            frame[column] = recode_values(frame[column], codes, keep=column in words)
    for column, values in cleanup.missing.items():
        if column in frame.columns:
            frame[column] = take_out(frame[column], values, keep=column in words)
    frame = leave_out(frame, cleanup)
    for column, kind in cleanup.kinds.items():
        if column in frame.columns:
            frame[column] = declare_kind(frame[column], kind, cleanup.unreadable)
    frame = frame.assign(**count_days(frame, cleanup))
    for column, ends in cleanup.plausible.items():
        if column in frame.columns and kind_of(frame[column]) in ("number", "flag"):
            found = as_numbers(frame[column])
            frame[column] = np.where((found >= ends[0]) & (found <= ends[1]), found, np.nan)
    return derive_columns(frame, cleanup.texts, cleanup.rules, cleanup.fewest)


def trim_words(frame: pd.DataFrame, trims: dict[str, int]) -> None:
    """Remove blanks at the ends of all words, and count by column how many values changed."""
    for column in [column for column in frame.columns if is_words(frame[column])]:
        changed, count = trim_values(frame[column])
        if count:
            frame[column] = changed
            trims[str(column)] = count


def is_words(series: "pd.Series[Any]") -> bool:
    """Whether a column holds text; quick where its type says so."""
    dtype = series.dtype
    if pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype):
        return kind_of(series) == "text"
    return isinstance(dtype, pd.StringDtype)


def change_distinct(series: "pd.Series[Any]", change: Callable[[str], Any]) -> "tuple[pd.Series[Any], int]":
    """A column with `change` applied to its texts, and how many values are others now; other values stay."""
    codes, distinct = values_of(series)
    made = np.empty(len(distinct) + 1, dtype=object)
    made[:-1] = [change(one) if isinstance(one, str) else one for one in distinct]
    made[-1] = None
    other = np.array([a is not b and a != b for a, b in zip(made[:-1], distinct, strict=True)] + [False], bool)
    if not other.any():
        return series, 0
    return pd.Series(made[codes], index=series.index, dtype=object), int(other[codes].sum())


def values_of(series: "pd.Series[Any]") -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The number of each row's value (-1 where missing), and the values as they occur."""
    typed = isinstance(series.dtype, pd.StringDtype)
    codes, distinct = pd.factorize(series if typed else series.to_numpy(dtype=object))
    return codes, np.asarray(distinct, dtype=object)


def trim_values(series: "pd.Series[Any]") -> "tuple[pd.Series[Any], int]":
    """Without blanks at both ends; what is nothing but blanks is missing."""
    return change_distinct(series, lambda text: text.strip() or None)


def recode_values(series: "pd.Series[Any]", codes: Mapping[str, str], *, keep: bool) -> "pd.Series[Any]":
    """Values replaced by others, compared as text; "" is missing. Where all are numbers then, they are read as such."""
    text = pd.Series(as_text(series), index=series.index, dtype=object)
    changed, count = change_distinct(text, lambda one: (codes[one] or None) if one in codes else one)
    return (changed if keep else as_numbers_if_all(changed)) if count else series


def take_out(series: "pd.Series[Any]", values: Sequence[str | float], *, keep: bool) -> "pd.Series[Any]":
    """With these values missing; a number is told by its value, however it is written."""
    gone = has_value(series, values)
    if not gone.any():
        return series
    left = series.mask(gone)
    return as_numbers_if_all(left) if is_words(left) and not keep else left


def has_value(series: "pd.Series[Any]", values: Sequence[str | float]) -> np.ndarray[Any, Any]:
    """Which rows hold one of the values."""
    words = {str(value).strip() for value in values}
    numbers = {number for word in words if (number := read_number(word, "number")) is not None}
    if kind_of(series) in ("number", "flag"):
        return np.isin(as_numbers(series), list(numbers))
    known, distinct = as_codes(series)
    hit = [word in words or read_number(word, "number") in numbers for word in map(str, distinct)]
    return np.array([*hit, False], bool)[known]


def leave_out(frame: pd.DataFrame, cleanup: Cleanup) -> pd.DataFrame:
    """Without the rows that the study leaves out, and without copies of rows."""
    for column, values in cleanup.drop_rows.items():
        if column in frame.columns:
            frame = frame[~has_value(frame[column], values)]
    if cleanup.duplicates == "drop":
        frame = frame[~repeated_rows(frame)]
    return frame.reset_index(drop=True)


def repeated_rows(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Which rows are copies of an earlier one, in all columns."""
    return np.asarray(pd.Series(row_hashes(frame)).duplicated().to_numpy(), bool)


def row_hashes(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """A number a row, the same for the same values, whatever type pandas gave the columns."""
    total = np.zeros(len(frame), np.uint64)
    with np.errstate(over="ignore"):
        for column in frame.columns:
            series = frame[column]
            if kind_of(series) in ("number", "flag", "empty"):
                one = pd.util.hash_array(as_numbers(series) + 0.0)
            else:
                codes, distinct = as_codes(series)
                texts = np.array([*map(str, distinct), ""], dtype=object)
                one = pd.util.hash_array(texts)[codes]
            total = total * np.uint64(0x9E3779B97F4A7C15) + one
    return total


def declare_kind(series: "pd.Series[Any]", kind: DeclaredKind, unreadable: str) -> "pd.Series[Any]":
    """The column as declared; where some value cannot be read, a mixture with that value `Unread`, or it missing."""
    if kind == "text":
        return pd.Series(as_text(series), index=series.index, dtype=object)
    if kind_of(series) in ("number", "flag", "empty", "date"):
        return series
    codes, distinct = as_codes(series)
    numbers = [read_number(str(one), kind) for one in distinct]
    if None in numbers and unreadable == "refuse":
        if not any(one is not None for one in numbers):
            return pd.Series(as_text(series), index=series.index, dtype=object)
        pairs = zip(distinct, numbers, strict=True)
        some = np.array([*(Unread(str(one)) if read is None else read for one, read in pairs), None], object)
        return pd.Series(some[codes], index=series.index, dtype=object)
    made = np.array([*(np.nan if one is None else one for one in numbers), np.nan], np.float64)
    return pd.Series(made[codes], index=series.index)


def count_days(frame: pd.DataFrame, cleanup: Cleanup) -> dict[str, Any]:
    """The columns of dates as days since a day or another column; one that holds something else stays as it is."""
    made: dict[str, Any] = {}
    for column, since in cleanup.days.items():
        if column not in frame.columns:
            continue
        dates = dates_of(frame, column, cleanup)
        start = dates_of(frame, since, cleanup) if since in frame.columns else read_date(since)
        if dates is not None and start is not None:
            made[column] = days_between(dates, start)
    return made


def dates_of(frame: pd.DataFrame, column: str, cleanup: Cleanup) -> "pd.Series[Any] | None":
    series = frame[column]
    kind = kind_of(series)
    if kind == "empty":
        return pd.Series(pd.NaT, index=series.index, dtype="datetime64[ns]")
    if kind == "number":
        return None
    text = pd.Series(as_text(series), index=series.index, dtype=object)
    dates = read_dates(text, cleanup.date_formats.get(column) if kind == "text" else None)
    whole = int(dates.notna().sum()) == int(series.notna().sum())
    return dates if whole or cleanup.unreadable == "missing" else None


def as_numbers_if_all(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """Text that is nothing but plain numbers as numbers."""
    known = series.dropna()
    numbers = [read_number(str(one), "number") for one in known.unique()]
    return pd.to_numeric(series) if numbers and None not in numbers else series


@dataclass(frozen=True)
class Unread:
    """A text in a column that was meant to hold numbers or dates: so the column counts as a mixture, not as words."""

    text: str

    def __str__(self) -> str:
        return self.text


def as_meant(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """A text column that mostly reads as numbers or dates, as a mixture of these and `Unread`; any other as it is."""
    codes, distinct = values_of(series)
    if not len(distinct) or not all(isinstance(one, str) for one in distinct):
        return series
    forms = np.array([form_of(one) for one in distinct])
    if np.all(forms == "number") or not np.any(forms != "other"):
        return series
    times = np.bincount(codes[codes >= 0], minlength=len(distinct))
    if times[forms != "other"].sum() < MOSTLY * times.sum():
        return series
    made = np.empty(len(distinct) + 1, dtype=object)
    made[:-1] = [text if form == "number" else Unread(text) for text, form in zip(distinct, forms, strict=True)]
    days = read_dates(pd.Series(distinct[forms == "date"], dtype=object), None)
    for place, day in zip(np.flatnonzero(forms == "date"), days, strict=True):
        made[place] = made[place] if pd.isna(day) else day.to_pydatetime()
    made[-1] = None
    return pd.Series(made[codes], index=series.index, dtype=object)
