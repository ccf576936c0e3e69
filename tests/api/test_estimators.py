"""Federated estimators are scikit-learn estimators, by scikit-learn's own checks."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

import wardround as wr


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(400, 3)) * [1, 10, 100] + [0, 5, -50]
    chance = 1 / (1 + np.exp(-(x[:, 0] - x[:, 1] / 10)))
    return x, (generator.random(400) < chance).astype(int), generator.choice(["A", "B", "C"], 400)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([wr.FederatedClassifier(rounds=20), wr.FederatedRegressor(rounds=20)])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def test_together_the_sites_learn_what_one_model_learns_from_all_rows(rows):
    x, y, sites = rows
    ours = wr.FederatedClassifier(algorithm=wr.fed_sgd(learning_rate=2.0), rounds=200).fit(x, y, sites=sites)
    scale = (x - x.mean(0)) / x.std(0)
    theirs = LogisticRegression(C=1e6).fit(scale, y)
    assert ours.sites_ == ["A", "B", "C"]
    assert np.abs(ours.predict_proba(x) - theirs.predict_proba(scale)).max() < 1e-3


def test_a_regression_in_its_own_units(rows):
    x, _, sites = rows
    y = 1000 + x @ [30.0, 2.0, 0.1]
    ours = wr.FederatedRegressor(algorithm=wr.fed_avg(learning_rate=0.1), rounds=60).fit(x, y, sites=sites)
    assert np.abs(ours.predict(x) - LinearRegression().fit(x, y).predict(x)).max() < 0.5


def test_a_personal_model_is_the_site_s_own(rows):
    x, y, sites = rows
    flipped = np.where(sites == "C", 1 - y, y)
    ours = wr.FederatedClassifier(algorithm=wr.local(learning_rate=0.5), rounds=40).fit(x, flipped, sites=sites)
    own, other = ours.predict_proba(x, sites="C")[:, 1], ours.predict_proba(x, sites="A")[:, 1]
    assert np.corrcoef(own, other)[0, 1] < -0.5
    with pytest.raises(ValueError, match="'D' is none of the sites"):
        ours.predict(x, sites="D")


@pytest.mark.slow
def test_pipelines_and_searches_route_the_sites(rows):
    x, y, sites = rows
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = wr.FederatedClassifier(rounds=5).set_fit_request(sites=True)
        chain = make_pipeline(PolynomialFeatures(2, include_bias=False), estimator)
        search = GridSearchCV(chain, {"federatedclassifier__rounds": [1, 5]}, cv=2)
        search.fit(x, y, sites=sites)
    assert search.best_estimator_[-1].sites_ == ["A", "B", "C"]
    assert clone(estimator).get_params()["rounds"] == 5
