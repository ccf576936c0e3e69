"""How much an effect differs between sites, from sums over sites: Cochran's Q, I-squared and tau-squared.

Cochran, Biometrics 1954; DerSimonian and Laird, Controlled Clinical Trials 1986; Higgins and Thompson, Statistics in
Medicine 2002. Each site adds w, w b, w b^2 and w^2 of its own estimate b with w = 1 / variance, so no site's estimate
is seen where only the sum is.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

Values = np.ndarray[Any, Any]
SUMS = 5
"""Sites with an estimate, w, w b, w b^2, w^2."""


class SiteAgreement(NamedTuple):
    """Of one effect; none where fewer than two sites have an estimate."""

    sites: int
    q: float | None
    p_value: float | None
    i_squared: float | None
    tau_squared: float | None


def site_terms(estimate: Values, error: Values) -> Values:
    """(SUMS, effects): what a site adds; zeros for an effect that it cannot estimate (not finite)."""
    known = np.isfinite(estimate) & np.isfinite(error) & (error > 0)
    weight = np.where(known, 1 / np.where(known, error, 1.0) ** 2, 0.0)
    value = np.where(known, estimate, 0.0)
    return np.stack([known.astype(np.float64), weight, weight * value, weight * value**2, weight**2])


def heterogeneity_of(sums: Values) -> SiteAgreement:
    """From the added-up terms of one effect."""
    count, weight, first, second, square = (float(one) for one in sums)
    sites = round(count)
    if sites < 2:
        return SiteAgreement(sites, None, None, None, None)
    q = max(second - first**2 / weight, 0.0)
    freedom = sites - 1
    tau = max((q - freedom) / (weight - square / weight), 0.0)
    return SiteAgreement(sites, q, float(chi2.sf(q, freedom)), max(1 - freedom / q, 0.0) if q > 0 else 0.0, tau)
