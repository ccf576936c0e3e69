"""Class imbalance: the outcome is spread unevenly over the sites, by a degree.

All sites stay equally large (but for one row), so that only the outcome is skewed. Degree 1 is as segregated as equal
sizes allow, degree 0 is IID; the share of a class at a site is, on average, degree · (share when segregated) +
(1 - degree) · (share in the pool). A target to be measured (regression) is segregated by its size. More sites than rows
is refused, so no site is ever empty.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, Share
from wardround.data.partitions.by_feature import segregate
from wardround.data.partitions.iid import Rows
from wardround.data.table import Partition


def by_class(*, sites: Count = 4, degree: Share = 0.5) -> Partition:
    """Class imbalance: the outcome's frequency differs between sites (degree 0: IID, 1: segregated)."""

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        return segregate(target, sites, degree, rng, where="partition by_class")

    return Partition(split)
