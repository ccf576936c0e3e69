"""A coordinator that asks a regression for single patients: by coefficients, levels, knots, arrays, other formulas.

The site has a real home and a real handler; the study was approved as an honest one. What an attack would have told
without the site's rules is shown beside each (the positive control).
"""

import numpy as np
import pandas as pd
import pytest

from tests.support.in_process import Consortium
from wardround.analyses.glm import glm
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.components.recipes import to_json
from wardround.core.contracts import Message, Site
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.demo import PURPOSE
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import AgreeColumns, AskAnalysis, AskQuery, request_of
from wardround.deploy.site.approvals import approve
from wardround.statistics.regression.design import unpacked
from wardround.study.analyses.analysis import analysis_recipe
from wardround.study.file import parse_study

SITE, ROWS = "bo", 120
NOTHING = Message({})
FORMULA = "ill ~ age + sex"


class Liar:
    """Puts an approved study to one site and then asks what it likes."""

    def __init__(self, folder, formula=FORMULA, change=None, **settings):
        self.consortium = Consortium(folder)
        random = np.random.default_rng(3)
        table = pd.DataFrame(
            {
                "age": np.round(random.uniform(20, 90, ROWS), 6),
                "sex": random.choice(["f", "m"], ROWS),
                "ill": random.integers(0, 2, ROWS),
            }
        )
        self.table = table if change is None else change(table)
        self.table.to_csv(self.consortium.tables[SITE], index=False)
        words = {
            "study": {"name": "ages", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x", "preparation": {"smallest_cell": 10}},
            "analysis": {"name": "glm", "formula": formula, "family": "binomial", **settings},
        }
        self.study = parse_study(words, where="test")
        submission = Submission(self.study, self.consortium.names, "researcher")
        self.id = submission.id
        self.ask(submission.offer())
        approve(self.consortium.homes[SITE], self.id, by="admin")

    def ask(self, question, message=NOTHING, number=0):
        request = request_of(question, message, study=self.id, number=number)
        return read_reply(self.consortium.transport.ask(SITE, question.topic, request.body, 10.0))

    def agree(self, levels=("f", "m"), **kinds):
        return self.ask(
            AgreeColumns(
                {"ill": "number", "age": "number", "sex": "category", **kinds},
                {"sex": list(levels)},
                sorted(self.consortium.names),
            )
        )

    def exchange(self, number=1, recipe=None, width=3, **arrays):
        asked = {
            "stage": np.array(2.0),
            "center": np.zeros(width),
            "scale": np.ones(width),
            "beta": np.zeros((1, width)),
            "alpha": np.ones(1),
            "fold": -np.ones(1),
            "place": -np.ones(1),
            **arrays,
        }
        return self.ask(AskAnalysis(to_json(recipe or analysis_recipe(self.study))), Message(asked), number)


@pytest.fixture
def liar(tmp_path):
    made = Liar(tmp_path)
    assert made.agree().status == "ok"
    return made


def window(age, sharp):
    """Coefficients that weigh patients near an age, and nobody else."""
    return np.array([[-sharp * age, sharp, 0.0]])


def test_an_honest_question_is_answered(liar):
    found = liar.exchange()
    assert found.status == "ok"
    info = unpacked(np.asarray(found.message.arrays["info"][0]), 3)
    assert info[0, 0] == pytest.approx(ROWS / 4)


def test_coefficients_that_single_out_a_patient_are_refused(liar):
    ages = np.sort(liar.table["age"].to_numpy())
    victim = ages[60]
    asked = window(victim, 300.0)
    # Without the rule, the ratio of two sums is the age of one patient to a hundredth.
    open_glm, agreed = (
        glm(formula=FORMULA, family="binomial"),
        Agreed(
            (SITE,),
            {"ill": AgreedColumn("number"), "age": AgreedColumn("number"), "sex": AgreedColumn("category", ("f", "m"))},
        ),
    )
    message = {"stage": np.array(2.0), "center": np.zeros(3), "scale": np.ones(3), "beta": asked}
    message |= {"alpha": np.ones(1), "fold": -np.ones(1), "place": -np.ones(1)}
    told = open_glm.ask(agreed, Message(message), Site(SITE, liar.table)).arrays
    info = unpacked(np.asarray(told["info"][0]), 3)
    assert info[0, 1] / info[0, 0] == pytest.approx(victim, abs=0.01)
    # With it, nothing is told, and the exchange is used up.
    reply = liar.exchange(beta=asked)
    assert (reply.status, reply.message.arrays) == ("refused", {})
    assert "fewer than 10 patients would make up the sums" in reply.why
    assert "was asked before in other words" in liar.exchange(beta=window(victim, 1.0)).why


@pytest.mark.parametrize("sharp", [0.1, 0.25, 0.5, 2.0, 20.0, 1e6])
def test_no_window_is_steeper_than_a_fit_ever_is(liar, sharp):
    reply = liar.exchange(beta=window(55.0, sharp))
    assert (reply.status == "ok") == (sharp * liar.table["age"].std() < 6)


def test_two_thresholds_around_a_patient_do_not_tell_it(liar):
    # Of patients on either side of a sharp threshold the outcome is "certain". Moved past one patient, the sums of two
    # exchanges differ by that patient's own columns: without the rule age and sex of each are known.
    ages = np.sort(liar.table["age"].to_numpy())
    lower, upper = (ages[59] + ages[60]) / 2, (ages[60] + ages[61]) / 2
    agreed = Agreed(
        (SITE,),
        {"ill": AgreedColumn("number"), "age": AgreedColumn("number"), "sex": AgreedColumn("category", ("f", "m"))},
    )
    told = []
    for at in (lower, upper):
        message = {"stage": np.array(2.0), "center": np.zeros(3), "scale": np.ones(3), "beta": window(at, 1e9)}
        message |= {"alpha": np.ones(1), "fold": -np.ones(1), "place": -np.ones(1)}
        open_glm = glm(formula=FORMULA, family="binomial")
        told.append(np.asarray(open_glm.ask(agreed, Message(message), Site(SITE, liar.table)).arrays["score"][0]))
    apart = told[1] - told[0]
    assert apart[1] / apart[0] == pytest.approx(ages[60], abs=1e-6)
    replies = [liar.exchange(number, beta=window(at, 1e9)) for number, at in enumerate((lower, upper), 1)]
    assert all("nearly every outcome would be certain" in one.why or "make up the sums" in one.why for one in replies)


def test_a_level_of_one_patient_is_not_told(tmp_path):
    def one_smith(table):
        return table.assign(sex=np.where(np.arange(ROWS) == 17, "Smith", table["sex"]))

    made = Liar(tmp_path, change=one_smith)
    # The name is too rare to be told, but whoever knows it may put it among the levels.
    names = made.ask(AskQuery(NAMES, "raw"), COLUMNS)
    assert b"Smith" not in np.asarray(names.message.arrays["names"]).tobytes()
    assert made.agree(("f", "m", "Smith")).status == "ok"
    found = made.exchange(width=4)
    assert found.status == "ok"
    assert not any(np.any(one) for one in found.message.arrays.values())


def test_a_model_with_too_many_parameters_adds_nothing(tmp_path):
    def few(table):
        return table.head(14).assign(sex=["f", "m"] * 7)

    made = Liar(tmp_path, formula="ill ~ age + sex + age:sex + square(age)", change=few)
    assert made.agree().status == "ok"
    found = made.exchange(width=5)
    assert found.why == ""
    # 5 parameters for 14 patients; groups of 7 are smaller than a cell anyway.
    assert (found.status, float(np.abs(found.message.arrays["score"]).max())) == ("ok", 0.0)


def test_knots_around_a_patient_are_not_answered(tmp_path):
    made = Liar(tmp_path, formula="ill ~ spline(age, 2) + sex")
    made.agree()
    age = float(np.sort(made.table["age"])[60])
    knots = {"age": np.array([age - 0.3, age, age + 0.3])}
    found = made.exchange(width=4, knots=knots)
    assert (found.status, float(np.abs(found.message.arrays["info"]).max())) == ("ok", 0.0)


@pytest.mark.parametrize(
    "arrays",
    [
        {"beta": np.zeros((1, 9))},
        {"beta": np.zeros((500, 3)), "alpha": np.ones(500), "fold": -np.ones(500), "place": -np.ones(500)},
        {"center": np.zeros(100_000)},
        {"scale": np.zeros(3)},
        {"stage": np.array(7.0)},
        {"alpha": -np.ones(1)},
    ],
    ids=["other width", "many fits", "huge", "no scale", "other stage", "negative"],
)
def test_arrays_of_another_question_are_refused(liar, arrays):
    assert "not a question of this regression" in liar.exchange(**arrays).why


@pytest.mark.parametrize("beta", [np.full((1, 3), np.nan), np.full((1, 3), 1e30)])
def test_numbers_that_are_none_are_refused(liar, beta):
    assert "not finite, or too large" in liar.exchange(beta=beta).why


def test_a_message_of_many_megabytes_is_not_read(liar):
    assert "are allowed for analysis/glm" in liar.exchange(more=np.zeros(3_000_000)).why


def test_another_formula_is_refused(liar):
    recipe = analysis_recipe(liar.study)
    other = recipe._replace(settings=tuple((k, "ill ~ age" if k == "formula" else v) for k, v in recipe.settings))
    assert "does not use the analysis glm with these settings" in liar.exchange(recipe=other).why
    wider = recipe._replace(settings=tuple((k, 1 if k == "smallest_cell" else v) for k, v in recipe.settings))
    assert "does not use the analysis glm with these settings" in liar.exchange(recipe=wider, number=2).why


def test_no_exchange_beyond_the_last(liar):
    assert "has the rounds 1 to 40" in liar.exchange(number=41).why
    assert "has the rounds 1 to 40" in liar.exchange(number=0).why


def test_other_columns_or_sites_are_not_agreed_on(tmp_path):
    made = Liar(tmp_path)
    assert "not those of the approved analysis" in made.agree(fever="number").why
    asked = AgreeColumns({"ill": "number", "age": "number", "sex": "category"}, {"sex": ["f", "m"]}, ["freetown"])
    assert "not those of the approved study" in made.ask(asked).why


def test_columns_are_agreed_on_once(liar):
    assert "asked before in other words" in liar.agree(("f", "m", "Smith")).why


NAMES = {
    "kind": "query",
    "name": "names_of",
    "settings": {"epsilon": 0.0, "seed": None, "smallest_cell": 10},
    "parts": [],
}
COLUMNS = Message({"columns": np.frombuffer(b'["sex"]', np.uint8)})
