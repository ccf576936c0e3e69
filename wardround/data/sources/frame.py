"""Patients' rows from pandas data frames in Python: one frame with a column for the site, or one frame per site."""

from collections.abc import Mapping

import pandas as pd

from wardround.data.assembly import MissingSite, assemble_table
from wardround.data.table import Kind, Table


def frame(
    frame: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    target: str,
    site: str = "",
    drop: tuple[str, ...] = (),
    task: Kind | None = None,
    positive: str | None = None,
    groups: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    missing_site: MissingSite = "refuse",
    origin: str = "data frame",
) -> Table:
    """Data frame with a column that names the site, or a dictionary from site to data frame (from Python only)."""
    return assemble_table(
        frame,
        origin=origin,
        target=target,
        site=site,
        drop=drop,
        task=task,
        positive=positive,
        groups=groups,
        categories=categories,
        missing_site=missing_site,
    )
