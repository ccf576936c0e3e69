import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.support.findings import found, patients, sites_of
from wardround.analyses.cross_table import cross_table
from wardround.core.errors import Refusal

FRAME = patients()
SITES = sites_of(FRAME)


@pytest.mark.parametrize("rows", ["ward", "treated"])
def test_it_is_that_of_the_pooled_rows(rows):
    told = found(cross_table(rows=rows, columns="died"), SITES)["numbers"]
    table = pd.crosstab(FRAME[rows], FRAME.died)
    np.testing.assert_array_equal(told["counts"], table)
    oracle = stats.chi2_contingency(table, correction=False)
    assert (told["chi2"], told["df"], told["p"]) == pytest.approx((oracle.statistic, oracle.dof, oracle.pvalue))
    assert told["smallest_expected"] == pytest.approx(oracle.expected_freq.min())
    if rows == "treated":
        exact = stats.fisher_exact(table)
        assert (told["odds_ratio"], told["fisher_p"]) == pytest.approx((exact.statistic, exact.pvalue))
    else:
        assert told["fisher_p"] is None


def test_small_cells_stay_at_their_site_and_others_with_them():
    # A: 40 30 3 | 20 50 60. The 3 is kept back; its row needs a second (30), its column a second (60), and the column
    # of the 30 then gives it away, so the 50 goes as well. B has no small cell. Sums: 40 + 20, 0 + 25, 0 + 12 | ...
    counts = {"A": [[40, 30, 3], [20, 50, 60]], "B": [[20, 25, 12], [15, 20, 30]]}
    frame = pd.DataFrame(
        [
            {"site": site, "rows": "xy"[i], "columns": "klm"[j]}
            for site, table in counts.items()
            for i, line in enumerate(table)
            for j, count in enumerate(line)
            for _ in range(count)
        ]
    )
    report = found(cross_table(rows="rows", columns="columns", smallest_cell=10), sites_of(frame))
    assert report["numbers"]["counts"] == [[60, 25, 12], [35, 20, 30]]
    assert report["numbers"]["kept_back"] == 30 + 3 + 50 + 60
    assert any("143 patients are not counted" in words for words in report["words"])


def test_the_sum_of_what_sites_tell_has_no_small_cell():
    told = found(cross_table(rows="ward", columns="died", smallest_cell=8), SITES)["numbers"]
    assert all(count == 0 or count >= 8 for line in told["counts"] for count in line)


def test_a_condition_is_that_of_the_pooled_rows_and_one_on_few_is_refused():
    told = found(cross_table(rows="treated", columns="died", only="age >= 60 and sex = female"), SITES)["numbers"]
    part = FRAME[(FRAME.age >= 60) & (FRAME.sex == "female")]
    np.testing.assert_array_equal(told["counts"], pd.crosstab(part.treated, part.died))
    oldest = int(FRAME[FRAME.site == "north"].age.max())
    for only in (f"age < {oldest}", f"age >= {oldest}"):
        with pytest.raises(Refusal, match="fewer than 5 patients"):
            found(cross_table(rows="treated", columns="died", only=only, smallest_cell=5), SITES)


def test_a_zero_cell_is_said_and_corrected():
    frame = pd.DataFrame({"site": "A", "x": ["a"] * 20 + ["b"] * 20, "y": ["n"] * 20 + ["n"] * 12 + ["y"] * 8})
    report = found(cross_table(rows="x", columns="y"), sites_of(frame))
    # (20.5 * 8.5) / (0.5 * 12.5) = 27.88
    assert report["numbers"]["odds_ratio"] == pytest.approx(27.88)
    assert "after 0.5 was added to every cell, since one is 0" in report["words"][1]


def test_what_cannot_be_computed_is_refused():
    for settings, words in (
        ({"rows": "ward", "columns": "ward"}, "Rows and columns are the same column"),
        ({"rows": "ward", "columns": "age"}, "'age' holds numbers, and categories are needed"),
        ({"rows": "ward", "columns": "wards"}, "There is no column 'wards'"),
        ({"rows": "ward", "columns": "died", "most_levels": 2}, "has 3 categories, and 2 to 2 can be compared"),
        ({"rows": "ward", "columns": "died", "only": "age => 3"}, "The condition 'age => 3' cannot be read"),
        ({"rows": "ward", "columns": "died", "only": "sex > male"}, "does not fit the categories of 'sex'"),
        ({"rows": "ward", "columns": "died", "only": "age > old"}, "'old' is no number"),
        ({"rows": "ward", "columns": "died", "smallest_cell": 90}, "fewer than two rows or columns that may be told"),
    ):
        with pytest.raises(Refusal, match=words):
            found(cross_table(**settings), SITES)
