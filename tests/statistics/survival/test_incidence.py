"""Cumulative incidence by hand, and against lifelines."""

import numpy as np
import pytest

from wardround.statistics.survival.incidence import incidence_of
from wardround.statistics.survival.life_table import LifeTable, curve_of


def test_by_hand():
    # Four patients: cause 1 at 1, cause 2 at 2, cause 1 at 3, censored at 4. S: 3/4, 1/2, 1/4.
    # F1: 1/4 at 1, then + S(2) * 1/2 = 1/4 at 3; F2: 3/4 * 1/3 = 1/4 at 2.
    found = incidence_of(np.array([[1.0, 0, 1, 0], [0, 1, 0, 0]]), np.array([4.0, 3, 2, 1]))
    np.testing.assert_allclose(found.incidence, [[0.25, 0.25, 0.5, 0.5], [0, 0.25, 0.25, 0.25]])
    np.testing.assert_allclose(found.survival + found.incidence.sum(axis=0), 1)


def test_one_cause_is_one_minus_kaplan_meier_with_its_error():
    events, risk = np.array([2.0, 0, 1, 3]), np.array([20.0, 15, 12, 7])
    found = incidence_of(events[None], risk)
    curve = curve_of(LifeTable(np.arange(4.0), risk, events, np.zeros(4)))
    np.testing.assert_allclose(found.incidence[0], 1 - curve.survival)
    # The discrete variance is Greenwood's: both are S^2 times the sum of d / (n (n - d)).
    np.testing.assert_allclose(found.error[0], curve.survival_error)


@pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way
def test_lifelines_gives_the_same():
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(3)
    time, cause = rng.permutation(200) + 1.0, rng.integers(0, 3, 200)
    order = np.argsort(time)
    events = np.stack([cause[order] == one for one in (1, 2)]).astype(float)
    found = incidence_of(events, 200 - np.arange(200.0))
    other = lifelines.AalenJohansenFitter(calculate_variance=True).fit(time, cause, 1)
    np.testing.assert_allclose(other.cumulative_density_.to_numpy()[1:, 0], found.incidence[0], atol=1e-12)
    # At the last time, when all are gone, lifelines has no variance.
    np.testing.assert_allclose(other.variance_.to_numpy()[1:-1].ravel(), found.error[0][:-1] ** 2, atol=1e-12)
