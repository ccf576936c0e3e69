"""Cox regression over sites equals the fit of all rows in one place, and says in words what it found."""

import numpy as np
import pandas as pd
import pytest

from tests.support.answers import numbers_of
from tests.support.survival.sites import agreed_on, found, made_patients, real_table, sites_of
from wardround.analyses.survival.cox import TERMS, cox
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.engine.registry import find

STUDY = {"time": "time", "event": "event", "columns": ("age", "ill")}
WITH_STAGE = {**STUDY, "columns": ("age", "ill", "stage")}


def pooled_fit(rows, columns, *, strata=None, ties="efron"):
    phreg = pytest.importorskip("statsmodels.duration.api").PHReg
    model = phreg(rows["time"], rows[list(columns)].astype(float), rows["event"], strata=strata, ties=ties)
    return model.fit()


def with_dummies(rows):
    return rows.assign(**{f"stage={level}": (rows["stage"] == level) * 1 for level in ("II", "III")})


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_within_sites_it_is_the_stratified_fit_of_all_rows(ties):
    rows = with_dummies(made_patients())
    numbers = found(cox(**WITH_STAGE, ties=ties), rows)["numbers"]
    assert numbers["columns"] == ["age", "ill", "stage=II", "stage=III"]
    other = pooled_fit(rows, numbers["columns"], strata=rows["site"], ties=ties)
    np.testing.assert_allclose(numbers["coefficients"], other.params, atol=1e-8)
    np.testing.assert_allclose(numbers["standard_errors"], other.bse, atol=1e-8)
    np.testing.assert_allclose(numbers["log_likelihood"], other.llf, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way
def test_lifelines_agrees_about_strata_penalty_tests_and_robust_errors():
    lifelines = pytest.importorskip("lifelines")
    rows = made_patients(rounded=False)
    table = rows[["time", "event", "age", "ill", "site"]]
    exactly = {"fit_options": {"precision": 1e-11}}
    fitted = lifelines.CoxPHFitter().fit(table, "time", "event", strata=["site"], **exactly)
    numbers = found(cox(**STUDY), rows)["numbers"]
    np.testing.assert_allclose(numbers["coefficients"], fitted.params_, atol=1e-6)
    ratio = fitted.log_likelihood_ratio_test()
    np.testing.assert_allclose(numbers["tests"]["likelihood_ratio"]["statistic"], ratio.test_statistic, rtol=1e-6)
    ridge = lifelines.CoxPHFitter(penalizer=0.1).fit(table, "time", "event", strata=["site"], **exactly)
    # lifelines scales by n - 1, we by n, so that penalties differ by 1 / 240.
    numbers = found(cox(**STUDY, penalty=0.1), rows)["numbers"]
    np.testing.assert_allclose(numbers["coefficients"], ridge.params_, rtol=2e-3)
    assert abs(numbers["coefficients"][1]) < abs(fitted.params_["ill"])
    one_site = rows.assign(site="A")
    robust = lifelines.CoxPHFitter().fit(table.drop(columns="site"), "time", "event", robust=True, **exactly)
    numbers = found(cox(**STUDY, robust=True), one_site)["numbers"]
    np.testing.assert_allclose(numbers["standard_errors"], robust.standard_errors_, rtol=1e-5)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_across_sites_with_every_day_an_interval_it_is_the_fit_of_all_rows(ties):
    rows = made_patients()
    numbers = found(cox(**STUDY, by_site=False, bins=2000, ties=ties), rows)["numbers"]
    other = pooled_fit(rows, STUDY["columns"], ties=ties)
    np.testing.assert_allclose(numbers["coefficients"], other.params, atol=1e-8)
    np.testing.assert_allclose(numbers["standard_errors"], other.bse, atol=1e-8)


def test_across_sites_the_error_of_the_intervals_is_told():
    rows = made_patients(rounded=False)
    report = found(cox(**STUDY, by_site=False, bins=40), rows)
    other = pooled_fit(rows, STUDY["columns"])
    off = np.abs(np.array(report["numbers"]["coefficients"]) - other.params) / other.bse
    told = max(report["numbers"]["rounding"]["in_standard_errors"])
    assert 0 < off.max() < told < 1
    assert any("which moves the effect of" in one for one in report["words"])


def test_a_formula_has_products_and_functions():
    rows = made_patients()
    rows = rows.assign(**{"ill:age": rows["ill"] * rows["age"], "log(age)": np.log(rows["age"])})
    numbers = found(cox(time="time", event="event", formula="ill * age + log(age)"), rows)["numbers"]
    assert sorted(numbers["columns"]) == ["age", "ill", "ill:age", "log(age)"]
    other = pooled_fit(rows, numbers["columns"], strata=rows["site"])
    np.testing.assert_allclose(numbers["coefficients"], other.params, rtol=1e-6)
    study = {"time": "time", "event": "event"}
    same = found(cox(**study, formula='age + ill + category(stage, "III")', units=("age = 10 years",)), rows)
    plain = found(cox(**WITH_STAGE, references=("stage = III",)), rows)["numbers"]
    np.testing.assert_allclose(same["numbers"]["coefficients"], plain["coefficients"], rtol=1e-9)
    assert same["words"][0].startswith("Per 10 years of age the hazard rises by ")


def test_small_groups_and_single_patients_are_not_told_of():
    rows = made_patients()
    few = rows.assign(rare=0)
    few.loc[few.index[few["site"] == "B"][:3], "rare"] = 1
    few.loc[few.index[few["site"] == "A"][:20], "rare"] = 1
    study = {"time": "time", "event": "event", "columns": ("age", "rare"), "smallest_cell": 5}
    report = found(cox(**study), few)
    alone = found(cox(**study), few[few["site"] != "B"])
    np.testing.assert_allclose(report["numbers"]["coefficients"], alone["numbers"]["coefficients"])
    assert any("left out of the fit: 1" in one for one in report["words"])
    # Whoever sends coefficients under which one patient outweighs all others gets no answer.
    analysis, sites = cox(**STUDY, smallest_cell=5), sites_of(rows)
    agreed = agreed_on(rows, sites)
    state = analysis.begin(agreed)
    answers = [analysis.ask(agreed, analysis.message(state), site).arrays for site in sites]
    state = analysis.step(state, Message({name: sum(one[name] for one in answers) for name in answers[0]}))
    asked = analysis.message(state)
    loud = Message({**asked.arrays, "beta": np.array([40.0, 0.0])}, asked.meta)
    with pytest.raises(Refusal, match="fewer than 5 patients would make up the sums"):
        analysis.ask(agreed, loud, sites[0])


def test_strata_of_both_kinds():
    rows = made_patients()
    other = pooled_fit(rows, ["age", "ill"], strata=rows["stage"])
    numbers = found(cox(**STUDY, strata=("stage",), by_site=False, bins=2000), rows)["numbers"]
    np.testing.assert_allclose(numbers["coefficients"], other.params, atol=1e-8)
    other = pooled_fit(rows, ["age", "ill"], strata=rows["stage"] + rows["site"])
    numbers = found(cox(**STUDY, strata=("stage",)), rows)["numbers"]
    np.testing.assert_allclose(numbers["coefficients"], other.params, atol=1e-8)


def test_words_are_those_of_a_clinician():
    words = found(cox(**WITH_STAGE, units=("age = 10 years",), horizons=(365.0,), unit="days"), made_patients())[
        "words"
    ]
    assert words[0].startswith("Per 10 years of age the hazard rises by ")  # the clearest effect
    assert words[1].startswith("With ill (1 instead of 0) the hazard rises by ")
    assert sum(one.startswith("With stage II") and "compared with I, the hazard " in one for one in words) == 2
    assert any(one.startswith("A patient who is average in every column has a chance of ") for one in words)
    assert any("(C-index 0." in one for one in words)


def test_another_reference_turns_the_effect_round():
    rows = made_patients()
    one = found(cox(**WITH_STAGE), rows)["numbers"]
    two = found(cox(**WITH_STAGE, references=("stage=III",)), rows)["numbers"]
    third = one["columns"].index("stage=III")
    np.testing.assert_allclose(one["coefficients"][third], -two["coefficients"][two["columns"].index("stage=I")])


def test_sites_agree_or_not_from_sums_alone_and_site_by_site():
    rows = made_patients(rows=600)
    sums = found(cox(**STUDY), rows)["numbers"]["heterogeneity"]
    analysis = cox(**STUDY, site_by_site=True)
    assert not analysis.sums
    report = found(analysis, rows)
    assert report["numbers"]["heterogeneity"]["ill"] == pytest.approx(sums["ill"], rel=1e-9)
    own = next(table for table in report["tables"] if table["name"] == "by_site")["rows"]
    # Q by hand from each site's own fit.
    fits = {name: pooled_fit(part, ["age", "ill"]) for name, part in rows.groupby("site")}
    weights = np.array([1 / fit.bse[1] ** 2 for fit in fits.values()])
    effects = np.array([fit.params[1] for fit in fits.values()])
    q = weights @ (effects - weights @ effects / weights.sum()) ** 2
    np.testing.assert_allclose(sums["ill"]["q"], q, rtol=1e-6)
    ratios = {row[1]: row[2] for row in own if row[0] == "ill"}
    np.testing.assert_allclose([ratios[name] for name in fits], np.exp(effects), rtol=1e-6)
    chart = next(one for one in report["charts"] if one["name"] == "sites_ill")
    assert [bar["name"] for bar in chart["series"]] == ["A", "B", "C", "all sites"]


def test_an_effect_that_fades_is_found_by_the_check():
    rng = np.random.default_rng(1)
    rows = made_patients(rows=800, rounded=False)
    ill = rng.integers(0, 2, 800)
    # Where ill, all of the hazard comes early: a mixture with crossing curves.
    died = np.where(ill == 1, rng.weibull(0.5, 800) * 100, rng.weibull(2.0, 800) * 200)
    rows = rows.assign(ill=ill, time=np.minimum(died, 400.0) + 0.01, event=(died < 400).astype(int))
    for by_site in (True, False):
        report = found(cox(**STUDY, by_site=by_site), rows)
        assert report["numbers"]["proportional"]["ill"]["p_value"] < 1e-6
        assert report["numbers"]["proportional"]["age"]["p_value"] > 0.001
        assert any("change with time" in one and "ill (p < 0.001)" in one for one in report["words"])


@pytest.mark.filterwarnings("ignore")  # lifelines calls pandas in an old way
def test_the_baseline_predicts_as_lifelines_does():
    lifelines = pytest.importorskip("lifelines")
    rows = made_patients(rounded=False)
    table = rows[["time", "event", "age", "ill"]]
    fitted = lifelines.CoxPHFitter().fit(table, "time", "event")
    average = table.mean().to_frame().T
    other = fitted.predict_survival_function(average, times=[150.0]).to_numpy()[0, 0]
    told = found(cox(**STUDY, by_site=False, bins=1000, horizons=(150.0,)), rows)["numbers"]["baseline"]["horizons"]
    np.testing.assert_allclose(told[0]["survival"], other, atol=0.01)
    within = found(cox(**STUDY, horizons=(150.0,), bins=1000), rows.assign(site="A"))["numbers"]["baseline"]["horizons"]
    np.testing.assert_allclose(within[0]["survival"], other, atol=0.01)


def test_patients_held_out_are_judged_and_not_fitted():
    rows = made_patients()
    rows["part"] = np.where(np.arange(len(rows)) % 4 == 0, "test", "train")
    numbers = found(cox(**STUDY, hold_out="part = test"), rows)["numbers"]
    train = rows[rows["part"] == "train"]
    other = pooled_fit(train, ["age", "ill"], strata=train["site"])
    np.testing.assert_allclose(numbers["coefficients"], other.params, atol=1e-8)
    assert 0 < numbers["concordance"]["held_out"]["comparable"] < numbers["concordance"]["fitted"]["comparable"]
    assert 0.5 < numbers["concordance"]["held_out"]["c_index"] < 1


@pytest.mark.parametrize("by_site", [True, False])
def test_cells_leave_small_sites_out_and_answers_keep_their_shape(by_site):
    rows = made_patients()
    table = pd.concat([rows, rows.iloc[:4].assign(site="tiny")], ignore_index=True)
    sites = sites_of(table)
    agreed = agreed_on(table, sites)
    study = {**STUDY, "by_site": by_site, "smallest_cell": 10, "bins": 50, "horizons": (200.0,)}
    analysis = cox(**study)
    settings = {one.name: one.default for one in find("analysis", "cox").parameters} | study
    state = analysis.begin(agreed)
    while (asked := analysis.message(state)) is not None:
        answers = [analysis.ask(agreed, asked, site) for site in sites]
        assert len({str({k: np.shape(v) for k, v in one.arrays.items()}) for one in answers}) == 1
        assert numbers_of(answers[0]) <= TERMS.numbers(Extent(settings))
        if dict(asked.meta)["asked"] == "fit":
            assert all(not np.any(part) for part in answers[-1].arrays.values())
        total = {name: sum(one.arrays[name] for one in answers) for name in answers[0].arrays}
        state = analysis.step(state, type(asked)(total))
    report = analysis.report(state)
    assert any("left out of the fit: 1" in one for one in report["words"])
    exact = found(cox(**{**study, "smallest_cell": 1}), table[table["site"] != "tiny"])["numbers"]
    errors = exact["standard_errors"]
    off = np.abs(np.array(report["numbers"]["coefficients"]) - exact["coefficients"]) / errors
    # Exact within sites. Across sites, blocks of ten events out of thirty blur times and draw effects towards none.
    assert off.max() < (1e-6 if by_site else 1.2)
    assert by_site or any("draws effects towards none" in one for one in report["words"])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"columns": ()}, "neither columns nor a formula"),
        ({"formula": "age"}, "both columns and a formula"),
        ({"columns": (), "formula": "time ~ age"}, "has no left side"),
        ({"columns": (), "formula": "spline(age, 3)"}, "takes no spline"),
        ({"columns": (), "formula": "age + aeg"}, "'aeg' is"),
        ({"columns": (), "formula": "age +"}, "cannot be read"),
        ({"columns": ("time", "age")}, "cannot be columns"),
        ({"columns": ("aeg",)}, "did you mean 'age'"),
        ({"references": ("stage = IX",)}, "no level 'IX'"),
        ({"references": ("stage",)}, "not of the form COLUMN = VALUE"),
        ({"units": ("sex = 1",)}, "no column 'sex' in the model"),
        ({"strata": ("ill",)}, "holds numbers, where groups are needed"),
        ({"by_site": False, "robust": True}, "obust errors need risk sets within sites"),
        ({"times": (3.0, 1.0)}, "must ascend"),
        ({"hold_out": "part"}, "not of the form COLUMN = VALUE"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_anybody_is_asked(settings, match):
    rows = made_patients()
    agreed = agreed_on(rows, sites_of(rows))
    with pytest.raises(Refusal, match=match):
        cox(**{**WITH_STAGE, **settings}).begin(agreed)


def test_columns_without_a_difference_or_with_the_same_are_named():
    rows = made_patients().assign(one=1.0)
    with pytest.raises(Refusal, match="same value for all patients: one"):
        found(cox(time="time", event="event", columns=("age", "one")), rows)
    rows = rows.assign(months=rows["age"] * 12)
    with pytest.raises(Refusal, match=r"age, months.*penalty = 0.01"):
        found(cox(time="time", event="event", columns=("age", "ill", "months")), rows)
    assert found(cox(time="time", event="event", columns=("age", "months"), penalty=0.01), rows)


def test_a_column_that_separates_is_refused_with_a_penalty_offered():
    rows = made_patients()
    # Only marked patients ever have the event: the hazard of the others is none.
    rows = rows.assign(mark=rows["event"], time=np.where(rows["event"] == 1, 10.0 + rows.index % 7, 400.0))
    with pytest.raises(Refusal, match=r"effect of mark has no end.*penalty"):
        found(cox(time="time", event="event", columns=("mark",)), rows)


def test_the_published_cox_of_lung_by_institution():
    # R: coxph(Surv(time, status) ~ age + sex + ph.ecog, lung): 0.011067, -0.552612, 0.463728.
    lung = real_table("multicentre_small/lung.csv")
    lung = lung.assign(inst=lung["inst"].fillna(0))
    study = {"time": "time", "event": "status", "event_is": "2", "columns": ("age", "sex", "ph.ecog")}
    report = found(cox(**study, by_site=False, bins=2500), lung, "inst")
    np.testing.assert_allclose(report["numbers"]["coefficients"], [0.011067, -0.552612, 0.463728], atol=2e-6)
    assert any(one.startswith("1 more were left out") for one in report["words"])


def test_datashields_survival_studies():
    # The figures beside the table: stratified by study, Efron.
    table = real_table("datashield_cnsim/survival_collapse_no_missing.csv.gz")
    columns = ("age.60", "female", "noise.56", "pm10.16", "bmi.26")
    report = found(cox(time="SURVTIME", event="CENS", columns=columns), table, "study")["numbers"]
    np.testing.assert_allclose(report["coefficients"], [0.049785, -0.742239, 0.026665, 0.630790, 0.104722], atol=1e-5)
    np.testing.assert_allclose(report["log_likelihood"], -7582.5932, atol=1e-4)
