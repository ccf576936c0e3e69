"""Missing entries: every site has gaps of its own, more from site to site.

Rows are dealt out IID. Site i of n (counted from 0) then loses about the share degree · (i + 1) / n of its entries:
"entries"   each column j at the site with its own rate, min(1, 2 · u_j · share), u_j uniform: the site's own pattern;
"by_value"  the same, but the rate grows with the row's rank in the column, from 0 for the lowest to twice for the
            highest, so that gaps tell something about the value (texts: as "entries");
"columns"   whole columns: a random choice of that share of the columns, rounded down, is never recorded at the site.
Degree 0 loses nothing, and then it is IID. A higher degree under the same seed loses the same entries and more. The
target is never lost. More sites than rows is refused, so no site is ever empty of rows.
"""

from typing import Any, Literal

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, Share
from wardround.data.partitions.iid import iid
from wardround.data.table import Partition


def missing_entries(
    *, sites: Count = 4, degree: Share = 0.3, pattern: Literal["entries", "by_value", "columns"] = "entries"
) -> Partition:
    """Missing entries: every site loses values in a pattern and at a rate of its own (degree 0: none)."""

    def alter(
        site: int, count: int, features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator
    ) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        share = degree * (site + 1) / count
        rows, width = features.shape
        if pattern == "columns":
            gone = np.zeros((rows, width), bool)
            gone[:, rng.permutation(width)[: int(share * width + 1e-9)]] = True
        else:
            rate = 2 * rng.random(width) * share
            chance = np.broadcast_to(rate, (rows, width))
            if pattern == "by_value":
                chance = chance * np.column_stack([_twice_rank(features.iloc[:, j]) for j in range(width)])
            gone = rng.random((rows, width)) < chance
        if not gone.any():
            return features, target
        lost = {name: features[name].mask(gone[:, j]) for j, name in enumerate(features.columns) if gone[:, j].any()}
        return features.assign(**lost), target

    return Partition(iid(sites=sites).split, alter)


def _twice_rank(values: "pd.Series[Any]") -> np.ndarray[Any, Any]:
    """From 0 for the lowest number to 2 for the highest; 1 for text and where there is nothing to rank."""
    if not pd.api.types.is_numeric_dtype(values) or values.nunique() < 2:
        return np.ones(len(values))
    ranks = values.rank(method="average").to_numpy(float)
    return np.nan_to_num(2 * (ranks - 1) / (values.count() - 1), nan=1.0)
