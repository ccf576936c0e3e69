"""A mixed model by sums is the mixed model on all rows in one place."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from tests.support.analyses.patients import answer_of
from wardround.analyses.mixed_model import mixed_model
from wardround.core.errors import Refusal


def hospitals(between=1.0, sites=12, seed=5):
    random = np.random.default_rng(seed)
    frames = {}
    for number in range(sites):
        rows = int(random.integers(20, 80))
        age, sex = random.normal(60, 10, rows), random.choice(["f", "m"], rows)
        mean = 3 + 0.05 * age + 0.7 * (sex == "m") + random.normal(0, between)
        frames[f"site-{number:02d}"] = pd.DataFrame(
            {"age": age, "sex": sex, "score": mean + random.normal(0, 1.5, rows)}
        )
    return frames


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_it_is_the_pooled_mixed_model(method):
    frames = hospitals()
    found = answer_of(mixed_model(formula="score ~ age + sex", method=method), frames)
    pool = pd.concat([frame.assign(site=name) for name, frame in frames.items()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = smf.mixedlm("score ~ age + sex", pool, groups=pool["site"]).fit(
            reml=method == "reml", method=["bfgs", "powell"], gtol=1e-10
        )
    numbers = found["numbers"]
    assert numbers["between"] == pytest.approx(float(fit.cov_re.iloc[0, 0]), rel=1e-4)
    assert numbers["within"] == pytest.approx(fit.scale, rel=1e-5)
    assert numbers["coefficients"]["age"] == pytest.approx(fit.fe_params["age"], rel=1e-6)
    assert numbers["coefficients"]["sex=m"] == pytest.approx(fit.fe_params["sex[T.m]"], rel=1e-6)
    assert numbers["errors"]["age"] == pytest.approx(fit.bse_fe["age"], rel=1e-4)
    # Ours is at least as likely as what their optimiser found.
    assert numbers["loglik"] == pytest.approx(fit.llf, abs=1e-6)
    assert found["exchanges"] <= 14


def test_sites_that_do_not_differ_have_no_variance_between_them():
    frames = hospitals(between=0.0, seed=1)
    pool = pd.concat(frames.values())
    found = answer_of(mixed_model(formula="score ~ age + sex"), frames)["numbers"]
    fit = smf.ols("score ~ age + sex", pool).fit()
    assert found["share_between"] < 0.05
    assert found["coefficients"]["age"] == pytest.approx(fit.params["age"], rel=0.02)


def test_by_the_generalised_least_squares_of_the_found_variances():
    # Independent of any optimiser: with V = within I + between 11' the coefficients solve X' V^-1 (y - X b) = 0.
    frames = hospitals(seed=9)
    found = answer_of(mixed_model(formula="score ~ age + sex"), frames)["numbers"]
    left = np.zeros(3)
    for frame in frames.values():
        x = np.column_stack([np.ones(len(frame)), frame["age"], frame["sex"] == "m"]).astype(float)
        v = found["within"] * np.eye(len(frame)) + found["between"]
        away = frame["score"].to_numpy() - x @ np.array(list(found["coefficients"].values()))
        left += x.T @ np.linalg.solve(v, away)
    assert np.abs(left).max() < 1e-6


@pytest.mark.parametrize(
    ("formula", "match"),
    [
        ("score ~ 0 + age", "takes an intercept"),
        ("score ~ spline(age, 3)", "no offset or spline"),
        ("score ~ age + sexx", "missing"),
    ],
)
def test_bad_input_is_refused(formula, match):
    with pytest.raises(Refusal, match=match):
        answer_of(mixed_model(formula=formula), hospitals())
