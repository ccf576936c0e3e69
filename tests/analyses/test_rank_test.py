import numpy as np
import pytest
from scipy import stats

from tests.support.findings import found, patients, sites_of
from wardround.analyses.rank_test import rank_test
from wardround.core.errors import Refusal

FRAME = patients()
SITES = sites_of(FRAME)


def oracle_of(column):
    groups = [FRAME[column][FRAME.treated == level] for level in ("yes", "no")]
    return stats.mannwhitneyu(*groups, use_continuity=False, method="asymptotic")


def test_whole_numbers_lie_in_bins_of_their_own_so_it_is_exact():
    told = found(rank_test(column="age", group="treated"), SITES)["numbers"]
    assert told["bin_width"] <= 1
    oracle = oracle_of("age")
    assert (told["u"], told["p"]) == pytest.approx((oracle.statistic, oracle.pvalue))


@pytest.mark.parametrize("bins", [8, 64])
def test_the_error_of_the_bins_is_told(bins):
    report = found(rank_test(column="a", group="treated", bins=bins), SITES)
    told = report["numbers"]
    pairs = (FRAME.treated == "yes").sum() * (FRAME.treated == "no").sum()
    assert told["lowest"] <= oracle_of("a").statistic / pairs <= told["highest"]
    assert told["p_least"] <= oracle_of("a").pvalue <= told["p_most"]
    assert (told["highest"] - told["lowest"] < 0.1) == (bins == 64)
    assert "whatever the order within bins" in report["words"][1]


@pytest.mark.parametrize("shift", [0.0, 1e6, -3e-3])
def test_the_bins_find_the_values_wherever_they_lie(shift):
    scaled = FRAME.assign(a=FRAME.a * 1e-3 + shift)
    told = found(rank_test(column="a", group="treated"), sites_of(scaled))["numbers"]
    assert told["highest"] - told["lowest"] < 0.03
    assert told["patients"] == [(FRAME.treated == level).sum() for level in ("no", "yes")]


def test_protected_cells_make_it_coarse_and_it_says_so():
    told = found(rank_test(column="a", group="treated", smallest_cell=5), SITES)["numbers"]
    assert told["sites"] == 3
    assert told["lowest"] < told["chance"] < told["highest"]


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(Refusal, match="'ward' has 3 categories, and 2 to 2 can be compared"):
        found(rank_test(column="a", group="ward"), SITES)
    with pytest.raises(Refusal, match="No site has enough patients with a and treated"):
        found(rank_test(column="a", group="treated", smallest_cell=60), SITES)
    alone = sites_of(FRAME[FRAME.treated == "yes"].assign(treated=lambda f: np.where(f.age > 200, "no", "yes")))
    with pytest.raises(Refusal, match="'treated' has 1 categories"):
        found(rank_test(column="a", group="treated"), alone)
