"""Node imbalance: the sites have unequal numbers of patients of the same kind, by a degree.

"lognormal" sizes are proportional to exp(2 · degree · Normal(0, 1)), "power" sizes to rank^(-2 · degree), the first
site being the largest. Degree 0 gives equal sizes, and then it is IID. Every site first gets `least` rows, so none is
empty; fewer rows than that is refused. Which patient goes where is left to chance.
"""

from typing import Any, Literal

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, Share
from wardround.core.errors import Refusal
from wardround.data.partitions.iid import Rows
from wardround.data.table import Partition


def by_quantity(
    *, sites: Count = 4, degree: Share = 0.5, law: Literal["lognormal", "power"] = "lognormal", least: Count = 1
) -> Partition:
    """Node imbalance: sites of unequal size with the same kind of patients (degree 0: equal sizes)."""

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        rows = len(features)
        if rows < sites * least:
            raise Refusal(
                f"{rows} rows are too few for {sites} sites with at least {least} each",
                where="partition by_quantity",
                remedy="ask for fewer sites, or set least lower",
            )
        if law == "lognormal":
            weights = np.exp(2 * degree * rng.standard_normal(sites))
        else:
            weights = np.arange(1, sites + 1) ** (-2.0 * degree)
        sizes = least + apportion(rows - sites * least, weights)
        return [np.sort(part) for part in np.split(rng.permutation(rows), np.cumsum(sizes)[:-1])]

    return Partition(split)


def apportion(total: int, weights: np.ndarray[Any, Any]) -> Rows:
    """Whole numbers that add up to the total, as near to the weights as can be (largest remainders).

    >>> apportion(10, np.array([1.0, 1.0, 1.0])).tolist()
    [4, 3, 3]
    """
    exact = total * weights / weights.sum()
    sizes = np.floor(exact).astype(int)
    order = np.argsort(sizes - exact, kind="stable")
    sizes[order[: total - int(sizes.sum())]] += 1
    return sizes
