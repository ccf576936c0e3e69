"""The log-rank test by hand and against lifelines; Gray's test in its limits."""

import numpy as np
import pytest

from tests.support.survival.sites import made_patients
from wardround.statistics.survival.gray import gray_test
from wardround.statistics.survival.rank_tests import rank_sums, rank_test, tied_counts


def test_by_hand():
    # Group 0 dies at 1 and 3, group 1 at 2 and 4. At 1: 4 at risk, 2 of group 0: E = 1/2. At 2: 3 at risk, 1 of group
    # 0: 1/3. At 3: 2 at risk, 1: 1/2. At 4: 1 at risk, none. Expected 4/3 of group 0's 2 events; variance
    # 1/4 + 2/9 + 1/4 = 13/18, so the statistic is (2/3)^2 / (13/18) = 8/13.
    events, at_risk = tied_counts(np.array([1.0, 3, 2, 4]), np.ones(4), np.array([0, 0, 1, 1]), 2)
    sums = rank_sums(events, at_risk)
    np.testing.assert_allclose(sums.expected, [4 / 3, 8 / 3])
    np.testing.assert_allclose(sums.covariance[0, 0], 13 / 18)
    np.testing.assert_allclose(rank_test(sums.difference, sums.covariance).statistic, 8 / 13)


@pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way
@pytest.mark.parametrize(("p", "q"), [(0.0, 0.0), (1.0, 0.0), (0.5, 2.0)])
def test_lifelines_gives_the_same(p, q):
    statistics = pytest.importorskip("lifelines.statistics")
    rows = made_patients()
    group = rows["stage"].map({"I": 0, "II": 1, "III": 2}).to_numpy()
    sums = rank_sums(*tied_counts(rows["time"].to_numpy(), rows["event"].to_numpy(), group, 3), p, q)
    weights = {"weightings": "fleming-harrington", "p": p, "q": q} if p or q else {}
    other = statistics.multivariate_logrank_test(rows["time"], group, rows["event"], **weights)
    test = rank_test(sums.difference, sums.covariance)
    np.testing.assert_allclose((test.statistic, test.p_value), (other.test_statistic, other.p_value), rtol=1e-9)
    assert test.freedom == 2


def test_groups_that_were_never_together_are_not_compared():
    sums = rank_sums(*tied_counts(np.array([1.0, 2]), np.ones(2), np.array([0, 0]), 2))
    assert rank_test(sums.difference, sums.covariance) == (None, 0, None)


def test_without_other_causes_grays_test_is_the_log_rank():
    rows = made_patients(rounded=False)
    group = rows["stage"].map({"I": 0, "II": 1, "III": 2}).to_numpy()
    events, at_risk = tied_counts(rows["time"].to_numpy(), rows["event"].to_numpy(), group, 3)
    sums = rank_sums(events, at_risk)
    one, other = gray_test(events, events, at_risk), rank_test(sums.difference, sums.covariance)
    np.testing.assert_allclose(one.statistic, other.statistic, rtol=1e-9)


def test_grays_test_is_as_often_wrong_as_it_says():
    # Two groups with the same incidence of the first cause, but a second cause that takes its victims at another pace:
    # 1000 tests at 20 % may be wrong 200 +- 2.6 * 12.6 times.
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(1000):
        group, cause = rng.integers(0, 2, 150), np.where(rng.random(150) < 0.5, 1, 2)
        struck = rng.exponential(np.where(cause == 1, 1.0, 0.5 + 2 * group))
        censored = rng.exponential(2, 150)
        time, seen = np.minimum(struck, censored), np.where(struck <= censored, cause, 0)
        every, at_risk = tied_counts(time, (seen > 0).astype(float), group, 2)
        distinct = np.unique(time[seen > 0])
        first = np.zeros_like(every)
        np.add.at(first, (group[seen == 1], np.searchsorted(distinct, time[seen == 1])), 1)
        wrong += gray_test(first, every, at_risk).p_value < 0.2
    assert 167 <= wrong <= 233
