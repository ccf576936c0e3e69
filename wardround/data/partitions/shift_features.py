"""Shift of p(x|y): the same illness looks different from site to site, as with other devices, units or populations.

Rows are dealt out IID. Then, at every site, a numeric column with mean m and standard deviation s at that site becomes
m + (x - m) · exp(degree · scale · v) + degree · shift · s · u, where v is Normal(0, 1) for the site and column, and u
is Normal(0, 1) for the site, column and class (for a regression: target above or not above the site's median). So the
distance between classes differs from site to site, while the outcomes stay as they were. Degree 0 leaves all as it
is, and then it is IID. Missing values stay missing. Columns with only two values, and texts, stay as they are; if
nothing is left to shift it is refused. More sites than rows is refused, so no site is ever empty.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, NotNegative, Share
from wardround.core.errors import Refusal
from wardround.data.partitions.iid import iid
from wardround.data.table import Partition


def shift_features(
    *,
    sites: Count = 4,
    degree: Share = 0.5,
    shift: NotNegative = 1.0,
    scale: NotNegative = 0.3,
    columns: tuple[str, ...] = (),
) -> Partition:
    """Shift of p(x|y): measurements are moved and stretched differently at every site (degree 0: IID)."""
    where = "partition shift_features"

    def alter(
        site: int, count: int, features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator
    ) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        names = _measured(features, columns, where)
        kind = _kinds(target)
        v = rng.standard_normal(len(names))
        u = rng.standard_normal((int(kind.max(initial=0)) + 1, len(names)))
        if degree == 0:
            return features, target
        x = features[names].to_numpy(float)
        spread = features[names].std(ddof=0).fillna(0.0).to_numpy(float)
        mean = features[names].mean().to_numpy(float)
        new = mean + (x - mean) * np.exp(degree * scale * v) + degree * shift * spread * u[kind]
        moved = {name: new[:, j] for j, name in enumerate(names)}
        return features.assign(**moved), target

    return Partition(iid(sites=sites).split, alter)


def _measured(features: pd.DataFrame, columns: tuple[str, ...], where: str) -> list[str]:
    numeric = [
        str(name)
        for name in features.columns
        if pd.api.types.is_numeric_dtype(features[name]) and not pd.api.types.is_bool_dtype(features[name])
    ]
    wrong = [name for name in columns if name not in numeric]
    if wrong:
        raise Refusal(
            f"the column {', '.join(wrong)} cannot be shifted, since it holds no numbers",
            where=where,
            remedy=f"choose from: {', '.join(numeric)}",
        )
    # Flags coded 0/1 would no longer be flags; a site's few rows may show a flag as constant, hence "at most two".
    names = list(columns) or [name for name in numeric if features[name].nunique() > 2]
    if not names:
        raise Refusal("no column is a measurement, so there is nothing to shift", where=where, remedy="name columns")
    return names


def _kinds(target: "pd.Series[Any]") -> np.ndarray[Any, Any]:
    """The class of every row, or for a measured target whether it is above the median."""
    if pd.api.types.is_numeric_dtype(target) and target.nunique() > 20:
        return (target > target.median()).to_numpy(int)
    codes, _ = pd.factorize(target, sort=True)
    return np.maximum(codes, 0)
