"""Sites taken together, by hand."""

import numpy as np
import pytest

from wardround.evaluate.metrics import MeasuredValue
from wardround.evaluate.summary import NOWHERE, summarise


def test_three_sites_one_undefined_by_hand() -> None:
    one = summarise(np.array([0.5, 0.8, np.nan]), np.array([10, 30, 5]))
    assert one.weighted.value == pytest.approx((10 * 0.5 + 30 * 0.8) / 40)  # 0.725; the 5 patients do not count
    assert one.unweighted.value == pytest.approx(0.65)
    # A tenth, a half, nine tenths of the way from 0.5 to 0.8.
    assert one.percentiles == pytest.approx({10: 0.53, 50: 0.65, 90: 0.77})
    # sqrt((10 * 0.225^2 + 30 * 0.075^2) / 40)
    assert one.sd_between_sites.value == pytest.approx(0.016875**0.5)
    assert (one.defined, one.sites) == (2, 3)


def test_one_site_has_no_spread_to_tell_of() -> None:
    one = summarise(np.array([np.nan, 0.8]), np.array([10, 30]))
    assert one.weighted == MeasuredValue(0.8)
    assert one.sd_between_sites == MeasuredValue(None, "defined at one site only")


def test_defined_nowhere() -> None:
    one = summarise(np.array([np.nan, np.nan]), np.array([10, 30]))
    assert one.weighted == one.unweighted == one.sd_between_sites == MeasuredValue(None, NOWHERE)
    assert one.percentiles == {10: None, 50: None, 90: None}
    assert one.defined == 0
