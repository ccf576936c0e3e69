"""Patients' rows from Parquet files, one for all sites or a folder with one per site. Columns keep their types."""

from pathlib import Path

import pandas as pd

from wardround.data.assembly import MissingSite, assemble_table
from wardround.data.files import read_path
from wardround.data.table import Kind, Table
from wardround.weak_supervision.embedding_file import with_embeddings

SUFFIXES = (".parquet",)


def parquet(
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
) -> Table:
    """Parquet file with a column that names the site, or a folder with one file per site."""
    return assemble_table(
        with_embeddings(read_path(path, SUFFIXES, pd.read_parquet), embeddings, record, str(path)),
        origin=str(path),
        target=target,
        site=site,
        drop=drop,
        task=task,
        positive=positive,
        groups=groups,
        categories=categories,
        missing_site=missing_site,
    )
