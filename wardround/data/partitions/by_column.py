"""By a column: the value of one column, such as age, decides at which site a row lies.

"strict" segregates: every site has its own range of values. "some" lets the first `shared` sites share the first range
at random while each other site has a range of its own: between those that share, the data are alike. Needs the column
among the features (or the target itself); costs one sort.

Numbers are cut at `edges` (a value equal to an edge lies above it: edges 21 and 41 give 0-20, 21-40, 41 and over), or
without edges into bins of equal numbers of rows. Numbers with at most ten different values, where as many sites are
asked for or none, and texts go value by value; if there are more texts than sites, the commonest text goes to the site
with the fewest rows so far, and so on. `sites` 0 means: as many as there are bins or values (4 for numbers without
edges). Where a site would get no rows the partition is refused. Rows whose value is missing are refused, left out, or
spread evenly over all sites, as `missing` says.
"""

from difflib import get_close_matches
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, CountOrAll
from wardround.core.errors import Refusal
from wardround.data.partitions.iid import Rows, deal, refuse_empty
from wardround.data.table import Partition

FEW_VALUES = 10


def by_column(
    *,
    column: str = "",
    sites: CountOrAll = 0,
    mode: Literal["strict", "some"] = "strict",
    edges: tuple[float, ...] = (),
    shared: Count = 2,
    missing: Literal["refuse", "leave_out", "spread"] = "refuse",
) -> Partition:
    """Rows go to sites by the value of a column, such as age groups ("some": the first sites share a group)."""
    where = f"partition by_column, column {column!r}"
    sharers = shared if mode == "some" else 1

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        values = find_column(features, target, column, where=where)
        known = np.flatnonzero(values.notna().to_numpy())
        unknown = np.flatnonzero(values.isna().to_numpy())
        if len(unknown) and missing == "refuse":
            raise Refusal(
                f"{len(unknown)} of {len(values)} rows have no value in the column that decides on the site",
                where=where,
                remedy='set missing = "leave_out" or missing = "spread"',
            )
        group, groups = _groups(values.iloc[known], sites, sharers, edges, where)
        members = [known[group == g] for g in range(groups)]
        refuse_empty(members, where=where, remedy="ask for fewer sites, or give edges between which there are rows")
        parts = [*deal(rng.permutation(members[0]), sharers, where=where), *members[1:]]
        if missing == "spread":
            extra = np.array_split(rng.permutation(unknown), len(parts))
            parts = [np.concatenate(pair) for pair in zip(parts, extra, strict=True)]
        return [np.sort(rows) for rows in parts]

    return Partition(split)


def find_column(features: pd.DataFrame, target: "pd.Series[Any]", column: str, *, where: str) -> "pd.Series[Any]":
    """The column of that name among the features, or the target if it is the target's name."""
    if column in features.columns:
        found: pd.Series[Any] = features[column]
        return found
    if column and column == target.name:
        return target
    names = [str(name) for name in features.columns]
    near = get_close_matches(column, names, n=1)
    raise Refusal(
        f"there is no column {column!r}" if column else "the column that decides on the site is not named",
        where=where,
        remedy=f"set column = {near[0]!r}" if near else f"set column to one of: {', '.join(names)}",
    )


def _groups(
    values: "pd.Series[Any]", sites: int, sharers: int, edges: tuple[float, ...], where: str
) -> tuple[Rows, int]:
    """For every row its group, and the number of groups: sites less those that share the first group."""
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    codes, distinct = pd.factorize(values, sort=numeric)
    wanted = sites - sharers + 1 if sites else 0
    if sites and wanted < 1:
        raise Refusal(
            f"{sharers} sites share a group, but there are only {sites} sites", where=where, remedy="add sites"
        )
    if len(edges):
        return _cut_at_edges(values, numeric, tuple(edges), wanted, where)
    if numeric and not (len(distinct) <= FEW_VALUES and wanted in (0, len(distinct))):
        wanted = wanted or max(1, 4 - sharers + 1)
        # The shared group holds as many rows as all who share it would have had by themselves.
        at = (sharers + np.arange(wanted - 1)) / (sharers + wanted - 1)
        numbers = values.to_numpy(float)
        return np.searchsorted(np.quantile(numbers, at), numbers, side="right"), wanted
    wanted = wanted or len(distinct)
    if wanted > len(distinct):
        raise Refusal(
            f"{wanted} groups cannot be made from {len(distinct)} different values",
            where=where,
            remedy=f"ask for {len(distinct) + sharers - 1} sites or fewer",
        )
    if numeric:
        return codes, wanted
    return _pack(np.bincount(codes, minlength=len(distinct)), wanted)[codes], wanted


def _cut_at_edges(
    values: "pd.Series[Any]", numeric: bool, edges: tuple[float, ...], wanted: int, where: str
) -> tuple[Rows, int]:
    if not numeric:
        raise Refusal("edges are for numbers, and the column holds text", where=where, remedy="leave edges out")
    if any(low >= high for low, high in pairwise(edges)):
        raise Refusal(f"the edges {edges} do not ascend", where=where, remedy="write them from small to large")
    if wanted not in (0, len(edges) + 1):
        raise Refusal(
            f"{len(edges)} edges make {len(edges) + 1} groups, but the sites asked for need {wanted}",
            where=where,
            remedy="leave out sites, or change the edges",
        )
    return np.searchsorted(edges, values.to_numpy(float), side="right"), len(edges) + 1


def _pack(counts: Rows, groups: int) -> Rows:
    """The group of every value: the commonest first, each to the group that has the fewest rows so far."""
    of_value = np.zeros(len(counts), int)
    filled = np.zeros(groups, int)
    for value in np.argsort(-counts, kind="stable"):
        of_value[value] = np.argmin(filled)
        filled[of_value[value]] += counts[value]
    return of_value
