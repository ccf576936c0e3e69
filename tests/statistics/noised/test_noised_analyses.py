"""Sums under noise: without it the answer of all rows, with it intervals that hold the truth, and nothing kept back."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.api import families

from benchmarks.noised_intervals import noised, patients
from tests.support.analyses.patients import answer_of
from tests.support.in_process import NAMES, Consortium
from wardround.analyses.cross_table import cross_table
from wardround.analyses.glm import glm
from wardround.analyses.group_means import group_means
from wardround.analyses.survival.kaplan_meier import kaplan_meier
from wardround.core.errors import Refusal
from wardround.deploy.demo import PURPOSE
from wardround.deploy.site.release.privacy_budget import budget_of
from wardround.privacy.accountant import epsilon
from wardround.statistics.noised.contingency import shares, trial
from wardround.statistics.regression.private_newton import STEPS, Bounded
from wardround.statistics.survival.life_table import LifeTable, noise_variance
from wardround.study.analyses.analysis import analysis_of, analysis_recipe
from wardround.study.file import parse_study
from wardround.workflows.analysis import check_analysis

TABLE = patients(1500, np.random.default_rng(5))
FRAMES = {f"site-{n}": TABLE.iloc[n::3].reset_index(drop=True) for n in range(3)}
RANGES = ("age = 0 to 130", "falls = 0 to 40")
EDGES = (100.0, 200.0, 400.0, 800.0)


def test_without_noise_the_table_is_that_of_all_rows():
    found = answer_of(cross_table(rows="sex", columns="died", noised=True), FRAMES)["numbers"]
    counts = pd.crosstab(TABLE["sex"], TABLE["died"]).to_numpy()
    np.testing.assert_array_equal(found["counts"], counts)
    expected = stats.chi2_contingency(counts, correction=False)
    assert (found["chi2"], found["p"]) == pytest.approx((expected.statistic, expected.pvalue))
    # Woolf's interval of the odds ratio.
    far = 1.959964 * math.sqrt((1 / counts).sum())
    assert math.log(found["high"] / found["odds_ratio"]) == pytest.approx(far)


def test_without_noise_means_and_their_difference_are_those_of_all_rows():
    made = group_means(column="stay", group="sex", ranges=("stay = -50 to 70",), noised=True)
    found = answer_of(made, FRAMES)["numbers"]
    held = [TABLE["stay"][TABLE["sex"] == level] for level in ("f", "m")]
    assert found["mean"] == pytest.approx([own.mean() for own in held])
    # Large samples: a normal interval with each group's own spread.
    error = math.sqrt(sum(own.var(ddof=0) / len(own) for own in held))
    assert found["high"] - found["difference"] == pytest.approx(1.959964 * error)


@pytest.mark.parametrize(("family", "outcome"), [("binomial", "died"), ("poisson", "falls")])
def test_without_noise_a_regression_is_the_pooled_fit(family, outcome):
    event = "yes" if family == "binomial" else ""
    found = answer_of(glm(formula=f"{outcome} ~ age + sex", family=family, event=event, ranges=RANGES), FRAMES)
    rows = TABLE.assign(died=(TABLE["died"] == "yes") * 1.0)
    fit = smf.glm(f"{outcome} ~ age + sex", rows, family=getattr(families, family.capitalize())()).fit()
    assert found["exchanges"] == STEPS
    for ours, theirs in {"(intercept)": "Intercept", "age": "age", "sex=m": "sex[T.m]"}.items():
        assert found["numbers"]["coefficients"][ours] == pytest.approx(fit.params[theirs], rel=1e-5)
        assert found["numbers"]["errors"][ours] == pytest.approx(fit.bse[theirs], rel=1e-4)


def test_without_noise_a_curve_is_the_actuarial_one():
    told = answer_of(kaplan_meier(time="days", event="dead", times=EDGES, noised=True), FRAMES)
    survival, before = 1.0, 0.0
    for place, edge in enumerate(EDGES):
        risk = (TABLE["days"] > before).sum()
        inside = (TABLE["days"] > before) & (TABLE["days"] <= edge)
        events, censored = (inside & (TABLE["dead"] > 0)).sum(), (inside & (TABLE["dead"] == 0)).sum()
        survival *= 1 - events / (risk - censored / 2)
        assert told["numbers"]["groups"]["all"]["survival"][place] == pytest.approx(survival)
        before = edge


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_no_patient_moves_the_sums_of_a_step_by_more_than_was_said(family):
    # Whatever the coefficients and the patient, one row's score and information stay within the sensitivity.
    bounded, draw = Bounded(family, 1.0 if family == "binomial" else 7.0), np.random.default_rng(1)
    reached = 0.0
    for _ in range(500):
        x = np.where(draw.random(4) < 0.5, np.sign(draw.normal(size=4)), draw.uniform(-1, 1, 4))
        beta, y = draw.normal(0, 3, 4), draw.choice([0.0, bounded.most])
        mean = bounded.mean(np.array([x @ beta]))
        triangle = (bounded.curvature(mean) * np.outer(x, x))[np.triu_indices(4)]
        length = np.hypot(np.linalg.norm(x * (y - mean)), np.linalg.norm(bounded.scale(4) * triangle))
        reached = max(reached, length / bounded.sensitivity(4))
    assert 0.6 < reached <= 1


def test_the_noise_of_a_curve_by_trial():
    # The variance of log survival from noise alone, against 4,000 draws of it.
    edges = np.arange(1.0, 6.0)
    events, censored, beyond = np.array([60.0, 50, 40, 30, 20]), np.array([10.0, 20, 30, 20, 10]), 710.0

    def log_survival(events, censored, beyond):
        risk = np.cumsum((events + censored)[..., ::-1], axis=-1)[..., ::-1] + beyond
        return np.cumsum(np.log(1 - events / (risk - censored / 2)), axis=-1)

    draw = np.random.default_rng(2)
    shaken = [events + draw.normal(0, 3, (4000, 5)), censored + draw.normal(0, 3, (4000, 5))]
    spread = log_survival(*shaken, beyond + draw.normal(0, 3, (4000, 1))).var(axis=0)
    at_risk = np.cumsum((events + censored)[::-1])[::-1] + beyond
    table = LifeTable(edges, at_risk, events, censored, exact=False, noise=3.0, steps=5)
    np.testing.assert_allclose(noise_variance(table), spread, rtol=0.08)
    # A table that ends early has the same variance as far as it goes.
    early = LifeTable(edges[:3], at_risk[:3], events[:3], censored[:3], exact=False, noise=3.0, steps=5)
    np.testing.assert_allclose(noise_variance(early), noise_variance(table)[:3])


def test_shares_and_test_include_the_noise():
    counts = np.array([[400.0, 100], [300, 200]])
    plain, noised_ = shares(counts, 0.0), shares(counts, 10.0)
    # p (1 - p) / 500 for chance; (10 / 500)^2 ((1 - p)^2 + p^2) for the noise.
    assert plain[1][0, 0] ** 2 == pytest.approx(0.16 / 500)
    assert noised_[1][0, 0] ** 2 == pytest.approx(0.16 / 500 + 0.0004 * (0.04 + 0.64))
    draw = np.random.default_rng(3)
    rejected = 0
    for _ in range(150):
        table = draw.multinomial(500, np.full(6, 1 / 6)).reshape(2, 3) + draw.normal(0, 12, (2, 3))
        rejected += trial(table, 12.0)[1] < 0.05
    assert rejected <= 17, "a test of 5 % that forgot the noise would reject nearly all of these"


def test_intervals_hold_the_truth_under_noise():
    # 40 draws each; the study in docs/results has 400. The log odds, the difference of means and survival are known.
    draw, made = (
        np.random.default_rng(11),
        group_means(column="stay", group="sex", ranges=("stay = -20 to 40",), noised=True),
    )
    curve = kaplan_meier(time="days", event="dead", times=EDGES, noised=True)
    held = np.zeros(2)
    for _ in range(40):
        table = patients(1500, draw)
        means = noised(made, table, 1.0, draw)["numbers"]
        own = noised(curve, table, 1.0, draw)["numbers"]["groups"]["all"]
        held += [means["low"] <= 2.0 <= means["high"], own["low"][2] <= math.exp(-0.4) <= own["high"][2]]
    assert (held >= 34).all()


@pytest.mark.slow
def test_intervals_of_a_regression_hold_the_truth_under_noise():
    draw, held = np.random.default_rng(12), 0
    for _ in range(40):
        made = glm(formula="died ~ age + sex", family="binomial", event="yes", ranges=RANGES)
        numbers = noised(made, patients(5000, draw), 4.0, draw)["numbers"]
        held += abs(numbers["coefficients"]["age"] - 0.03) < 1.959964 * numbers["errors"]["age"]
    assert held >= 34


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: group_means(column="stay", group="sex", noised=True), "'stay' has no declared range"),
        (lambda: kaplan_meier(time="days", event="dead", noised=True), "edges of the intervals must be declared"),
        (lambda: kaplan_meier(time="days", event="dead", times=EDGES, entry="age", noised=True), "no entry times"),
        (lambda: glm(formula="falls ~ age", family="poisson", ranges=RANGES[:1]), "'falls' have no declared range"),
        (lambda: glm(formula="stay ~ age", family="gamma", ranges=RANGES), "plain linear, logistic and Poisson"),
        (lambda: glm(formula="died ~ age", family="binomial", link="probit", ranges=RANGES), "plain linear, logistic"),
        (lambda: glm(formula="died ~ log(age)", family="binomial", ranges=RANGES), "no products, functions"),
    ],
)
def test_what_cannot_be_noised_is_refused_before_anybody_is_asked(made, words):
    with pytest.raises(Refusal, match=words):
        made()


@pytest.mark.parametrize(
    "made",
    [
        cross_table(rows="sex", columns="died", noised=True),
        group_means(column="stay", group="sex", ranges=("stay = -20 to 40",), noised=True),
        kaplan_meier(time="days", event="dead", times=EDGES, noised=True),
        glm(formula="died ~ age + sex", family="binomial", event="yes", ranges=RANGES),
    ],
    ids=["table", "means", "curve", "regression"],
)
def test_noise_that_hides_all_is_refused(made):
    with pytest.raises(Refusal, match="noise is larger than what the patients tell"):
        noised(made, TABLE.head(60), 0.05, np.random.default_rng(0))


def study_of(analysis, **more):
    return parse_study(
        {
            "study": {"name": "noised", "purpose": PURPOSE},
            "data": {
                "source": "csv", "path": "x.csv", "site": "hospital",
                "preparation": {"smallest_cell": 10, "categories": {"ebola": ["a", "b"], "sex": ["f", "m"]}},
            },
            "analysis": analysis,
            **more,
        },
        where="test",
    )  # fmt: skip


def test_a_study_cannot_say_itself_that_its_sums_are_noised():
    # Cells are kept back unless there is [privacy]; columns are not clipped for nothing.
    words = {"name": "cross_table", "rows": "sex", "columns": "ebola", "noised": True}
    assert dict(analysis_recipe(study_of(words)).settings)["noised"] is False
    noised_ = study_of(words | {"noised": False}, privacy={"epsilon": 1.0})
    assert dict(analysis_recipe(noised_).settings)["noised"] is True
    with pytest.raises(Refusal, match=r"meant to be noised, and the study has no \[privacy\]"):
        analysis_of(study_of({"name": "glm", "formula": "temperature ~ age", "ranges": ["temperature = 30 to 45"]}))


@pytest.mark.slow
def test_a_table_over_real_sites_debits_their_ledgers(tmp_path):
    consortium = Consortium(tmp_path)
    tables = pd.concat([pd.read_csv(path) for path in consortium.tables.values()])
    levels = sorted(map(str, tables["ebola"].dropna().unique()))
    contact = sorted(map(str, tables["contact"].dropna().unique()))
    study = study_of({"name": "cross_table", "rows": "contact", "columns": "ebola"}, privacy={"epsilon": 20.0})
    study = study.model_copy(
        update={"data": study.data.model_copy(update={"preparation": study.data.preparation.model_copy(
            update={"categories": {"ebola": levels, "contact": contact}})})}
    )  # fmt: skip
    found = consortium.conduct(study)
    exact = pd.crosstab(tables["contact"], tables["ebola"]).to_numpy()
    told = np.array(found["numbers"]["counts"])
    assert not np.array_equal(told, exact)
    assert np.abs(told - exact).max() < 6 * found["numbers"]["noise"]
    for name in NAMES:
        (charge,) = budget_of(consortium.homes[name]).charges()
        assert epsilon(charge.steps, 1e-5) == pytest.approx(20.0, rel=1e-3)


def test_a_simulation_of_a_noised_regression_says_what_it_costs(tmp_path):
    TABLE.assign(hospital=np.arange(len(TABLE)) % 3).to_csv(tmp_path / "p.csv", index=False)
    study = parse_study(
        {
            "study": {"name": "noised"},
            "data": {
                "source": "csv", "path": str(tmp_path / "p.csv"), "site": "hospital",
                "preparation": {"categories": {"died": ["no", "yes"], "sex": ["f", "m"]}},
            },
            "analysis": {
                "name": "glm", "formula": "died ~ age + sex", "family": "binomial", "event": "yes",
                "ranges": list(RANGES),
            },
            "privacy": {"epsilon": 5.0, "seeded": True},
        },
        where="test",
    )  # fmt: skip
    plan = check_analysis(study)
    # Eight noised steps, calibrated once.
    assert plan.analysis.most == STEPS
    assert plan.analysis.sensitivity(plan.agreed) == pytest.approx(math.sqrt(2 * 3))
