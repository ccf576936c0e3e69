import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

from tests.support.findings import found, patients, sites_of
from wardround.analyses.group_means import group_means
from wardround.core.errors import Refusal

FRAME = patients()
SITES = sites_of(FRAME)


def test_two_groups_are_compared_as_scipy_compares_the_pooled_rows():
    report = found(group_means(column="outcome", group="treated"), SITES)
    told = report["numbers"]
    one, other = (FRAME.outcome[FRAME.treated == level] for level in ("yes", "no"))
    for key, equal in (("student", True), ("welch", False)):
        oracle = stats.ttest_ind(one, other, equal_var=equal)
        assert told[key]["statistic"] == pytest.approx(oracle.statistic, rel=1e-9)
        assert told[key]["p"] == pytest.approx(oracle.pvalue, rel=1e-7)
        assert told[key]["df"] == pytest.approx(oracle.df)
    ends = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    assert (told["low"], told["high"]) == pytest.approx((ends.low, ends.high))
    assert told["mean"] == pytest.approx([other.mean(), one.mean()])
    assert told["sd"] == pytest.approx([other.std(), one.std()])
    assert "higher with treated = yes than with no" in report["words"][0]


def test_three_groups_are_compared_by_analysis_of_variance():
    told = found(group_means(column="a", group="ward"), SITES)["numbers"]
    groups = [FRAME.a[FRAME.ward == level] for level in told["groups"]]
    plain = stats.f_oneway(*groups)
    assert (told["anova"]["statistic"], told["anova"]["p"]) == pytest.approx((plain.statistic, plain.pvalue))
    welch = anova_oneway(groups, use_var="unequal")
    assert (told["welch"]["statistic"], told["welch"]["p"]) == pytest.approx((welch.statistic, welch.pvalue))


def test_large_values_lose_no_digits():
    shifted = FRAME.assign(outcome=FRAME.outcome + 1e9)
    told = found(group_means(column="outcome", group="treated"), sites_of(shifted))["numbers"]
    plain = found(group_means(column="outcome", group="treated"), SITES)["numbers"]
    assert told["sd"] == pytest.approx(plain["sd"], rel=1e-6)


def test_a_group_that_one_patient_makes_up_is_not_told_nor_the_one_that_gives_it_away():
    # 30 patients a group; in group x one value is a million: its sum would tell it. The site's total, told elsewhere,
    # less the other groups is group x, so one more group of the same size is kept back.
    values = {"x": [1.0, 2.0] * 14 + [1.5, 1e6], "y": [3.0, 4.0] * 15, "z": [5.0, 6.0] * 15, "w": [7.0, 8.0] * 15}
    frame = pd.DataFrame([{"site": "A", "v": v, "g": g} for g, all_of in values.items() for v in all_of])
    report = found(group_means(column="v", group="g", smallest_cell=10), sites_of(frame))
    assert len(report["numbers"]["groups"]) == 2
    assert "x" not in report["numbers"]["groups"]
    assert report["numbers"]["kept_back"] == 60
    assert any("60 patients are not counted" in words for words in report["words"])


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(Refusal, match="'sex' holds words, and numbers are needed"):
        found(group_means(column="sex", group="ward"), SITES)
    with pytest.raises(Refusal, match="Fewer than two groups of ward have values"):
        found(group_means(column="a", group="ward", smallest_cell=50), SITES)
    with pytest.raises(Refusal, match="K does not vary within the groups"):
        found(group_means(column="k", group="ward"), sites_of(FRAME.assign(k=np.where(FRAME.ward == "one", 1.0, 2.0))))
