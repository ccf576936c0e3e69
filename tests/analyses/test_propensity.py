import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from statsmodels.treatment.treatment_effects import TreatmentEffect

from tests.support.findings import found, patients, sites_of
from wardround.analyses.propensity import propensity
from wardround.core.errors import Refusal

FRAME = patients()
SITES = sites_of(FRAME)
ASKED = {"treatment": "treated", "outcome": "outcome", "covariates": ("age", "sex")}


def pooled():
    x = np.column_stack([np.ones(len(FRAME)), FRAME.age, FRAME.sex == "male"]).astype(float)
    return x, (FRAME.treated == "yes").to_numpy(float), FRAME.outcome.to_numpy()


def test_scores_and_effect_are_statsmodels_of_the_pooled_rows():
    x, t, y = pooled()
    scores = sm.Logit(t, x).fit(disp=0, tol=1e-12, method="newton")
    oracle = TreatmentEffect(sm.OLS(y, x), t, results_select=scores).ipw().summary_frame()
    told = found(propensity(**ASKED), SITES)["numbers"]
    np.testing.assert_allclose([told["intercept"], *told["coefficients"]], scores.params, rtol=1e-8)
    np.testing.assert_allclose(told["errors"], scores.bse[1:], rtol=1e-7)
    assert told["effect"] == pytest.approx(oracle.coef.iloc[0], rel=1e-7)
    assert told["error"] == pytest.approx(
        oracle["std err"].iloc[0], rel=1e-4
    )  # the oracle takes derivatives by differences


def test_the_standard_error_is_the_sandwich_of_the_equations():
    # The same equations written down plainly, their derivative by central differences at the solution.
    x, t, y = pooled()
    told = found(propensity(**ASKED), SITES)["numbers"]
    theta = np.array([told["intercept"], *told["coefficients"], told["treated_mean"], told["other_mean"]])

    def psi(at):
        e = 1 / (1 + np.exp(-x @ at[:3]))
        return np.column_stack([x * (t - e)[:, None], t * (y - at[3]) / e, (1 - t) * (y - at[4]) / (1 - e)])

    steps = 1e-6 * np.maximum(np.abs(theta), 1e-2)
    bread = np.array(
        [
            (psi(theta + np.eye(5)[i] * h).sum(axis=0) - psi(theta - np.eye(5)[i] * h).sum(axis=0)) / (2 * h)
            for i, h in enumerate(steps)
        ]
    ).T
    assert np.abs(psi(theta).sum(axis=0)).max() < 1e-6
    turned = np.linalg.inv(bread)
    covariance = turned @ (psi(theta).T @ psi(theta)) @ turned.T
    contrast = np.array([0, 0, 0, 1, -1.0])
    assert told["error"] == pytest.approx(np.sqrt(contrast @ covariance @ contrast), rel=1e-6)


def test_the_effect_that_was_put_in_is_found_and_the_groups_become_alike():
    report = found(propensity(**ASKED), SITES)
    told = report["numbers"]
    assert told["low"] < 3 < told["high"]
    assert abs(told["balance_before"][0]) > 0.4
    assert max(map(abs, told["balance_after"])) < 0.15
    assert "With treated, outcome is on average" in report["words"][0]


def test_weights_that_are_all_alike_leave_the_difference_of_means():
    # A covariate that is unrelated to the treatment in these very rows: coefficient 0, chances 1/2, plain means.
    frame = pd.DataFrame({"site": ["A", "B"] * 20, "x": [0.0, 0.0, 1.0, 1.0] * 10, "t": (["n"] * 4 + ["y"] * 4) * 5})
    frame["y"] = np.arange(40.0)
    told = found(propensity(treatment="t", outcome="y", covariates=("x",)), sites_of(frame))["numbers"]
    assert told["coefficients"] == pytest.approx([0])
    assert told["effect"] == pytest.approx(frame.y[frame.t == "y"].mean() - frame.y[frame.t == "n"].mean())


def test_an_outcome_of_words_is_a_share():
    told = found(propensity(**{**ASKED, "outcome": "died"}), SITES)["numbers"]
    assert 0 < told["other_mean"] < 1


def test_what_cannot_be_computed_is_refused():
    sites = sites_of(FRAME.assign(k=1.0, twice=2 * FRAME.age, decides=(FRAME.treated == "yes") * 1.0))
    for changed, words in (
        ({"treatment": "ward"}, "'ward' has 3 categories, so which"),
        ({"treatment": "age", "covariates": ("sex",)}, "'age' has values other than 0 and 1"),
        ({"covariates": ()}, "There are no covariates"),
        ({"covariates": ("age", "k")}, "K do not vary"),
        ({"covariates": ("age", "twice")}, "The covariates twice follow from the others"),
        ({"covariates": ("decides",)}, "perfect separation"),
        ({"covariates": ("age", "age")}, "'age' is named twice"),
    ):
        with pytest.raises(Refusal, match=words):
            found(propensity(**{**ASKED, **changed}), sites)
