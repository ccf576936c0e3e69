"""Cochran's Q, I-squared and tau-squared, from sums over sites."""

import numpy as np

from wardround.statistics.survival.heterogeneity import heterogeneity_of, site_terms


def test_by_hand():
    # Estimates 0 and 1, both with variance 1/4, so w = 4: mean 1/2, Q = 4/4 + 4/4 = 2 on one degree of freedom,
    # I2 = 1/2, tau2 = (2 - 1) / (8 - 32 / 8) = 1/4. A third site without an estimate changes nothing.
    sums = sum(site_terms(np.array([b]), np.array([0.5])) for b in (0.0, 1.0)) + site_terms(
        np.array([np.nan]), np.array([np.nan])
    )
    one = heterogeneity_of(sums[:, 0])
    np.testing.assert_allclose((one.sites, one.q, one.i_squared, one.tau_squared), (2, 2, 0.5, 0.25))
    assert heterogeneity_of(site_terms(np.array([1.0]), np.array([1.0]))[:, 0]).i_squared is None


def test_sites_that_agree_have_none():
    sums = sum(site_terms(np.array([0.3]), np.array([e])) for e in (0.1, 0.2, 0.3))
    one = heterogeneity_of(sums[:, 0])
    assert one.tau_squared == 0
    assert one.i_squared == 0
