"""Calibration at a horizon: predicted risks that are true come out as such."""

import numpy as np

from wardround.evaluate.survival.horizon_calibration import horizon_calibration, observed_risk


def test_observed_risk_by_hand():
    # Events at 1 and 3 of four, one censored at 2: S(3) = 3/4 * 1/2.
    share, low, high = observed_risk(np.array([1.0, 2, 3, 4]), np.array([1.0, 0, 1, 0]), 3.0)
    np.testing.assert_allclose(share, 1 - 3 / 8)
    assert low < share < high


def test_true_risks_are_calibrated_and_doubled_ones_are_not():
    rng = np.random.default_rng(2)
    rate = rng.uniform(0.1, 1.0, 6000)
    died, censored = rng.exponential(1 / rate), rng.exponential(3, 6000)
    time, event = np.minimum(died, censored), (died <= censored).astype(float)
    risk = 1 - np.exp(-rate * 0.8)
    found = horizon_calibration(time, event, risk, 0.8, groups=5)
    assert len(found.groups) == 5
    # Five 95 % intervals; a group off by more than twice its interval would be a mistake and not chance.
    for group in found.groups:
        assert abs(group.observed - group.predicted) < group.high - group.low
    assert abs(found.ratio - 1) < 0.06
    assert abs(horizon_calibration(time, event, risk / 2, 0.8).ratio - 2) < 0.12
    assert horizon_calibration(time[:0], event[:0], risk[:0], 0.8).ratio is None
    assert len(horizon_calibration(time[:15], event[:15], risk[:15], 0.8).groups) == 1
