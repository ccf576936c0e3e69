import numpy as np
import pytest

from tests.support.findings import found, patients, sites_of
from wardround.analyses.distribution import distribution
from wardround.core.errors import Refusal

FRAME = patients()
SITES = sites_of(FRAME)
SHARES = (0.1, 0.25, 0.5, 0.9)


def test_quantiles_are_those_of_the_pooled_rows_to_the_precision_asked_for():
    told = found(distribution(columns=("a", "age"), quantiles=SHARES, precision=1e-7), SITES)["numbers"]
    for column in ("a", "age"):
        exact = np.quantile(FRAME[column], SHARES, method="inverted_cdf")
        np.testing.assert_allclose(list(told[column]["quantiles"].values()), exact, atol=1e-4)
        assert all(low <= one < high for (low, high), one in zip(told[column]["bounds"].values(), exact, strict=True))
    assert list(told["age"]["quantiles"].values()) == list(np.quantile(FRAME.age, SHARES, method="inverted_cdf"))


def test_the_histogram_is_that_of_the_pooled_rows():
    told = found(distribution(columns=("a",)), SITES)["numbers"]["a"]
    np.testing.assert_array_equal(told["counts"], np.histogram(FRAME.a, told["edges"])[0])
    assert sum(told["counts"]) == told["patients"] == len(FRAME)


def test_a_column_of_one_value():
    told = found(distribution(columns=("k",)), sites_of(FRAME.assign(k=7.0)))["numbers"]["k"]
    assert told["quantiles"]["0.5"] == pytest.approx(7, abs=1e-6)


@pytest.mark.parametrize("cell", [5, 10])
def test_protected_cells_leave_bounds_that_hold_for_the_values_so_counted(cell):
    told = found(distribution(columns=("a",), quantiles=SHARES, smallest_cell=cell), SITES)["numbers"]["a"]
    # A site's outermost cell - 1 values count as lying where the next one does; west has too few to be counted.
    counted = []
    for site in SITES:
        ordered = np.sort(site.table.a)
        if len(ordered) >= 2 * cell:
            counted.append(np.clip(ordered, ordered[cell - 1], ordered[-cell]))
    exact = np.quantile(np.concatenate(counted), SHARES, method="inverted_cdf")
    for (low, high), one in zip(told["bounds"].values(), exact, strict=True):
        assert low <= one <= high


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(Refusal, match="Quantiles lie between 0 and 1"):
        found(distribution(columns=("a",), quantiles=(50.0,)), SITES)
    with pytest.raises(Refusal, match="'sex' holds words"):
        found(distribution(columns=("sex",)), SITES)
    with pytest.raises(Refusal, match="No site has enough patients with a to tell about"):
        found(distribution(columns=("a",), smallest_cell=60), SITES)
