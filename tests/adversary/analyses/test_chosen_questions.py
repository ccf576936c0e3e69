"""A coordinator whose questions no honest run has: each attack finds its patient without the rule (the control).

What is asked goes straight to the analysis at a site; with a smallest cell of 1, where nothing is promised, the attack
succeeds, and with the cell of a site it is refused, or tells nothing.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import nnls

from tests.support.findings import agreed_on
from wardround.analyses.glm import glm
from wardround.analyses.propensity import propensity
from wardround.analyses.survival.cox import cox
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.deploy.site.analyses.answered_rows import remember_rows
from wardround.statistics.regression.design import unpacked

CELL, ROWS = 10, 120
RANDOM = np.random.default_rng(5)
AGES = np.append(np.round(RANDOM.uniform(25, 80, ROWS - 1), 3), 97.0)
TABLE = pd.DataFrame(
    {
        "age": AGES,
        "stay": np.round(RANDOM.gamma(2.0, 3.0, ROWS) + 0.1, 3),
        "ill": np.arange(ROWS) % 2,
        "well": 1 - np.arange(ROWS) % 2,
        "treated": (np.arange(ROWS) // 2) % 2,
        "creatinine": np.round(RANDOM.normal(1.1, 0.3, ROWS), 3),
    }
)
"""The last patient is 97, the oldest by far, and treated."""
SITE = Site("A", TABLE)
AGREED = agreed_on([SITE])


def glm_question(*betas, width=2, fold=-1.0, **more):
    many = len(betas)
    beside = {"alpha": np.ones(many), "fold": np.full(many, fold), "place": -np.ones(many)}
    return Message(
        {
            "stage": np.array(2.0),
            "center": np.zeros(width),
            "scale": np.ones(width),
            "beta": np.array(betas, float),
            **beside,
            **more,
        }
    )


def info_of(analysis, question, site=SITE, at=0):
    told = analysis.ask(AGREED, question, site).arrays
    return unpacked(np.asarray(told["info"][at]), 2), np.asarray(told["score"][at]), told


def test_a_fold_of_one_patient_is_not_told_by_what_all_others_tell():
    """With 20 folds of 24 patients a fold has one or two: even an honest penalised fit told their rows."""
    site = Site("A", TABLE.head(24))

    def asked(cell):
        analysis = glm(formula="creatinine ~ age", penalty="ridge", folds=20, smallest_cell=cell)
        nothing = np.zeros(2)
        whole, without = (info_of(analysis, glm_question(nothing, fold=fold), site) for fold in (-1.0, 10.0))
        return whole, without

    (whole, score, _), (without, others, told) = asked(1)
    assert whole[0, 0] - without[0, 0] == 1
    age = whole[0, 1] - without[0, 1]
    assert np.abs(site.table.age - age).min() < 1e-9
    assert np.abs(site.table.creatinine - (score - others)[0]).min() < 1e-9
    (whole, _, _), (without, _, told) = asked(CELL)
    assert whole[0, 0] == 24
    assert not without.any()
    assert not np.any(told["held"])


@pytest.mark.parametrize(("family", "link", "outcome"), [("binomial", "identity", "ill"), ("gamma", "inverse", "stay")])
def test_means_that_a_family_cannot_have_are_no_threshold(family, link, outcome):
    """Beyond its bounds a mean is clipped: two thresholds around a patient tell the age by the difference."""
    ages = np.sort(AGES)
    lower, upper = (ages[59] + ages[60]) / 2, (ages[60] + ages[61]) / 2
    # A threshold as steep as numbers allow: means far out on either side.
    asked = [(-1e6 * at, 1e6) for at in (lower, upper)]
    told = [info_of(glm(formula=f"{outcome} ~ age", family=family, link=link), glm_question(one))[1] for one in asked]
    if family == "binomial":
        first, second = told[1] - told[0]
        assert second / first == pytest.approx(ages[60], rel=1e-3)
    analysis = glm(formula=f"{outcome} ~ age", family=family, link=link, smallest_cell=CELL)
    for one in asked:
        with pytest.raises(Refusal, match=r"cannot have|make up the sums"):
            analysis.ask(AGREED, glm_question(one), SITE)


def test_the_residual_of_one_patient_is_not_told():
    """Of binary outcomes a squared Pearson residual is exp(-eta) or exp(eta): the largest is the whole sum."""
    slope = 0.3
    asked = glm_question((-slope * 45, slope))
    told, coarse = (
        float(
            glm(formula="well ~ age", family="binomial", smallest_cell=cell)
            .ask(AGREED, asked, SITE)
            .arrays["pearson"][0]
        )
        for cell in (1, CELL)
    )
    # The oldest is not well, though the curve is all but certain of it: one sum tells the age.
    assert np.log(told) / slope + 45 == pytest.approx(97, abs=0.5)
    assert np.log(coarse) / slope + 45 < 80


def test_a_column_that_few_have_is_no_room_for_a_steep_curve():
    """Among 1000 patients the spread of all hides that of the 20 of whom the column speaks."""
    few = np.arange(1000) < 20
    table = pd.DataFrame(
        {"age": np.round(RANDOM.uniform(25, 80, 1000), 3), "rare": few.astype(float), "ill": np.arange(1000) % 2}
    )
    site = Site("A", table)
    agreed = agreed_on([site])
    width, middle = 3, float(np.median(table.age[few]))
    # Columns: 1, rare, rare times age; 40 at the ends of the 20, and the mean spread over all below 6.
    beta = np.array([0.0, -2.0 * middle, 2.0])
    asked = glm_question(beta, width=width)
    formula = "ill ~ rare + rare:age"
    told = glm(formula=formula, family="binomial").ask(agreed, asked, site).arrays
    assert told["rows"][0] == 1000
    with pytest.raises(Refusal, match="nearly every outcome would be certain"):
        glm(formula=formula, family="binomial", smallest_cell=CELL).ask(agreed, asked, site)


def test_inverse_weights_do_not_make_one_patient_the_whole_sum():
    """Odds that no fit has: the weight of the oldest treated patient is that of all others, within e^10."""
    mean, sd = 0.0, 1.0
    slope = 19.9 / (97 - 25)
    coefficients = np.array([9.95 + 25 * slope, -slope])
    asked = Message(
        {"coefficients": coefficients, "mean": np.array([mean]), "sd": np.array([sd]), "means": np.zeros(2)}
    )
    settings = {"treatment": "treated", "outcome": "creatinine", "covariates": ("age",)}
    is_treated = TABLE.treated.iloc[-1] == 1
    assert is_treated
    meat = propensity(**settings).ask(AGREED, asked, SITE).arrays["meat"]
    weight = 1 + np.exp(9.95)
    secret = float(TABLE.creatinine.iloc[-1])
    assert np.sqrt(meat[-2, -2]) / weight == pytest.approx(secret, abs=0.02)
    for question in (asked, Message({key: asked.arrays[key] for key in ("coefficients", "mean", "sd")})):
        with pytest.raises(Refusal, match="fewer than 10 patients of a group make up the weighted sums"):
            propensity(**settings, smallest_cell=CELL).ask(AGREED, question, SITE)


def test_whom_a_cox_regression_holds_out_is_remembered(tmp_path):
    """Two approved studies, one without the oldest: the difference of their sums is one patient."""
    table = TABLE.assign(age=AGES, group=np.where(AGES == 97, "oldest", "other"))
    site = Site("A", table)
    agreed = agreed_on([site])
    settings = {"time": "stay", "event": "ill", "columns": ("creatinine",), "smallest_cell": CELL}
    whole, without = cox(**settings), cox(**settings, hold_out="group = oldest")
    survey = Message({}, (("asked", "survey"),))
    sums = [one.ask(agreed, survey, site).arrays for one in (whole, without)]
    counts = [float(one["event_time"]) for one in sums]
    event = bool(table.ill.iloc[-1])
    assert counts[0] - counts[1] == pytest.approx(float(table.stay.iloc[-1]) if event else 0.0)
    remember_rows(tmp_path / "rows", whole, agreed, site, CELL)
    with pytest.raises(Refusal, match="covers the patients of an earlier one"):
        remember_rows(tmp_path / "rows", without, agreed, site, CELL)


def test_what_remains_many_fits_tell_a_column():
    """Not closed without noise: 40 curves within the rules, and how many patients have each whole age is solved for."""
    ages, grid = np.random.default_rng(3).integers(30, 80, ROWS), np.arange(30, 80)
    site = Site("A", pd.DataFrame({"age": ages.astype(float), "ill": np.arange(ROWS) % 2}))
    analysis, slope = glm(formula="ill ~ age", family="binomial", smallest_cell=CELL), 5.5 / ages.std()
    lines, told = [], []
    for at in np.linspace(25, 85, 40):
        for steep in slope * 0.8 ** np.arange(20):
            try:
                info, _, _ = info_of(analysis, glm_question((-steep * at, steep)), site)
            except Refusal:
                continue
            weight = np.exp(-np.logaddexp(0, steep * (grid - at)) - np.logaddexp(0, -steep * (grid - at)))
            lines += [weight, weight * grid, weight * grid**2]
            told += [info[0, 0], info[0, 1], info[1, 1]]
            break
    size = np.abs(lines).max(axis=1)
    solved, _ = nnls(np.array(lines) / size[:, None], np.array(told) / size, maxiter=20_000)
    assert (np.round(solved) == np.bincount(ages - 30, minlength=50)).mean() > 0.9
