"""How far the sites' own estimates differ: Cochran's Q, I2, and DerSimonian and Laird's tau2 with the pooled effect.

DerSimonian and Laird, "Meta-analysis in clinical trials", Control Clin Trials 1986; Higgins and Thompson, 2002.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

Array = np.ndarray[Any, Any]


class SpreadOfSites(NamedTuple):
    """Of one coefficient over sites."""

    sites: int
    pooled: float
    error: float
    q: float
    p_value: float
    i2: float
    tau2: float


def spread_of_sites(values: Array, errors: Array) -> SpreadOfSites | None:
    """From the sites' estimates and standard errors; none where fewer than two can be compared."""
    known = np.isfinite(values) & np.isfinite(errors) & (errors > 0)
    values, weights = values[known], 1 / errors[known] ** 2
    if len(values) < 2:
        return None
    fixed = float(weights @ values / weights.sum())
    q, df = float(weights @ (values - fixed) ** 2), len(values) - 1
    tau2 = max(0.0, (q - df) / float(weights.sum() - (weights @ weights) / weights.sum()))
    random = 1 / (1 / weights + tau2)
    return SpreadOfSites(
        sites=len(values),
        pooled=float(random @ values / random.sum()),
        error=float(random.sum() ** -0.5),
        q=q,
        p_value=float(stats.chi2.sf(q, df)),
        i2=max(0.0, 1 - df / q) if q > 0 else 0.0,
        tau2=tau2,
    )
