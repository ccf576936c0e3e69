"""Tables of new patients, read as the training tables were: from a file, standard input or a database."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.engine import registry
from wardround.runs.model_file import ModelFacts

STANDARD_INPUT = "-"


def read_patients(source: str, facts: ModelFacts, *, query: str | None = None) -> pd.DataFrame:
    """The rows of a CSV or Parquet file, of standard input (-), or of a query to the database at that address."""
    if query is not None:
        frame = rows_from("sql", facts, url=source, query=query)
    elif source == STANDARD_INPUT:
        with TemporaryDirectory(prefix="wardround-") as place:
            path = Path(place) / "standard_input.csv"
            path.write_bytes(sys.stdin.buffer.read())
            frame = rows_from("csv", facts, path=str(path))
    else:
        path = Path(source).expanduser()
        if path.is_dir():
            raise Refusal("this is a folder, not a table", where=source, remedy="name one CSV or Parquet file")
        frame = rows_from("parquet" if path.suffix.lower() in (".parquet", ".pq") else "csv", facts, path=source)
    if not len(frame):
        raise Refusal("the table has no rows", where=source, remedy="name a table with at least one patient")
    return frame


def rows_from(source: str, facts: ModelFacts, **place: Any) -> pd.DataFrame:
    """By the source's own component, with the settings by which the training table was read."""
    component = registry.find("source", source)
    known = {one.name for one in component.parameters}
    settings = {key: value for key, value in facts.reading.items() if key in known}
    table: Table = component.build(target=facts.task.target, **place, **settings)
    (frame,) = table.sites.values()
    return frame
