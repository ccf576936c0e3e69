"""Regression from noised sums: without noise it is least squares; with noise its intervals still hold the truth."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from tests.support.analyses.patients import answer_of, patients
from tests.support.in_process import NAMES, Consortium
from wardround.analyses.glm import glm
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.demo import PURPOSE
from wardround.deploy.site.release.privacy_budget import budget_of
from wardround.privacy.accountant import Step, epsilon
from wardround.runs.folder import RunFolder
from wardround.study.analyses.analysis_noise import analysis_noise, with_deviation, with_noise
from wardround.study.file import parse_study
from wardround.workflows.analysis import check_analysis, run_analysis

RANGES = ("age = 0 to 120", "score = -10 to 15", "dose = 0 to 30")


def made(**more):
    return glm(formula="score ~ age + dose + sex", ranges=RANGES, **more)


def study_of(table, multiplier=None, bound=1.0, seed=0):
    noise = {"epsilon": bound} if multiplier is None else {"noise_multiplier": multiplier}
    return parse_study(
        {
            "study": {"name": "private", "seed": seed},
            "data": {
                "source": "csv",
                "path": str(table),
                "site": "site",
                "preparation": {"categories": {"sex": ["f", "m"]}},
            },
            "analysis": {"name": "glm", "formula": "score ~ age + sex", "ranges": list(RANGES[:2])},
            "privacy": {**noise, "seeded": True},
        },
        where="test",
    )


def write(path, frames):
    pd.concat([frame.assign(site=name) for name, frame in frames.items()]).to_csv(path, index=False)
    return path


def test_without_noise_it_is_least_squares_on_pooled_rows():
    frames = patients()
    found = answer_of(made(), frames)["numbers"]
    fit = smf.ols("score ~ age + dose + sex", pd.concat(frames.values())).fit()
    names = {"(intercept)": "Intercept", "age": "age", "dose": "dose", "sex=m": "sex[T.m]"}
    for ours, theirs in names.items():
        assert found["coefficients"][ours] == pytest.approx(fit.params[theirs], rel=1e-8)
        assert found["errors"][ours] == pytest.approx(fit.bse[theirs], rel=1e-8)


def test_intervals_with_noise_hold_the_truth_as_often_as_they_say(tmp_path):
    # 60 draws of the noise over the same 6,000 patients, whose own fit is the truth that noise hides: an interval
    # of 95 % that includes the noise misses it in few of them; one that forgot the noise would miss it in most.
    frames = patients(rows=6000, missing=0.0)
    table = write(tmp_path / "patients.csv", frames)
    fit = smf.ols("score ~ age + sex", pd.concat(frames.values())).fit()
    plan = check_analysis(study_of(table, multiplier=3.0))
    noise = analysis_noise(plan.study, plan.analysis, plan.agreed)
    begun = plan.analysis.begin(plan.agreed)
    answers = [plan.analysis.ask(plan.agreed, plan.analysis.message(begun), site) for site in plan.sites]
    held = narrow = 0
    for seed in range(60):
        noised = [with_noise(one, noise, seed, str(at)).arrays["triangle"] for at, one in enumerate(answers)]
        told = with_deviation(Message({"triangle": np.sum(noised, axis=0)}), noise, len(answers))
        numbers = plan.analysis.report(plan.analysis.step(begun, told))["numbers"]
        value, error = numbers["coefficients"]["age"], numbers["errors"]["age"]
        held += abs(value - fit.params["age"]) < 1.96 * error
        narrow += abs(value - fit.params["age"]) < 1.96 * fit.bse["age"]
    assert held >= 54
    assert narrow < 30


def test_a_simulation_says_what_it_costs(tmp_path):
    plan = check_analysis(study_of(write(tmp_path / "p.csv", patients(rows=6000)), bound=2.0))
    result = run_analysis(plan, RunFolder.create(tmp_path / "out", resume=False))
    assert "an epsilon of 2 at a delta of 1e-05" in str(result.privacy)


def test_noise_that_hides_all_is_refused(tmp_path):
    plan = check_analysis(study_of(write(tmp_path / "p.csv", patients(rows=200)), multiplier=1000.0))
    with pytest.raises(Refusal, match="noise is larger than what the patients tell"):
        run_analysis(plan, RunFolder.create(tmp_path / "out", resume=False))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"formula": "score ~ age * dose", "ranges": RANGES}, "no products"),
        ({"formula": "score ~ age", "ranges": ("age = 3",)}, "is no range"),
        ({"formula": "score ~ age + days", "ranges": RANGES}, "'days' has no declared range"),
    ],
)
def test_bad_input_is_refused(settings, match):
    with pytest.raises(Refusal, match=match):
        answer_of(glm(**settings), patients())


def words(**privacy):
    return parse_study(
        {
            "study": {"name": "private", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x", "preparation": {"smallest_cell": 10}},
            "analysis": {
                "name": "glm",
                "formula": "temperature ~ age",
                "ranges": ["temperature = 30 to 45", "age = 0 to 110"],
            },
            "privacy": privacy,
        },
        where="test",
    )


def test_real_sites_add_noise_and_debit_their_ledgers_once(tmp_path):
    consortium = Consortium(tmp_path)
    study = words(epsilon=8.0)
    found = consortium.conduct(study)
    again = consortium.conduct(study)
    assert found["numbers"] == again["numbers"]  # the same noise: nothing was drawn or charged twice
    for name in NAMES:
        budget = budget_of(consortium.homes[name])
        (charge,) = budget.charges()
        assert charge.steps == (Step(1.0, charge.steps[0].noise_multiplier, 1),)
        assert epsilon(charge.steps, 1e-5) == pytest.approx(8.0, rel=1e-3)
        (entry,) = [one for one in consortium.left(name, study) if one["release"].startswith("analysis/")]
        assert entry["arrays"] == {"['triangle']": [6]}
    plain = pd.concat([pd.read_csv(path) for path in consortium.tables.values()])
    exact = smf.ols("temperature ~ age", plain.dropna(subset=["temperature", "age"])).fit()
    assert found["numbers"]["coefficients"]["age"] != pytest.approx(exact.params["age"], rel=1e-6)


def test_an_analysis_without_noise_is_refused_under_privacy(tmp_path):
    study = words(epsilon=1.0).model_dump(mode="json")
    study["analysis"] = {"name": "glm", "formula": "temperature ~ age"}
    with pytest.raises(Refusal, match="has no noise to offer"):
        Consortium(tmp_path).conduct(parse_study(study, where="test"))
