"""Patients' rows from comma-separated files, one for all sites or a folder with one per site.

Needs a header line. Empty fields and the usual words (NA, NaN, null) are missing; name others in `missing_words`.
"""

import gzip
import warnings
from csv import reader
from pathlib import Path

import pandas as pd

from wardround.core.errors import Refusal
from wardround.data.assembly import MissingSite, as_names, assemble_table
from wardround.data.files import read_path
from wardround.data.table import Kind, Table
from wardround.weak_supervision.embedding_file import with_embeddings

SUFFIXES = (".csv", ".csv.gz")


def csv(
    *,
    path: str | Path,
    target: str,
    site: str = "",
    drop: tuple[str, ...] = (),
    task: Kind | None = None,
    positive: str | None = None,
    groups: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    missing_site: MissingSite = "refuse",
    embeddings: str | Path = "",
    record: str = "",
    missing_words: tuple[str, ...] = (),
    separator: str = ",",
    decimal: str = ".",
    encoding: str = "utf-8",
) -> Table:
    """Comma-separated file (also .gz) with a column that names the site, or a folder with one file per site."""

    def read(file: Path) -> pd.DataFrame:
        if is_wide(file) and "16" not in encoding:
            raise encoding_refusal(file, encoding)
        try:
            return parse(file)
        except UnicodeError:
            raise encoding_refusal(file, encoding) from None

    def parse(file: Path) -> pd.DataFrame:
        names = header(file, separator, encoding)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise Refusal(f"column {twice[0]!r} appears twice", where=str(file), remedy="rename or remove one of them")
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            raise Refusal(
                f"the whole header {names[0]!r} is one column",
                where=str(file),
                remedy='say what separates the columns, such as separator = ";"',
            )
        with warnings.catch_warnings():
            # Without index_col=False surplus first fields become row names, and every column means its neighbour.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            try:
                return pd.read_csv(
                    file,
                    sep=separator,
                    decimal=decimal,
                    encoding=encoding,
                    na_values=list(as_names(missing_words)),
                    # The names of sites and records are text: 0301 must not become 301.
                    dtype={name: str for name in (site, record) if name} or None,
                    index_col=False,
                    low_memory=False,
                )
            except pd.errors.ParserWarning as warning:
                raise Refusal(
                    "the rows have more fields than the header", where=str(file), remedy="name every column"
                ) from warning

    return assemble_table(
        with_embeddings(read_path(path, SUFFIXES, read), embeddings, record, str(path)),
        origin=str(path),
        target=target,
        site=site,
        drop=drop,
        task=task,
        positive=positive,
        groups=groups,
        categories=categories,
        missing_site=missing_site,
        untangle=True,
    )


def header(file: Path, separator: str, encoding: str) -> list[str]:
    """The names of the columns, read apart because the parser would quietly rename one that appears twice."""
    if len(separator) != 1:
        raise Refusal(f"the separator {separator!r} is not one character", remedy='use one, such as ";" or a tab')
    with gzip.open(file, "rt", encoding=encoding) if file.suffix == ".gz" else file.open(encoding=encoding) as lines:
        names = next(reader(lines, delimiter=separator), [])
    return [name.lstrip("\ufeff") for name in names]


def first_bytes(file: Path, count: int = 1 << 16) -> bytes:
    with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as content:
        return bytes(content.read(count))


def is_wide(file: Path) -> bool:
    """Whether the file is text of two bytes a letter (UTF-16), as spreadsheets save "Unicode text"."""
    begins = first_bytes(file, 1000)
    return begins[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in begins


def encoding_refusal(file: Path, encoding: str) -> Refusal:
    """What the file seems to be written in; no byte of it is repeated."""
    begins = first_bytes(file)
    if begins[:2] == b"PK":
        return Refusal("the file is a workbook, not text", where=str(file), remedy="save it as CSV in UTF-8")
    if is_wide(file):
        little = begins[1:2] == b"\0"
        guess, words = "utf-16" if begins[:1] in b"\xff\xfe" else f"utf-16-{'le' if little else 'be'}", "UTF-16"
    else:
        windows = any(0x80 <= byte <= 0x9F for byte in begins)
        guess, words = ("cp1252", "Windows Western European") if windows else ("latin-1", "Western European, latin-1")
    return Refusal(
        f"the file is not written in {encoding}; it looks like {words}",
        where=str(file),
        remedy=f'add encoding = "{guess}" to [data] (at a site: --setting encoding={guess}), or save it as UTF-8',
    )
