import math
import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.meta_analysis import combine_effects

from tests.support.findings import found, patients, sites_of
from wardround.analyses.meta_analysis import meta_analysis
from wardround.core.errors import Refusal

with warnings.catch_warnings(action="ignore"):  # it leaves a file open when it is imported
    from pymare import Dataset
    from pymare.estimators import DerSimonianLaird, VarianceBasedLikelihoodEstimator

FRAME = patients()
SITES = sites_of(FRAME)
# Effects and standard errors of seven trials: enough spread that tau2 is far from 0.
TRIALS = (
    ("A", 0.10, 0.12),
    ("B", 0.62, 0.20),
    ("C", -0.05, 0.15),
    ("D", 0.48, 0.09),
    ("E", 0.91, 0.30),
    ("F", 0.33, 0.11),
    ("G", -0.21, 0.25),
)
Y, V = np.array([one[1] for one in TRIALS]), np.array([one[2] for one in TRIALS]) ** 2


def published(**more):
    return found(meta_analysis(measure="published", published=TRIALS, **more), SITES)


@pytest.mark.parametrize("adjust", [True, False])
@pytest.mark.parametrize("method", ["dl", "reml"])
def test_random_effects_are_py_mares(method, adjust):
    correction = "knapp-hartung" if adjust else "wald"
    makes = {"dl": DerSimonianLaird, "reml": lambda **more: VarianceBasedLikelihoodEstimator(method="REML", **more)}
    oracle = makes[method](small_sample_correction=correction)
    summary = oracle.fit_dataset(Dataset(y=Y[:, None], v=V[:, None])).summary()
    fixed = {key: float(np.squeeze(value)) for key, value in summary.get_fe_stats().items()}
    told = published(tau2=method, hartung_knapp=adjust)["numbers"]
    assert told["heterogeneity"]["tau2"] == pytest.approx(float(np.squeeze(summary.tau2)), abs=1e-6)
    assert told["random"]["effect"] == pytest.approx(fixed["est"], abs=1e-6)
    assert told["random"]["error"] == pytest.approx(fixed["se"], abs=1e-6)
    assert (told["random"]["low"], told["random"]["high"]) == pytest.approx((fixed["ci_l"], fixed["ci_u"]), abs=1e-6)
    assert told["random"]["p"] == pytest.approx(fixed["p"], abs=1e-6)


def test_paule_and_mandel_is_statsmodels_iterated():
    told = published(tau2="pm")["numbers"]["heterogeneity"]["tau2"]
    assert told == pytest.approx(combine_effects(Y, V, method_re="iterated", atol=1e-10).tau2, abs=1e-6)


def test_the_interval_of_tau2_is_py_mares_by_the_q_profile():
    told = published(tau2="dl")["numbers"]["heterogeneity"]
    oracle = DerSimonianLaird().fit_dataset(Dataset(y=Y[:, None], v=V[:, None])).summary().get_re_stats(method="QP")
    assert told["tau2_low"] == pytest.approx(float(np.squeeze(oracle["ci_l"])), abs=1e-5)
    assert told["tau2_high"] == pytest.approx(float(np.squeeze(oracle["ci_u"])), abs=1e-5)


def test_two_estimates_by_hand():
    # Effects 0 and 2 with variances 1 and 1. Fixed: 1, variance 1/2. Q = 1 + 1 = 2 on 1 degree of freedom.
    # DL: tau2 = (2 - 1) / (2 - 2 / 2) = 1; I2 = (2 - 1) / 2 = 1/2. Random: weights 1/2 each, mean 1, variance 1.
    # Hartung-Knapp: q = sum w (y - 1)^2 / 1 = 1/2 + 1/2 = 1, so the error stays 1, with t on 1 degree: 12.7062 wide.
    two = (("one", 0.0, 1.0), ("two", 2.0, 1.0))
    told = found(meta_analysis(measure="published", published=two, tau2="dl"), SITES)["numbers"]
    assert told["fixed"]["effect"] == pytest.approx(1)
    assert told["fixed"]["error"] == pytest.approx(math.sqrt(0.5))
    assert told["heterogeneity"]["q"] == pytest.approx(2)
    assert told["heterogeneity"]["tau2"] == pytest.approx(1)
    assert told["heterogeneity"]["i2"] == pytest.approx(0.5)
    assert told["random"]["error"] == pytest.approx(1)
    assert told["random"]["high"] == pytest.approx(1 + 12.706205, abs=1e-5)
    assert told["prediction"] is None


def test_the_prediction_interval_by_hand():
    # Three estimates -1, 0, 1 of variance 1/2. Q = 4 on 2 degrees. DL: tau2 = (4 - 2) / (6 - 12 / 6) = 1/2.
    # Random: weights 1 each, error 1/sqrt(3); a new site: t on 1 degree 12.7062 * sqrt(1/2 + 1/3) = 11.5991.
    three = tuple((name, effect, math.sqrt(0.5)) for name, effect in (("a", -1.0), ("b", 0.0), ("c", 1.0)))
    told = found(meta_analysis(measure="published", published=three, tau2="dl", hartung_knapp=False), SITES)["numbers"]
    assert told["heterogeneity"]["tau2"] == pytest.approx(0.5)
    assert told["random"]["error"] == pytest.approx(1 / math.sqrt(3))
    assert told["prediction"][1] == pytest.approx(11.5991, abs=1e-4)


def test_eggers_intercept_is_that_of_the_regression():
    told = published()["numbers"]["egger"]
    line = sm.OLS(Y / np.sqrt(V), sm.add_constant(1 / np.sqrt(V))).fit()
    assert told["intercept"] == pytest.approx(line.params[0])
    assert told["p"] == pytest.approx(line.pvalues[0])


def test_an_odds_ratio_by_hand_and_the_site_that_has_none():
    told = found(meta_analysis(measure="odds_ratio", outcome="died", exposure="treated"), SITES)
    by_name = {one["name"]: one for one in told["numbers"]["estimates"]}
    north = FRAME[FRAME.site == "north"]
    (a, b), (c, d) = [[((north.treated == t) & (north.died == y)).sum() for y in ("yes", "no")] for t in ("yes", "no")]
    assert by_name["north"]["effect"] == pytest.approx(math.log(a * d / (b * c)))
    assert by_name["north"]["variance"] == pytest.approx(1 / a + 1 / b + 1 / c + 1 / d)
    assert by_name["west"]["effect"] is None  # one patient
    assert any("No estimate from west" in words for words in told["words"])
    forest, funnel = told["charts"]
    assert [row["name"] for row in forest["series"]] == ["north", "south", "east", "random effects", "fixed effect"]
    assert sum(row["weight"] for row in forest["series"][:3]) == pytest.approx(1)
    assert len(funnel["series"]) == 4  # three sites, and the middle


def test_a_zero_cell_is_corrected_and_said():
    # Exposed 3 of 8 with the event, others 0 of 6: corrected (3.5 * 6.5) / (5.5 * 0.5) = 8.2727.
    frame = FRAME.iloc[:14].assign(site="small", treated=["yes"] * 8 + ["no"] * 6, died=["yes"] * 3 + ["no"] * 11)
    told = found(meta_analysis(measure="odds_ratio", outcome="died", exposure="treated"), sites_of(frame))
    assert math.exp(told["numbers"]["estimates"][0]["effect"]) == pytest.approx(8.272727, abs=1e-6)
    assert any("At small a cell of the table is 0, so 0.5 was added to all four." in words for words in told["words"])


def test_a_small_cell_is_not_told():
    told = found(meta_analysis(measure="odds_ratio", outcome="died", exposure="treated", smallest_cell=10), SITES)[
        "numbers"
    ]
    for name in ("north", "south", "west", "east"):
        own = FRAME[FRAME.site == name]
        cells = own.groupby(["treated", "died"]).size()
        is_told = next(one for one in told["estimates"] if one["name"] == name)["effect"] is not None
        assert is_told == (len(cells) == 4 and cells.min() >= 10), name


@pytest.mark.parametrize("measure", ["adjusted_odds_ratio", "adjusted_difference"])
def test_an_adjusted_estimate_is_that_of_the_site_s_own_regression(measure):
    outcome = "died" if measure == "adjusted_odds_ratio" else "outcome"
    told = found(meta_analysis(measure=measure, outcome=outcome, exposure="treated", covariates=("age", "sex")), SITES)[
        "numbers"
    ]["estimates"]
    own = FRAME[FRAME.site == "east"]
    x = np.column_stack([np.ones(len(own)), own.treated == "yes", own.age, own.sex == "male"]).astype(float)
    if outcome == "died":
        oracle = sm.GLM((own.died == "yes").astype(float), x, family=sm.families.Binomial()).fit(tol=1e-12)
    else:
        oracle = sm.OLS(own.outcome, x).fit()
    mine = next(one for one in told if one["name"] == "east")
    assert mine["effect"] == pytest.approx(oracle.params.iloc[1], abs=1e-8)
    assert mine["variance"] == pytest.approx(oracle.bse.iloc[1] ** 2, rel=1e-6)


def test_the_other_measures_by_hand():
    own = FRAME[FRAME.site == "north"]
    one, other = own.outcome[own.treated == "yes"], own.outcome[own.treated == "no"]

    def at_north(measure, **more):
        told = found(meta_analysis(measure=measure, outcome="outcome", **more), SITES)["numbers"]["estimates"]
        return next((one["effect"], one["variance"]) for one in told if one["name"] == "north")

    assert at_north("mean") == pytest.approx((own.outcome.mean(), own.outcome.var() / len(own)))
    assert at_north("mean_difference", exposure="treated") == pytest.approx(
        (one.mean() - other.mean(), one.var() / len(one) + other.var() / len(other))
    )
    r = np.corrcoef(own.age, own.outcome)[0, 1]
    assert at_north("correlation", exposure="age") == pytest.approx((math.atanh(r), 1 / (len(own) - 3)))


def test_what_cannot_be_computed_is_refused():
    for settings, words in (
        ({"measure": "odds_ratio", "outcome": "died"}, "The measure odds_ratio needs an exposure"),
        ({"measure": "mean"}, "The measure mean needs an outcome"),
        ({"measure": "mean", "outcome": "died"}, "'died' holds words, and numbers are needed"),
        ({"measure": "odds_ratio", "outcome": "died", "exposure": "ward"}, "'ward' has 3 categories, so which"),
        ({"measure": "published"}, "There is nothing to put together"),
        ({"measure": "published", "published": (("A", 0.1),)}, "is no published estimate"),
        ({"measure": "published", "published": (("A", 0.1, 0.0),)}, "is no published estimate"),
        (
            {"measure": "odds_ratio", "outcome": "died", "exposure": "treated", "covariates": ("age",)},
            "The measure odds_ratio takes no covariates",
        ),
    ):
        with pytest.raises(Refusal, match=words):
            found(meta_analysis(**settings), SITES)
    with pytest.raises(Refusal, match="No site could estimate the effect"):
        found(meta_analysis(measure="mean", outcome="outcome", smallest_cell=100), SITES)
