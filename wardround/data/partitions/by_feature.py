"""Feature imbalance: a column that is not the target, such as race, is spread unevenly over the sites, by a degree.

All sites stay equally large (but for one row), so that only the column is skewed. Rows are ordered by the column and
cut into one block a site, which is degree 1: as segregated as equal sizes allow. At a lower degree the share 1 - degree
of the rows, chosen at random, swap places at random among themselves; degree 0 is IID. The share of a value at a site
is therefore, on average, degree · (share when segregated) + (1 - degree) · (share in the pool). More sites than rows is
refused, so no site is ever empty. Missing values count as one more value, the last.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, Share
from wardround.core.errors import Refusal
from wardround.data.partitions.by_column import find_column
from wardround.data.partitions.iid import Rows, deal
from wardround.data.table import Partition


def by_feature(*, column: str = "", sites: Count = 4, degree: Share = 0.5) -> Partition:
    """Feature imbalance: a column other than the target differs between sites (degree 0: IID, 1: segregated)."""
    where = f"partition by_feature, column {column!r}"

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        if column and column == target.name:
            raise Refusal("the column is the target", where=where, remedy="use the partition by_class for the target")
        values = find_column(features, target, column, where=where)
        return segregate(values, sites, degree, rng, where=where)

    return Partition(split)


def segregate(
    values: "pd.Series[Any]", sites: int, degree: float, rng: np.random.Generator, *, where: str
) -> list[Rows]:
    """Blocks of equal size, ordered by the values for the share `degree` of the rows and at random for the rest."""
    if values.dtype == object:
        values = values.map(str, na_action="ignore")
    codes, distinct = pd.factorize(values, sort=True)
    codes = np.where(codes < 0, len(distinct), codes)
    row_at = np.lexsort((rng.random(len(codes)), codes))
    loose = rng.permutation(len(codes))[: round((1 - degree) * len(codes))]
    row_at[loose] = row_at[rng.permutation(loose)]
    return [np.sort(rows) for rows in deal(row_at, sites, where=where)]
