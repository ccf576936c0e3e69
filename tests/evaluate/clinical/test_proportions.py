"""Wilson's interval by its published values, by its definition, and at its ends."""

import numpy as np
import pytest
from scipy.stats import binomtest

from wardround.evaluate.clinical.proportions import proportion, wilson_interval


@pytest.mark.parametrize(
    ("count", "patients", "low", "high"),
    # Newcombe, "Two-sided confidence intervals for the single proportion", Stat Med 1998, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_published_values(count: int, patients: int, low: float, high: float) -> None:
    found = proportion(count, patients, "nobody")
    assert found.value == count / patients
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_scipy_agrees_and_nobody_has_no_share() -> None:
    counts, patients = np.array([0, 3, 17, 40, 5]), np.array([7, 9, 40, 40, 0])
    low, high = wilson_interval(counts, patients, 0.9)
    for at in range(4):
        own = binomtest(int(counts[at]), int(patients[at])).proportion_ci(0.9, method="wilson")
        assert (low[at], high[at]) == (pytest.approx(own.low, abs=1e-12), pytest.approx(own.high, abs=1e-12))
    assert np.isnan([low[4], high[4]]).all()
    assert proportion(0, 0, "nobody is flagged").plain() == {"value": None, "undefined": "nobody is flagged"}
