"""Tables of new patients, read as the training tables were: from a file, standard input or a database.

A Parquet file is read in pieces, and of its columns only those that are needed, so that memory stays bounded.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.cleanup import Cleanup, clean_values, restrict
from wardround.data.derived_columns import derived_names
from wardround.data.files import UNREADABLE
from wardround.data.preparation import Preparation, TextColumn
from wardround.data.table import Table
from wardround.engine import registry
from wardround.queries.columns import as_codes, list_some, suggest_name
from wardround.runs.model_file import ModelFacts

STANDARD_INPUT = "-"
PIECE = 1 << 17
"""Rows that are predicted at a time."""


@dataclass(frozen=True)
class PatientRows:
    """The rows of a table, piece by piece; `columns` are all that it has."""

    where: str
    rows: int
    columns: tuple[str, ...]
    pieces: Callable[[Sequence[str]], Iterator[pd.DataFrame]]
    """With at least the columns named."""

    @staticmethod
    def of_frame(frame: pd.DataFrame, where: str) -> "PatientRows":
        """Those of a table in memory."""

        def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
            return (frame.iloc[begin : begin + PIECE] for begin in range(0, len(frame), PIECE))

        return PatientRows(where, len(frame), tuple(map(str, frame.columns)), pieces)

    def require(self, columns: Iterable[str], remedy: str) -> None:
        """Refuse a table that lacks columns, all of them named at once."""
        needed = list(dict.fromkeys(columns))
        lacking = [name for name in needed if name not in self.columns]
        if not lacking:
            return
        if len(lacking) == 1:
            what = f"column {lacking[0]!r} is missing; {suggest_name(lacking[0], self.columns)}"
        else:
            there = f"; the table has {list_some(self.columns, 10)}" if self.columns else ""
            what = f"{len(lacking)} of {len(needed)} columns are missing: {list_some(lacking, 10)}{there}"
        raise Refusal(what, where=self.where, remedy=remedy)


def open_patients(
    source: str, facts: ModelFacts, *, query: str | None = None, settings: Mapping[str, Any] | None = None
) -> PatientRows:
    """The rows of a CSV or Parquet file, of standard input (-), or of a query to the database at that address.

    `settings` of the source, such as a separator, go before those by which the training table was read.
    """
    return clean_patients(open_table(source, facts, query=query, settings=settings), facts)


def open_table(
    source: str | pd.DataFrame,
    facts: ModelFacts,
    *,
    query: str | None = None,
    settings: Mapping[str, Any] | None = None,
    where: str = "the data frame",
) -> PatientRows:
    """The same with values as they stand in the table, which may also be one in memory that is called `where`."""
    words = dict(settings or {})
    if isinstance(source, pd.DataFrame):
        found = PatientRows.of_frame(source, where)
    elif query is not None:
        found = PatientRows.of_frame(rows_from("sql", facts, words, url=source, query=query), "the query")
    elif source == STANDARD_INPUT:
        with TemporaryDirectory(prefix="wardround-") as place:
            path = Path(place) / "standard_input.csv"
            path.write_bytes(sys.stdin.buffer.read())
            found = PatientRows.of_frame(rows_from("csv", facts, words, path=str(path)), "standard input")
    else:
        found = open_file(Path(source).expanduser(), facts, words)
    if not found.rows:
        raise Refusal("the table has no rows", where=found.where, remedy="name a table with at least one patient")
    return found


def read_patients(source: str | pd.DataFrame, facts: ModelFacts, *, where: str = "the data frame") -> pd.DataFrame:
    """All rows and columns of a table that has at least those of training, codes written as there."""
    return aligned_rows(clean_patients(open_table(source, facts, where=where), facts), facts)


def refuse_other_sites(frame: pd.DataFrame, facts: ModelFacts, site: str | None, *, where: str) -> None:
    """A model is fitted to, or watched on, the patients of one site: a table that names others is a mistake."""
    if site is None or facts.site_column not in frame.columns:
        return
    named = frame[facts.site_column].dropna().astype(str).str.strip()
    others = sorted(set(named) - {site})
    if others:
        own = int((named == site).sum())
        of_others = f"{len(named) - own:,} of {len(frame):,} rows are patients of {list_some(others, 5)}"
        raise Refusal(
            f"{of_others}, and {own:,} of {site}",
            where=f"{where}, column {facts.site_column}",
            remedy=f"keep the rows of {site} only, or leave --site out",
        )


def column_as_written(found: PatientRows, name: str) -> pd.DataFrame:
    """A column as it stands in the table, in a frame; all columns where there is no such one, to suggest another."""
    wanted = [name] if name in found.columns else list(found.columns)
    return pd.concat([piece[wanted] for piece in found.pieces(wanted)], ignore_index=True)


def aligned_rows(found: PatientRows, facts: ModelFacts) -> pd.DataFrame:
    preparation = Preparation.from_json(json.dumps(facts.preparation))
    found.require(
        (column.name for column in preparation.columns),
        "rename the columns, or add them with empty values, which are then filled",
    )
    return align_categories(pd.concat(found.pieces(found.columns), ignore_index=True), preparation)


def open_file(path: Path, facts: ModelFacts, settings: Mapping[str, Any]) -> PatientRows:
    if path.is_dir():
        raise Refusal("this is a folder, not a table", where=str(path), remedy="name one CSV or Parquet file")
    if not path.exists():
        raise Refusal("there is no such file", where=str(path), remedy="correct the path")
    if path.suffix.lower() in (".parquet", ".pq"):
        return open_parquet(path)
    return PatientRows.of_frame(rows_from("csv", facts, settings, path=str(path)), str(path))


def open_parquet(path: Path) -> PatientRows:
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except UNREADABLE as error:
        raise unreadable(path, error) from None
    names = tuple(str(name) for name in file.schema_arrow.names)

    def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        wanted = [name for name in names if name in set(columns)]
        try:
            for batch in file.iter_batches(batch_size=PIECE, columns=wanted):
                yield batch.to_pandas()
        except UNREADABLE as error:
            raise unreadable(path, error) from None

    return PatientRows(str(path), int(file.metadata.num_rows), names, pieces)


def unreadable(path: Path, error: Exception) -> Refusal:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Refusal(
        f"the file cannot be read ({reason})",
        where=str(path),
        remedy="check that it is complete and of the kind its name says",
    )


def rows_from(source: str, facts: ModelFacts, settings: Mapping[str, Any], **place: Any) -> pd.DataFrame:
    """By the source's own component, with the settings by which the training table was read.

    Which columns are categories is known from the preparation.
    """
    component = registry.find("source", source)
    known = {one.name for one in component.parameters} - {"categories"}
    before = {key: value for key, value in facts.reading.items() if key in known}
    table: Table = component.build(target=facts.task.target, where="--setting", **{**before, **settings, **place})
    (frame,) = table.sites.values()
    return frame


def clean_patients(found: PatientRows, facts: ModelFacts) -> PatientRows:
    """The same rows with values as the study means them; columns that days are counted from are read, too.

    Free text is read where it was in training; a labeling function whose column is not there abstains, as no prediction
    depends on votes but the majority's.
    """
    cleanup = restrict(Cleanup(**facts.reading.get("cleaning", {})), found.columns)
    found.require(cleanup.texts, "add the text, or rename its column")
    beside = [column for column in (*cleanup.references, *cleanup.made_from) if column in found.columns]

    def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        for piece in found.pieces([*columns, *beside]):
            yield clean_values(piece, cleanup, words=cleanup.words)

    return replace(found, columns=(*found.columns, *derived_names(cleanup.texts, cleanup.rules)), pieces=pieces)


def align_categories(frame: pd.DataFrame, preparation: Preparation) -> pd.DataFrame:
    """With codes that are written otherwise than in training as they were written there: 1, 1.0 and "01" are alike.

    Whether a column of codes was read as numbers or as text depends on what else stood in the file.
    """
    changed: dict[str, Any] = {}
    for column in preparation.columns:
        if isinstance(column, TextColumn):
            codes, texts = as_codes(frame[column.name])
            same = {text: code for text in texts if (code := same_number(text, column.categories)) is not None}
            if same:
                renamed = np.array([*(same.get(text, text) for text in texts), None], dtype=object)
                changed[column.name] = pd.Series(renamed[codes], index=frame.index, dtype=object)
    return frame.assign(**changed) if changed else frame


def same_number(text: str, categories: Sequence[str]) -> str | None:
    """The one category that is the same number, where the text itself is none.

    >>> same_number("1", ["01", "02"]), same_number("1", ["1", "01"]), same_number("x", ["01"])
    ('01', None, None)
    """
    if text in categories or (value := number_in(text)) is None:
        return None
    alike = [category for category in categories if number_in(category) == value]
    return alike[0] if len(alike) == 1 else None


def number_in(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
