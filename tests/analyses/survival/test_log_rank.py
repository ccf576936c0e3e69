"""The log-rank test over sites equals that of all rows in one place."""

import numpy as np
import pandas as pd
import pytest

from tests.support.survival.sites import found, made_patients
from wardround.analyses.survival.log_rank import log_rank
from wardround.core.errors import Refusal

STUDY = {"time": "time", "event": "event", "group": "stage"}
lifelines = pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way


@lifelines
def test_across_sites_it_is_lifelines_on_all_rows():
    statistics = pytest.importorskip("lifelines.statistics")
    rows = made_patients()
    report = found(log_rank(**STUDY, by_site=False, bins=2000), rows)
    other = statistics.multivariate_logrank_test(rows["time"], rows["stage"], rows["event"])
    np.testing.assert_allclose(report["numbers"]["statistic"], other.test_statistic, rtol=1e-9)
    assert report["numbers"]["exact"]


@pytest.mark.parametrize("strata", [(), ("sick",)])
def test_within_sites_it_is_the_sum_over_sites(strata):
    # statsmodels has the stratified test of two groups.
    survdiff = pytest.importorskip("statsmodels.duration.api").survdiff
    rows = made_patients()
    rows["late"] = np.where(rows["stage"] == "III", "yes", "no")
    rows["sick"] = rows["ill"].map({0: "no", 1: "yes"})
    by = rows["site"] + (rows["sick"] if strata else "")
    statistic, p_value = survdiff(rows["time"], rows["event"], rows["late"], strata=by)
    report = found(log_rank(time="time", event="event", group="late", strata=strata), rows)
    np.testing.assert_allclose(report["numbers"]["statistic"], statistic, rtol=1e-9)
    np.testing.assert_allclose(report["numbers"]["p_value"], p_value, rtol=1e-6)
    assert any("within the same site" in one for one in report["words"])


def test_strata_across_sites_on_a_common_axis():
    survdiff = pytest.importorskip("statsmodels.duration.api").survdiff
    rows = made_patients()
    rows["late"] = np.where(rows["stage"] == "III", "yes", "no")
    rows["sick"] = rows["ill"].map({0: "no", 1: "yes"})
    statistic, _ = survdiff(rows["time"], rows["event"], rows["late"], strata=rows["sick"])
    study = {"time": "time", "event": "event", "group": "late", "strata": ("sick",)}
    report = found(log_rank(**study, by_site=False, bins=2000), rows)
    np.testing.assert_allclose(report["numbers"]["statistic"], statistic, rtol=1e-9)
    coarse = found(log_rank(**study, by_site=False, bins=50, smallest_cell=5), rows)
    assert abs(coarse["numbers"]["statistic"] - statistic) < 0.3 * statistic + 1


@lifelines
def test_weights_are_those_of_lifelines_at_one_site():
    statistics = pytest.importorskip("lifelines.statistics")
    rows = made_patients().assign(site="A")
    other = statistics.multivariate_logrank_test(
        rows["time"], rows["stage"], rows["event"], weightings="fleming-harrington", p=1.0, q=0.5
    )
    report = found(log_rank(**STUDY, p=1.0, q=0.5), rows)
    np.testing.assert_allclose(report["numbers"]["statistic"], other.test_statistic, rtol=1e-9)
    assert any("Fleming-Harrington" in one for one in report["words"])


def test_a_stratum_with_one_patient_adds_nothing():
    rows = made_patients()
    one = rows.iloc[:1].assign(site="lonely", time=100.0, event=1)
    with_one = found(log_rank(**STUDY), pd.concat([rows, one]))["numbers"]
    np.testing.assert_allclose(with_one["statistic"], found(log_rank(**STUDY), rows)["numbers"]["statistic"])


def test_one_group_is_refused():
    with pytest.raises(Refusal, match="one group only"):
        found(log_rank(**STUDY), made_patients().assign(stage="I"))
