"""A regression by sums is the regression on all rows in one place, whatever the family; bad input is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.linear_model import ElasticNet

from tests.support.analyses.patients import answer_of, patients
from wardround.analyses.glm import glm
from wardround.core.errors import Refusal
from wardround.statistics.regression.design import natural_spline

FORMULA = "{} ~ age + dose * sex + ward"
FRAMES = patients()
POOLED = pd.concat(FRAMES.values(), ignore_index=True)
FAMILIES = {
    "gaussian": ("score", sm.families.Gaussian()),
    "binomial": ("death", sm.families.Binomial()),
    "poisson": ("falls", sm.families.Poisson()),
    "gamma": ("cost", sm.families.Gamma(sm.families.links.Log())),
    "negative_binomial": ("visits", sm.families.NegativeBinomial(alpha=0.7)),
}
NAMES = {
    "Intercept": "(intercept)",
    "sex[T.m]": "sex=m",
    "ward[T.low]": "ward=low",
    "ward[T.mid]": "ward=mid",
    "dose:sex[T.m]": "dose:sex=m",
}


def pooled(formula, family, frame=POOLED, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return smf.glm(formula, frame.dropna(subset=["dose", "ward"]), family=family, **more).fit(
            tol=1e-14, maxiter=200
        )


def named(series):
    return {NAMES.get(name, name): value for name, value in series.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_pooled_fit(family):
    outcome, theirs = FAMILIES[family]
    alpha = {"alpha": 0.7} if family == "negative_binomial" else {}
    found = answer_of(glm(formula=FORMULA.format(outcome), family=family, **alpha), FRAMES)["numbers"]
    fit = pooled(FORMULA.format(outcome), theirs)
    expected = named(fit.params)
    assert found["coefficients"] == pytest.approx({key: expected[key] for key in found["coefficients"]}, rel=1e-8)
    errors = named(fit.bse)
    assert found["errors"] == pytest.approx({key: errors[key] for key in found["errors"]}, rel=1e-8)
    assert found["deviance"] == pytest.approx(fit.deviance, rel=1e-10)
    assert found["dispersion"] == pytest.approx(fit.scale, rel=1e-10)
    assert (found["rows"], found["df"]) == (fit.nobs, fit.df_resid)
    if family in ("binomial", "poisson", "negative_binomial"):
        assert found["loglik"] == pytest.approx(fit.llf, rel=1e-10)
        assert found["null_deviance"] == pytest.approx(fit.null_deviance, rel=1e-10)


@pytest.mark.parametrize(
    ("family", "link", "theirs"),
    [
        ("binomial", "probit", sm.families.Binomial(sm.families.links.Probit())),
        ("binomial", "cloglog", sm.families.Binomial(sm.families.links.CLogLog())),
        ("gamma", "inverse", sm.families.Gamma(sm.families.links.InversePower())),
    ],
)
def test_other_links(family, link, theirs):
    formula = f"{FAMILIES[family][0]} ~ age + sex + dose + ward"
    found = answer_of(glm(formula=formula, family=family, link=link), FRAMES)["numbers"]
    fit = pooled(formula, theirs)
    assert found["coefficients"] == pytest.approx({k: named(fit.params)[k] for k in found["coefficients"]}, rel=1e-7)


def test_offset_and_weights():
    formula = "falls ~ age + sex + offset(log_days)"
    found = answer_of(glm(formula=formula, family="poisson", weights="share"), FRAMES)["numbers"]
    fit = smf.glm(
        "falls ~ age + sex",
        POOLED,
        family=sm.families.Poisson(),
        offset=POOLED["log_days"],
        var_weights=POOLED["share"],
    ).fit(tol=1e-14)
    assert found["coefficients"] == pytest.approx({k: named(fit.params)[k] for k in found["coefficients"]}, rel=1e-8)
    assert found["errors"] == pytest.approx({k: named(fit.bse)[k] for k in found["errors"]}, rel=1e-8)


def test_robust_errors_clustered_by_site():
    frame = POOLED.assign(site=np.repeat(range(3), [len(one) for one in FRAMES.values()]))
    found = answer_of(glm(formula="death ~ age + sex", family="binomial", robust=True), FRAMES)["numbers"]
    fit = smf.glm("death ~ age + sex", frame, family=sm.families.Binomial()).fit(
        tol=1e-14, cov_type="cluster", cov_kwds={"groups": frame["site"]}
    )
    assert found["errors"] == pytest.approx({k: named(fit.bse)[k] for k in found["errors"]}, rel=1e-8)


def test_likelihood_ratio_and_wald_tests():
    found = answer_of(glm(formula="death ~ age + sex + ward", family="binomial", likelihood_ratio=True), FRAMES)[
        "numbers"
    ]
    kept = POOLED.dropna(subset=["ward"])
    full, without = (
        smf.glm(f, kept, family=sm.families.Binomial()).fit(tol=1e-14)
        for f in ("death ~ age + sex + ward", "death ~ age + sex")
    )
    assert found["likelihood_ratio"]["ward"]["statistic"] == pytest.approx(2 * (full.llf - without.llf), rel=1e-8)
    assert found["likelihood_ratio"]["ward"]["df"] == 2
    wald = full.wald_test_terms(scalar=True).table.loc["ward"]
    assert found["wald"]["ward"]["statistic"] == pytest.approx(wald["statistic"], rel=1e-8)
    assert found["wald"]["ward"]["p_value"] == pytest.approx(wald["pvalue"], rel=1e-6)


def test_the_dispersion_of_a_negative_binomial_is_found():
    found = answer_of(glm(formula="visits ~ age + sex", family="negative_binomial"), FRAMES)["numbers"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = smf.negativebinomial("visits ~ age + sex", POOLED).fit(disp=0, method="newton", maxiter=200, gtol=1e-12)
    assert found["alpha"] == pytest.approx(fit.params["alpha"], rel=1e-6)
    assert found["coefficients"]["age"] == pytest.approx(fit.params["age"], rel=1e-6)
    assert found["loglik"] == pytest.approx(fit.llf, rel=1e-10)


def test_a_spline_takes_one_exchange_more_and_fits_a_bend():
    bent = {name: one.assign(score=np.sin(one["age"] / 8)) for name, one in FRAMES.items()}
    found, straight = (answer_of(glm(formula=f"score ~ {x}"), bent) for x in ("spline(age, 6)", "age"))
    assert found["exchanges"] == straight["exchanges"] + 1
    assert found["numbers"]["deviance"] < 0.5 * straight["numbers"]["deviance"]
    knots = np.array(found["numbers"]["knots"]["age"])
    pool = pd.concat(bent.values())
    x = np.column_stack([np.ones(len(pool)), natural_spline(pool["age"].to_numpy(), knots)])
    fit = sm.OLS(pool["score"].to_numpy(), x).fit()
    assert list(found["numbers"]["coefficients"].values()) == pytest.approx(fit.params, rel=1e-8)


def test_an_elastic_net_is_that_of_pooled_rows():
    # Ours penalises columns scaled to a deviation of 1, as scikit-learn does when it is given such columns.
    found = answer_of(
        glm(formula="score ~ age + days + share", penalty="elastic_net", strength=0.05, mixing=0.4), FRAMES
    )
    x = POOLED[["age", "days", "share"]]
    scale = x.std(ddof=0)
    fit = ElasticNet(alpha=0.05, l1_ratio=0.4, tol=1e-14, max_iter=100_000).fit((x - x.mean()) / scale, POOLED["score"])
    expected = dict(zip(x.columns, fit.coef_ / scale, strict=True))
    assert {k: found["numbers"]["coefficients"][k] for k in expected} == pytest.approx(expected, rel=1e-7, abs=1e-10)


def test_a_ridge_has_an_answer_where_the_outcome_is_separated():
    frames = {name: one.assign(death=(one["age"] > 60).astype(float)) for name, one in FRAMES.items()}
    with pytest.raises(Refusal, match="separated perfectly: from age it is known"):
        answer_of(glm(formula="death ~ age + sex", family="binomial"), frames)
    found = answer_of(glm(formula="death ~ age + sex", family="binomial", penalty="ridge", strength=0.1), frames)
    assert 0 < found["numbers"]["coefficients"]["age"] < 5


def test_the_strength_of_a_lasso_is_found_by_held_out_deviance():
    noise = {name: one.assign(junk=np.random.default_rng(7).normal(size=len(one))) for name, one in FRAMES.items()}
    found = answer_of(glm(formula="death ~ age + sex + junk + days", family="binomial", penalty="lasso"), noise)
    tried = next(one for one in found["tables"] if one["name"] == "strengths")["rows"]
    best = min(tried, key=lambda row: row[1])
    assert found["numbers"]["strength"] == best[0]
    assert abs(found["numbers"]["coefficients"]["junk"]) < 0.05 < found["numbers"]["coefficients"]["sex=m"]


def test_each_site_has_its_own_fit_and_they_are_compared():
    found = answer_of(glm(formula="death ~ age + sex", family="binomial", by_site=True, per=("age = 10",)), FRAMES)
    numbers = found["numbers"]
    estimates = []
    for name, frame in FRAMES.items():
        fit = smf.glm("death ~ age + sex", frame, family=sm.families.Binomial()).fit(tol=1e-14)
        own = numbers["sites"][name]
        assert own["coefficients"]["age"] == pytest.approx(fit.params["age"], rel=1e-8)
        assert own["errors"]["age"] == pytest.approx(fit.bse["age"], rel=1e-8)
        estimates.append((fit.params["age"], fit.bse["age"]))
    # DerSimonian and Laird by hand.
    value, weight = np.array([one for one, _ in estimates]), np.array([error**-2 for _, error in estimates])
    q = weight @ (value - weight @ value / weight.sum()) ** 2
    tau2 = max(0.0, (q - 2) / (weight.sum() - (weight @ weight) / weight.sum()))
    told = numbers["heterogeneity"]["age"]
    assert (told["q"], told["tau2"], told["i2"]) == pytest.approx((q, tau2, max(0.0, 1 - 2 / q)))
    assert any("in the effect of age: I2 =" in one for one in found["words"])
    assert {one["kind"] for one in found["charts"]} == {"forest"}


def test_effects_are_told_as_a_clinician_reads_them():
    words = answer_of(glm(formula="death ~ age + sex", family="binomial", per=("age = 10",)), FRAMES)["words"]
    assert words[0].startswith("Per 10 of age the odds of death rise by ")
    assert "(95 % interval" in words[0]
    assert words[1].startswith("With sex = m, compared with f, the odds of death are ")
    assert "From 600 complete rows; 0 rows with a missing value were left out." in words[2]


def test_an_outcome_in_words_and_a_reference_level():
    frames = {name: one.assign(died=np.where(one["death"] > 0, "yes", "no")) for name, one in FRAMES.items()}
    found = answer_of(glm(formula='died ~ age + category(ward, "low")', family="binomial"), frames)["numbers"]
    fit = smf.glm(
        'death ~ age + C(ward, Treatment("low"))', POOLED.dropna(subset=["ward"]), family=sm.families.Binomial()
    ).fit(tol=1e-14)
    assert list(found["coefficients"].values()) == pytest.approx(
        [fit.params["Intercept"], fit.params["age"], *fit.params.filter(like="ward")],
        rel=1e-8,
    )


def test_collinear_columns_are_named():
    frames = {name: one.assign(months=one["days"] / 30, twice=one["days"] * 2) for name, one in FRAMES.items()}
    with pytest.raises(Refusal, match="collinear, so that one follows from the others: days, twice"):
        answer_of(glm(formula="score ~ age + days + twice"), frames)


@pytest.mark.parametrize(
    ("settings", "change", "match"),
    [
        ({"formula": "score ~ agee"}, {}, "column 'agee' is missing; did you mean 'age'"),
        ({"formula": "score ~ age + flat"}, {"flat": 3.0}, "the column flat has the same value for all patients"),
        ({"formula": "death ~ age", "family": "binomial"}, {"death": 1.0}, "is the same for all patients"),
        ({"formula": "falls ~ age", "family": "poisson"}, {"falls": -1.0}, "values that a poisson regression cannot"),
        ({"formula": "score ~ age", "family": "gamma"}, {"score": 0.0}, "it needs numbers above 0"),
        ({"formula": "ward ~ age"}, {}, "the outcome 'ward' holds the words icu, low, mid"),
        ({"formula": "score ~ log(sex)"}, {}, "log\\(sex\\) needs numbers"),
        ({"formula": "score ~ category(age)"}, {}, "needs words, and the column holds numbers"),
        ({"formula": 'score ~ category(ward, "attic")'}, {}, "the reference level 'attic' is no value of 'ward'"),
        ({"formula": "score ~ age * ward", "most_parameters": 3}, {}, "6 coefficients, and 3 are allowed"),
        ({"formula": "score ~ age", "per": ("dose = 1",)}, {}, "does not say in what unit"),
    ],
)
def test_bad_input_is_refused_in_one_paragraph(settings, change, match):
    frames = {name: one.assign(**change) for name, one in FRAMES.items()}
    with pytest.raises(Refusal, match=f"(?i){match}"):
        answer_of(glm(**settings), frames)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"family": "poisson", "alpha": 1.0}, "alpha belongs to the family negative_binomial"),
        ({"family": "poisson", "link": "logit"}, "the link logit does not go with the family poisson"),
        ({"strength": 1.0}, "a strength needs a penalty"),
        ({"penalty": "lasso", "robust": True}, "has no standard errors"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, match):
    with pytest.raises(Refusal, match=f"(?i){match}"):
        glm(formula="score ~ age", **settings)
