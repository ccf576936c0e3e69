import numpy as np
import pytest
from scipy import stats

from tests.support.findings import found, patients, sites_of
from wardround.analyses.correlations import correlations
from wardround.core.errors import Refusal

FRAME = patients()
SITES = sites_of(FRAME)
COLUMNS = ("age", "a", "b")


def test_they_are_those_of_the_pooled_rows():
    report = found(correlations(columns=COLUMNS), SITES)
    np.testing.assert_allclose(report["numbers"]["r"], FRAME[list(COLUMNS)].corr(), atol=1e-12)
    first, second, r, low, high, p = report["tables"][0]["rows"][0]
    oracle = stats.pearsonr(FRAME[first], FRAME[second])
    ends = oracle.confidence_interval()
    assert (r, low, high, p) == pytest.approx((oracle.statistic, ends.low, ends.high, oracle.pvalue))


def test_patients_with_a_gap_are_left_out():
    gaps = FRAME.assign(a=FRAME.a.where(np.arange(len(FRAME)) % 3 > 0))
    told = found(correlations(columns=COLUMNS), sites_of(gaps))["numbers"]
    np.testing.assert_allclose(told["r"], gaps[list(COLUMNS)].dropna().corr(), atol=1e-12)
    assert told["patients"] == gaps.a.notna().sum()


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(Refusal, match="One column has no correlation"):
        found(correlations(columns=("a",)), SITES)
    with pytest.raises(Refusal, match="The columns k do not vary"):
        found(correlations(columns=("a", "k")), sites_of(FRAME.assign(k=1.0)))
    with pytest.raises(Refusal, match="0 complete rows may be told about"):
        found(correlations(columns=COLUMNS, smallest_cell=200), SITES)
