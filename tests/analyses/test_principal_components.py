import numpy as np
import pytest
from sklearn.decomposition import PCA

from tests.support.findings import found, patients, sites_of
from wardround.analyses.principal_components import principal_components
from wardround.core.errors import Refusal
from wardround.statistics.multivariate.components import scores

FRAME = patients()
SITES = sites_of(FRAME)
COLUMNS = ("a", "b", "c", "outcome")


def pooled_rows(covariates: bool) -> np.ndarray:
    """Standardized over all rows in one place, and what the covariates do not explain of them."""
    y = FRAME[list(COLUMNS)].to_numpy()
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    if not covariates:
        return y
    z = np.column_stack([np.ones(len(y)), FRAME.age, FRAME.sex == "male"]).astype(float)
    return y - z @ np.linalg.lstsq(z, y, rcond=None)[0]


@pytest.mark.parametrize("covariates", [(), ("age", "sex")])
def test_it_is_scikit_learns_of_the_pooled_rows(covariates):
    oracle = PCA().fit(pooled_rows(bool(covariates)))
    told = found(principal_components(columns=COLUMNS, covariates=covariates), SITES)["numbers"]
    np.testing.assert_allclose(told["loadings"], oracle.components_, atol=1e-9)
    np.testing.assert_allclose(told["variances"], oracle.explained_variance_, atol=1e-9)
    np.testing.assert_allclose(told["shares"], oracle.explained_variance_ratio_, atol=1e-9)


def test_sites_that_agree_by_admm_find_what_least_squares_finds():
    closed, admm = (
        found(principal_components(columns=COLUMNS, covariates=("age", "sex"), correction=how), SITES)["numbers"]
        for how in ("closed", "admm")
    )
    assert closed["rounds_of_agreement"] == 0
    assert admm["rounds_of_agreement"] > 5
    np.testing.assert_allclose(admm["coefficients"], closed["coefficients"], atol=1e-8)
    np.testing.assert_allclose(admm["loadings"], closed["loadings"], atol=1e-8)
    np.testing.assert_allclose(admm["variances"], closed["variances"], atol=1e-8)


def test_of_all_its_own_components_a_site_tells_its_covariance_and_of_fewer_less():
    told = {
        amount: found(principal_components(columns=COLUMNS, local_components=amount), SITES)["numbers"]
        for amount in (0, 4, 2)
    }
    np.testing.assert_allclose(told[4]["variances"], told[0]["variances"], atol=1e-9)
    assert sum(told[2]["variances"]) < sum(told[0]["variances"])


def test_scores_computed_at_a_site_are_those_of_the_pooled_rows():
    told = found(principal_components(columns=COLUMNS), SITES)["numbers"]
    site = SITES[1].table[list(COLUMNS)].to_numpy()
    own = scores(np.array(told["loadings"]), np.array(told["mean"]), np.array(told["sd"]), site)
    oracle = PCA().fit(pooled_rows(False)).transform(pooled_rows(False))
    np.testing.assert_allclose(own, oracle[(FRAME.site == "south").to_numpy()], atol=1e-9)


def test_a_site_that_may_not_tell_is_left_out_and_said():
    report = found(principal_components(columns=COLUMNS, smallest_cell=10), SITES)
    assert report["numbers"]["patients"] == 185  # 60 + 45 + 80, without the one patient of west
    assert any("3 of 4 sites are counted" in words for words in report["words"])


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(Refusal, match="The column 'a' is named twice"):
        found(principal_components(columns=("a", "a")), SITES)
    with pytest.raises(Refusal, match="There is no column 'aa'"):
        found(principal_components(columns=("a", "aa")), SITES)
    with pytest.raises(Refusal, match="'sex' holds words, and numbers are needed"):
        found(principal_components(columns=("a", "sex")), SITES)
    constant = sites_of(FRAME.assign(k=4.0, twice=2 * FRAME.age))
    with pytest.raises(Refusal, match="The columns k do not vary"):
        found(principal_components(columns=("a", "k")), constant)
    with pytest.raises(Refusal, match="The covariates twice follow from the others"):
        found(principal_components(columns=("a", "b"), covariates=("age", "twice")), constant)
    with pytest.raises(Refusal, match="No site has enough complete rows"):
        found(principal_components(columns=("a", "b"), smallest_cell=500), SITES)
