"""A coordinator who plays against the rules of tables and tests: who asks around one patient must not find the value.

Each attack has a positive control: with a smallest cell of 1, where nothing is promised, it finds the value.
"""

import numpy as np
import pandas as pd
import pytest

from tests.support.findings import agreed_on, found
from wardround.analyses.correlations import correlations
from wardround.analyses.cross_table import cross_table
from wardround.analyses.distribution import distribution
from wardround.analyses.group_means import group_means
from wardround.analyses.meta_analysis import meta_analysis
from wardround.analyses.propensity import propensity
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.deploy.site.analyses.answered_rows import remember_rows

CELL = 5
GENERATOR = np.random.default_rng(11)
ROWS = 60
TABLE = pd.DataFrame(
    {
        "age": np.append(GENERATOR.integers(30, 80, ROWS - 1), 97.0),
        "creatinine": GENERATOR.normal(1.1, 0.3, ROWS).round(3),
        "hiv": np.where(np.append(np.arange(ROWS - 1) % 4 == 0, True), "yes", "no"),
        "sex": GENERATOR.choice(["female", "male"], ROWS),
    }
)
SECRET = float(TABLE.creatinine.iloc[-1])
"""Of the one patient who is 97."""
SITE = Site("A", TABLE)
AGREED = agreed_on([SITE])


def ask(analysis, message):
    return analysis.ask(AGREED, Message(message), SITE).arrays


def sum_of_creatinine(where, cell):
    told = ask(correlations(columns=("creatinine", "age"), only=where, smallest_cell=cell), {"means": np.zeros(2)})
    return float(told["total"][0])


@pytest.mark.parametrize("where", ["age < 97", "age != 97", "age > 96", "age >= 97 and sex = male", "age = 97"])
def test_everybody_but_one_is_refused(where):
    if where in ("age < 97", "age != 97"):
        assert sum_of_creatinine("", 1) - sum_of_creatinine(where, 1) == pytest.approx(SECRET)
    if where == "age >= 97 and sex = male" and TABLE.sex.iloc[-1] != "male":
        return
    with pytest.raises(Refusal, match="fewer than 5 patients"):
        sum_of_creatinine(where, CELL)


def test_two_conditions_that_differ_by_few_get_one_answer(tmp_path):
    """Both have a cell on either side, so the site must remember whom its first answer was about."""
    ages = np.sort(TABLE.age)[-(CELL + 1) :]
    wide, narrow = (f"age >= {bound:g}" for bound in ages[:2])
    exact = sum_of_creatinine(wide, 1) - sum_of_creatinine(narrow, 1)
    assert exact == pytest.approx(TABLE.creatinine[(TABLE.age >= ages[0]) & (TABLE.age < ages[1])].sum())
    for where in (narrow, wide):
        analysis = correlations(columns=("creatinine", "age"), only=where, smallest_cell=CELL)
        if where == narrow:
            remember_rows(tmp_path / "answered", analysis, AGREED, SITE, CELL)
            remember_rows(tmp_path / "answered", analysis, AGREED, SITE, CELL)  # the same again is no news
            continue
        with pytest.raises(Refusal, match="covers the patients of an earlier one"):
            remember_rows(tmp_path / "answered", analysis, AGREED, SITE, CELL)


def test_a_column_that_one_patient_lacks_gets_one_answer(tmp_path):
    """Without any condition: the patient without a value is left out of one question and not of the other."""
    site = Site("A", TABLE.assign(lab=TABLE.creatinine.where(TABLE.age < 97)))
    agreed = agreed_on([site])
    total = {
        columns: correlations(columns=columns).ask(agreed, Message({"means": np.zeros(2)}), site).arrays["total"][0]
        for columns in (("creatinine", "age"), ("creatinine", "lab"))
    }
    assert np.diff(list(total.values())).item() == pytest.approx(-SECRET)  # with cells of 1, where nothing is promised
    first, second = (correlations(columns=columns, smallest_cell=CELL) for columns in total)
    remember_rows(tmp_path / "answered", first, agreed, site, CELL)
    with pytest.raises(Refusal, match="covers the patients of an earlier one"):
        remember_rows(tmp_path / "answered", second, agreed, site, CELL)


def test_edges_cannot_close_in_on_a_patient():
    """Ask for bins of every width around 97, from anywhere: no answer has fewer than a cell, nor any difference."""

    def told(level, first, cell):
        analysis = distribution(columns=("age",), smallest_cell=cell)
        message = {"level": np.array([[level]]), "first": np.array([[first]])}
        return np.asarray(ask(analysis, message)["counts"])[0, 0]

    assert told(0, 97, 1)[0, 0] == 1  # the positive control: one patient of 97 years
    seen = set()
    for level in range(-3, 7):
        for first in range(int(90 / 2.0**level) - 2, int(98 / 2.0**level) + 1):
            counts = told(level, first, CELL)
            seen |= set(counts[counts > 0].tolist())
    assert seen
    assert min(seen) >= CELL


def test_a_small_cell_does_not_follow_from_margins():
    """The table by hiv and a group of three women: neither the cell nor what would give it away is told."""
    rare = Site(
        "A", TABLE.assign(group=np.where(np.arange(ROWS) < 3, "rare", np.where(np.arange(ROWS) < 30, "x", "y")))
    )
    agreed = agreed_on([rare])

    def table(cell):
        analysis = cross_table(rows="group", columns="hiv", smallest_cell=cell)
        return analysis.ask(agreed, Message({"table": np.zeros((3, 2))}), rare).arrays["counts"]

    truth = table(1)
    assert (truth[0] < 3).all()
    kept = table(CELL)
    totals = truth.sum(axis=0)  # as another question tells them
    assert not kept[0].any()
    hidden = totals - kept.sum(axis=0)
    assert ((hidden >= CELL) | (hidden == 0)).all()


def test_a_group_of_one_has_no_mean():
    table = TABLE.assign(who=np.where(TABLE.age == 97, "him", "others"))
    site = Site("A", table)
    exact = found(group_means(column="creatinine", group="who"), [Site("A", table), Site("B", table)])["numbers"]
    assert exact["mean"][0] == pytest.approx(SECRET)
    with pytest.raises(Refusal, match="Fewer than two groups"):
        found(group_means(column="creatinine", group="who", smallest_cell=CELL), [site])


def test_a_flag_that_marks_one_patient_tells_nothing_by_products():
    """The product of a flag and a column is the value of whoever has the flag; so is a covariance with it."""
    site = Site("A", TABLE.assign(mark=(TABLE.age == 97) * 1.0))
    agreed = agreed_on([site])

    def products(cell):
        analysis = correlations(columns=("mark", "creatinine"), smallest_cell=cell)
        return analysis.ask(agreed, Message({"around": np.zeros(2)}), site).arrays["products"]

    assert products(1)[0, 1] == pytest.approx(SECRET)
    assert not products(CELL).any()


def test_coefficients_that_single_out_a_patient_get_no_answer():
    """A curve so steep that one patient alone is likely to be treated: the score is then that patient's row."""

    def score(cell, coefficients):
        analysis = propensity(treatment="hiv", outcome="creatinine", covariates=("age",), smallest_cell=cell)
        message = {"mean": np.array([80.0]), "sd": np.array([1.0]), "fit": np.zeros(())}
        return ask(analysis, {**message, "coefficients": np.array(coefficients)})["score"]

    low, high = score(1, [-5000.0, 300.0]), score(1, [-5000.0, 290.0])
    alone = high - low  # the one patient at 97: (1, 17), once counted as treated and once not
    assert abs(alone[1] / alone[0]) == pytest.approx(17, abs=1e-6)
    with pytest.raises(Refusal, match="where an answer would be about few patients"):
        score(CELL, [-5000.0, 300.0])


def test_an_estimate_of_few_is_not_told():
    site = Site("A", TABLE.assign(mark=np.where(TABLE.age == 97, "yes", "no")))
    agreed = agreed_on([site])

    def estimate(cell):
        analysis = meta_analysis(measure="risk_difference", outcome="hiv", exposure="mark", smallest_cell=cell)
        return analysis.ask(agreed, Message({"estimate": np.zeros(())}), site).arrays["estimate"]

    others = (TABLE.hiv.iloc[:-1] == "yes").mean()
    assert estimate(1)[0] != 0
    assert others < 0.5  # so the sign of the difference tells the one patient's status
    np.testing.assert_array_equal(estimate(CELL), 0)
