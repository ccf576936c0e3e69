"""How well predicted risks order patients: Harrell's and Uno's C, site by site and over all pairs within sites."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wardround.statistics.survival.concordance import Censoring, Pairs, censoring_of, comparable_pairs, uno_pairs

Values = np.ndarray[Any, Any]


class Order(NamedTuple):
    """C-indices; none where no pair can be compared."""

    by_site: tuple[float | None, ...]
    pooled: float | None
    """Over the comparable pairs of all sites, each pair within its own site."""


def add_pairs(pairs: Sequence[Pairs]) -> Pairs:
    """Of several sites."""
    return Pairs(*(float(sum(part)) for part in zip(*pairs, strict=True))) if pairs else Pairs(0.0, 0.0, 0.0)


def harrell(time: Values, event: Values, risk: Values, first: Values) -> Order:
    """Rows of site i are first[i]:first[i + 1]; a higher risk should mean an earlier event."""
    cuts = [slice(int(a), int(b)) for a, b in pairwise(first)]
    each = [comparable_pairs(time[cut], event[cut], risk[cut]) for cut in cuts]
    return Order(tuple(one.c_index for one in each), add_pairs(each).c_index)


def uno(
    time: Values,
    event: Values,
    risk: Values,
    first: Values,
    *,
    censoring: Censoring | None = None,
    horizon: float | None = None,
) -> Order:
    """As `harrell`, each pair weighted by the chance of seeing it; by default each site's own censoring.

    Give the horizon to which patients were followed: beyond, few pairs have weights without bound.
    """
    each = []
    for a, b in pairwise(first):
        cut = slice(int(a), int(b))
        chance = censoring_of(time[cut], event[cut]) if censoring is None else censoring
        each.append(uno_pairs(time[cut], event[cut], risk[cut], chance, horizon))
    return Order(tuple(one.c_index for one in each), add_pairs(each).c_index)
