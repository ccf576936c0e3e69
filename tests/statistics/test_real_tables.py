"""Real tables, each method beside the library that finds the same on pooled rows: what docs/results tells."""

import pytest

from benchmarks.pooled_answers import answer_of, cnsim, harmonised_gap, lines
from tests.support.findings import found
from wardround.analyses.combat import combat
from wardround.analyses.meta_analysis import meta_analysis
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.folder import data_folder

MISSING = not (data_folder() / "uci_heart_disease").is_dir()
pytestmark = pytest.mark.skipif(MISSING, reason="needs WARDROUND_DATA")
MEASURED = ["trestbps", "thalach", "oldpeak"]


def test_heart_disease_harmonised_as_neuro_combat_does():
    heart = dict(heart_disease().sites)
    assert harmonised_gap({}, heart, MEASURED, ["age"], ["sex", "disease"]) < 1e-9


def test_datashields_studies_have_the_coefficients_known_for_each():
    # LAB_TSC on LAB_TRIG, study by study, as the data's page tells them.
    told = answer_of(meta_analysis(measure="adjusted_difference", outcome="LAB_TSC", exposure="LAB_TRIG"), cnsim())
    estimates = told.report["numbers"]["estimates"]
    assert [round(one["effect"], 6) for one in estimates] == [0.087635, 0.058091, 0.081461]
    assert [one["patients"] for one in estimates] == [1801, 2526, 3473]


@pytest.mark.slow
def test_every_answer_of_the_page_is_that_of_the_pooled_rows():
    for line in lines():
        assert line.difference < 1e-6, line.question


def test_a_hospital_that_measured_nothing_is_left_out():
    # Switzerland has no cholesterol: 0 there means that it was not measured.
    sites = [Site(name, frame) for name, frame in heart_disease().sites.items()]
    report = found(combat(columns=("chol", "thalach")), sites)
    assert report["numbers"]["sites"] == 3
    assert any("3 of 4 sites are counted: each of the others has no complete row." in one for one in report["words"])
    with pytest.raises(Refusal, match="1 of 4 sites may tell"):
        found(combat(columns=("chol", "thalach"), smallest_cell=290), sites)
