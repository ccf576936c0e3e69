"""Curves by hand, and against lifelines."""

import numpy as np
import pytest

from tests.support.survival.sites import made_patients
from wardround.statistics.survival.life_table import LifeTable, curve_of, life_table, log_log_interval, median_of
from wardround.statistics.survival.time_axis import intervals_of, round_edges


def table_of(time, event, edges, exact=True):
    place = intervals_of(time, edges)
    events, left = (np.bincount(place, weights=w, minlength=len(edges)) for w in (event, np.ones(len(time))))
    return life_table(edges, events, left, len(time), exact)


def test_by_hand():
    # Times 1, 2+, 3, 3, 5+ of five patients: S(1) = 4/5, S(3) = 4/5 * 1/3 = 4/15; H(1) = 1/5, H(3) = 1/5 + 2/3.
    # Greenwood at 1: S^2 * 1/(5*4) = 0.032; at 3: (4/15)^2 (1/20 + 2/(3*1)).
    curve = curve_of(table_of(np.array([1.0, 2, 3, 3, 5]), np.array([1.0, 0, 1, 1, 0]), np.array([1.0, 2, 3, 5])))
    np.testing.assert_allclose(curve.survival, [4 / 5, 4 / 5, 4 / 15, 4 / 15])
    np.testing.assert_allclose(curve.hazard, [1 / 5, 1 / 5, 13 / 15, 13 / 15])
    np.testing.assert_allclose(curve.survival_error[0] ** 2, 0.032)
    np.testing.assert_allclose(curve.survival_error[2] ** 2, (4 / 15) ** 2 * (1 / 20 + 2 / 3))
    np.testing.assert_allclose(curve.hazard_error[2] ** 2, 1 / 25 + 2 / 9)
    assert median_of(curve)[0] == 3
    assert curve.rounding == 0


def test_lifelines_gives_the_same():
    lifelines = pytest.importorskip("lifelines")
    rows = made_patients()
    time, event = rows["time"].to_numpy(), rows["event"].to_numpy(float)
    curve = curve_of(table_of(time, event, np.unique(time)))
    fitted = lifelines.KaplanMeierFitter().fit(time, event)
    np.testing.assert_allclose(fitted.survival_function_.to_numpy()[1:, 0], curve.survival, atol=1e-12)
    np.testing.assert_allclose(fitted.confidence_interval_.to_numpy()[1:, 0], curve.low, atol=1e-12)
    np.testing.assert_allclose(fitted.confidence_interval_.to_numpy()[1:, 1], curve.high, atol=1e-12)
    ends = lifelines.utils.median_survival_times(fitted.confidence_interval_).to_numpy()[0]
    assert median_of(curve) == (fitted.median_survival_time_, *ends)
    summed = lifelines.NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, event).cumulative_hazard_
    np.testing.assert_allclose(summed.to_numpy()[1:, 0], curve.hazard, atol=1e-12)


@pytest.mark.parametrize("bins", [5, 20, 80])
def test_wider_intervals_enclose_the_exact_curve(bins):
    rows = made_patients(rounded=False)
    time, event = rows["time"].to_numpy(), rows["event"].to_numpy(float)
    exact = curve_of(table_of(time, event, np.unique(time)))
    edges = round_edges(float(time.max()), bins)
    curve = curve_of(table_of(time, event, edges, exact=False))
    at_edges = np.array([exact.survival[exact.edges <= edge][-1] if edge >= time.min() else 1.0 for edge in edges])
    assert (curve.earliest <= at_edges + 1e-12).all()
    assert (at_edges <= curve.latest + 1e-12).all()
    assert np.abs(curve.survival - at_edges).max() <= curve.rounding


def test_nobody_left_and_no_event():
    empty = np.zeros(2)
    curve = curve_of(LifeTable(np.array([1.0, 2.0]), empty, empty, empty))
    assert curve.survival.tolist() == [1, 1]
    assert median_of(curve) == (None, None, None)
    low, high = log_log_interval(np.array([0.0, 1.0]), np.array([0.0, 0.0]), 0.95)
    assert low.tolist() == high.tolist() == [0, 1]
