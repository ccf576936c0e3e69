"""Counts, means and spreads of number columns.

Means and variances are combined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances", 1979: every site sends squared deviations from its OWN mean, so nothing cancels.
With `smallest_cell` = 1 all of it is exact. Above, every number is coarse (see `cells`), and a column known for fewer
patients than a cell counts as unknown at that site.
"""

from collections.abc import Sequence

import numpy as np

from wardround.core.bounds import Count
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.queries.cells import coarse_moments, in_cells
from wardround.queries.values import numbers_of, sorted_known, sum_over_sites

TERMS = Terms(
    "counts, sums and squared deviations of numbers, and how many values are missing",
    lambda of: 4 * of.columns,
)


@recorded("query", TERMS)
def moments(*, columns: tuple[str, ...], smallest_cell: Count = 1) -> Query:
    """How many values, their mean, squared deviations from it, and how many are missing; a list entry a column."""

    def ask(_: Message, site: Site) -> Message:
        x = numbers_of(site, columns)
        known = ~np.isnan(x)
        count = known.sum(axis=0)
        missing = in_cells(len(x) - count, smallest_cell)
        count = in_cells(count, smallest_cell)
        if smallest_cell > 1:
            told = [coarse_moments(one, smallest_cell) for one in sorted_known(x)]
            mean, variance = np.array(told, np.float64).reshape(-1, 2).T
            return Message({"count": count, "sum": mean * count, "deviations": variance * count, "missing": missing})
        total = np.where(known, x, 0.0).sum(axis=0)
        mean = total / np.maximum(count, 1)
        deviations = (np.where(known, x - mean, 0.0) ** 2).sum(axis=0)
        return Message({"count": count, "sum": total, "deviations": deviations, "missing": missing})

    def combine(answers: Sequence[Message]) -> Report:
        counts = np.array([answer.arrays["count"] for answer in answers], np.float64)
        sums = np.array([answer.arrays["sum"] for answer in answers], np.float64)
        count = counts.sum(axis=0)
        mean = sums.sum(axis=0) / np.maximum(count, 1)
        between = (counts * (sums / np.maximum(counts, 1) - mean) ** 2).sum(axis=0)
        return {
            "count": count.tolist(),
            "mean": mean.tolist(),
            "deviations": (sum_over_sites(answers, "deviations") + between).tolist(),
            "missing": sum_over_sites(answers, "missing").tolist(),
        }

    return Query(ask, combine)
