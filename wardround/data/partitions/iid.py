"""IID: rows are dealt out to the sites at random, in equal numbers; the fair comparison for every skewed partition.

Sizes differ by at most one row. More sites than rows is refused, so no site is ever empty.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count
from wardround.core.errors import Refusal
from wardround.data.table import Partition

Rows = np.ndarray[Any, Any]
"""Positions of rows in the pool."""


def iid(*, sites: Count = 4) -> Partition:
    """Rows dealt out at random in equal numbers: all sites see the same kind of patients."""

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        return deal(rng.permutation(len(features)), sites, where="partition iid")

    return Partition(split)


def deal(rows: Rows, sites: int, *, where: str) -> list[Rows]:
    """The rows in their order, cut into one block a site, the sizes equal but for one row."""
    if len(rows) < sites:
        raise Refusal(
            f"{len(rows)} rows cannot be dealt out to {sites} sites, since some would be empty",
            where=where,
            remedy=f"ask for at most {max(1, len(rows))} sites",
        )
    return np.array_split(rows, sites)


def refuse_empty(parts: list[Rows], *, where: str, remedy: str) -> list[Rows]:
    """The same parts, if every site has got a row."""
    empty = [str(i) for i, rows in enumerate(parts) if len(rows) == 0]
    if empty:
        raise Refusal(
            f"{len(empty)} of {len(parts)} sites would get no rows (counted from 0: {', '.join(empty[:10])})",
            where=where,
            remedy=remedy,
        )
    return parts
