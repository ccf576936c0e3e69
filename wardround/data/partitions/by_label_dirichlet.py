"""Label skew by a Dirichlet draw: each class is shared out to the sites in random proportions.

Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", ICML 2019; Hsu et al., "Measuring the
Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019. For every class the proportions
are Dirichlet(alpha, ..., alpha) over the sites: a large alpha is IID (but for sizes, which then are nearly equal), a
small one gives almost every class to one site. Sizes become uneven too. The draw is repeated until every site has at
least `least` rows, at most 1,000 times, and then refused, so no site is ever empty.
"""

from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, Positive
from wardround.core.errors import Refusal
from wardround.data.partitions.by_label_classes import classes_of
from wardround.data.partitions.iid import Rows
from wardround.data.table import Partition

DRAWS = 1_000


def by_label_dirichlet(*, sites: Count = 4, alpha: Positive = 0.5, least: Count = 1) -> Partition:
    """Label skew: classes are shared out in Dirichlet proportions (small alpha: very uneven; large: IID)."""
    where = "partition by_label_dirichlet"

    def split(features: pd.DataFrame, target: "pd.Series[Any]", rng: np.random.Generator) -> list[Rows]:
        codes, count = classes_of(target, where=where)
        shares = draw_shares(np.bincount(codes, minlength=count), sites, alpha, least, rng, where=where)
        return share_out(codes, shares, rng)

    return Partition(split)


def draw_shares(
    class_sizes: Rows, sites: int, alpha: float, least: int, rng: np.random.Generator, *, where: str
) -> np.ndarray[Any, Any]:
    """Proportions of shape (classes, sites) with which every site gets at least `least` rows."""
    if class_sizes.sum() >= sites * least:
        for _ in range(DRAWS):
            shares = rng.dirichlet(np.full(sites, alpha), size=len(class_sizes))
            if _cuts(class_sizes, shares).sum(axis=0).min() >= least:
                return shares
    raise Refusal(
        f"{int(class_sizes.sum())} rows could not be shared out so that each of {sites} sites has at least {least}",
        where=where,
        remedy="ask for fewer sites, set alpha higher, or set least lower",
    )


def share_out(codes: Rows, shares: np.ndarray[Any, Any], rng: np.random.Generator) -> list[Rows]:
    """For every site its rows: those of every class in random order, cut by the site's proportions."""
    counts = _cuts(np.bincount(codes, minlength=len(shares)), shares)
    mine: list[list[Rows]] = [[] for _ in range(shares.shape[1])]
    for code, sizes in enumerate(counts):
        rows = rng.permutation(np.flatnonzero(codes == code))
        for site, part in enumerate(np.split(rows, np.cumsum(sizes)[:-1])):
            mine[site].append(part)
    return [np.sort(np.concatenate(parts)) for parts in mine]


def _cuts(class_sizes: Rows, shares: np.ndarray[Any, Any]) -> Rows:
    ends = np.round(np.cumsum(shares, axis=1) * class_sizes[:, None]).astype(int)
    ends[:, -1] = class_sizes
    return np.diff(ends, axis=1, prepend=0)
