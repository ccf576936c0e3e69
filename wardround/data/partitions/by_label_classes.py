"""A few classes a site: every site has patients of exactly `classes` of the classes.

After McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, whose
clients hold two digits each. The sites choose in turn, each the classes that the fewest have chosen so far (ties at
random); the rows of a class are dealt out evenly to those who chose it. Refused, so that no row is lost and no site is
empty: places for fewer classes than there are, and classes with fewer rows than sites that hold them.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count
from wardround.core.errors import Refusal
from wardround.data.partitions.iid import Rows, deal
from wardround.data.table import Partition

MOST_CLASSES = 100


def by_label_classes(*, sites: Count = 4, classes: Count = 2) -> Partition:
    """Every site has patients of only a few classes, as many as `classes` says."""
    where = "partition by_label_classes"

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        codes, count = classes_of(target, where=where)
        if classes > count:
            raise Refusal(
                f"every site should have {classes} classes, but there are only {count}",
                where=where,
                remedy=f"set classes to at most {count}",
            )
        if sites * classes < count:
            raise Refusal(
                f"{sites} sites with {classes} classes each cannot hold {count} classes, so rows would be lost",
                where=where,
                remedy="add sites, or set classes higher",
            )
        holders: list[list[int]] = [[] for _ in range(count)]
        for site in range(sites):
            popularity = np.array([len(sites_of) for sites_of in holders])
            for chosen in np.lexsort((rng.random(count), popularity))[:classes]:
                holders[chosen].append(site)
        mine: list[list[Rows]] = [[] for _ in range(sites)]
        for code, sites_of in enumerate(holders):
            rows = rng.permutation(np.flatnonzero(codes == code))
            for site, part in zip(sites_of, deal(rows, len(sites_of), where=where), strict=True):
                mine[site].append(part)
        return [np.sort(np.concatenate(parts)) for parts in mine]

    return Partition(split)


def classes_of(target: "pd.Series[Any]", *, where: str) -> tuple[Rows, int]:
    """For every row the number of its class, and how many classes there are."""
    if target.isna().any():
        raise Refusal(
            f"{int(target.isna().sum())} rows have no value of the target {target.name!r}",
            where=where,
            remedy="drop these rows",
        )
    codes, distinct = pd.factorize(target.map(str) if target.dtype == object else target, sort=True)
    if pd.api.types.is_numeric_dtype(target):
        fractions = np.any(np.asarray(distinct, float) % 1 != 0)
        if fractions or len(distinct) > MOST_CLASSES:
            raise Refusal(
                f"the target {target.name!r} is a measurement ({len(distinct)} different numbers), not a class",
                where=where,
                remedy="use the partition by_class, which also takes measurements",
            )
    return codes, len(distinct)
