"""Shift of p(y|x): at every second site a column means the opposite, as if the same sign spoke for another illness.

Rows are dealt out IID. At the sites 1, 3, 5, ... (counted from 0) the rows are ordered by the column, the lowest is
paired with the highest, the second lowest with the second highest and so on, and each pair swaps its outcomes with
probability `degree`. At degree 1 the column's effect has its sign turned round; the features and the frequency of every
outcome at the site stay exactly as they were, so that nothing but p(y|x) differs. The other columns lose what they said
about the swapped rows. Degree 0 leaves all as it is, and then it is IID; the sites 0, 2, 4, ... are always left alone,
so even and odd sites are two groups of like sites. Takes classes and measurements as targets. Rows without a value in
the column are left alone. More sites than rows is refused, so no site is ever empty.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, Share
from wardround.data.partitions.by_column import find_column
from wardround.data.partitions.iid import Rows, iid
from wardround.data.table import Partition


def shift_labels(*, column: str = "", sites: Count = 4, degree: Share = 0.5) -> Partition:
    """Shift of p(y|x): at every second site a column's effect is turned round (degree 0: IID, 1: wholly)."""
    where = f"partition shift_labels, column {column!r}"
    dealt = iid(sites=sites)

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        find_column(features, target, column, where=where)
        return dealt.split(features, target, rng)

    def alter(
        site: int, count: int, features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator
    ) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        values = find_column(features, target, column, where=where)
        if values.dtype == object:
            values = values.map(str, na_action="ignore")
        codes, _ = pd.factorize(values, sort=True)
        known = np.flatnonzero(codes >= 0)
        order = known[np.lexsort((rng.random(len(known)), codes[known]))]
        pairs = len(order) // 2
        swapped = rng.random(pairs) < degree
        if site % 2 == 0:
            return features, target
        low, high = order[:pairs][swapped], order[::-1][:pairs][swapped]
        source = np.arange(len(target))
        source[low], source[high] = high, low
        return features, target.iloc[source].set_axis(target.index)

    return Partition(split, alter)
