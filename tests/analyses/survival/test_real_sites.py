"""Survival analyses over sites' real homes give what all rows in one place give, and the approval says what is told."""

import numpy as np
import pandas as pd
import pytest

from tests.support.in_process import NAMES, Consortium
from tests.support.survival.sites import made_patients
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.demo import PURPOSE
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.protocol.requests import request_of
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.study_summary import describe
from wardround.study.file import parse_study

SITES = dict(zip("ABC", NAMES, strict=True))


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path)
    for letter, rows in made_patients(rows=500).groupby("site"):
        rows.drop(columns="site").to_csv(made.tables[SITES[letter]], index=False)
    for home in made.homes.values():
        set_policy(home.policy_path, "components", "*")
    return made


def study(name, cell=10, transforms=(), **settings):
    return parse_study(
        {
            "study": {"name": f"real_{name}", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "site": "hospital", "preparation": {"smallest_cell": cell}},
            "analysis": {"name": name, "time": "time", "event": "event", **settings},
            **({"transforms": [{"name": one} for one in transforms]} if transforms else {}),
        },
        where="test",
    )


def test_cox_over_real_sites_is_the_stratified_fit_of_all_rows(consortium):
    phreg = pytest.importorskip("statsmodels.duration.api").PHReg
    rows = made_patients(rows=500)
    other = phreg(rows["time"], rows[["age", "ill"]].astype(float), rows["event"], strata=rows["site"], ties="efron")
    found = consortium.conduct(study("cox", columns=["age", "ill"]))
    np.testing.assert_allclose(found["numbers"]["coefficients"], other.fit().params, atol=1e-8)
    assert found["deployed"]
    assert found["exchanges"] < 10


@pytest.mark.slow
def test_curves_over_real_sites_are_told_in_cells(consortium):
    found = consortium.conduct(study("kaplan_meier", horizons=[200.0]))
    rows = made_patients(rows=500)
    edges = found["numbers"]["edges"]
    told = found["numbers"]["groups"]["all"]
    assert told["at_risk"][0] == len(rows)
    exact = pytest.importorskip("lifelines").KaplanMeierFitter().fit(rows["time"], rows["event"])
    assert abs(told["survival"][edges.index(200.0)] - exact.predict(200.0)) < 0.03


def test_the_approval_says_in_words_what_is_told(consortium):
    submission = Submission(study("cox", columns=["age", "ill"]), NAMES, "researcher")
    request = request_of(submission.offer(), study=submission.id, number=0)
    consortium.transport.ask("bo", "offer", request.body, 10.0)
    home = consortium.homes["bo"]
    summary = describe(home, read_offer(home, submission.id))
    text = " ".join(sentence for _, part in summary.parts for sentence in part)
    assert "sums over your patients, that say how the hazard of event depends on age, ill" in text.replace("  ", " ")
    assert summary.facts["columns"] == ["time", "event", "age", "ill"]


def test_a_mistake_at_a_site_is_told_with_its_name(consortium):
    path = consortium.tables["kenema"]
    pd.read_csv(path).assign(time=-1.0).to_csv(path, index=False)
    with pytest.raises(Refusal, match="kenema"):
        consortium.conduct(study("kaplan_meier"))


def test_site_by_site_and_a_secure_sum_are_refused_together(consortium):
    with pytest.raises(Refusal, match="needs the answer of each site by itself"):
        consortium.conduct(study("cox", columns=["age"], site_by_site=True, transforms=["secure_sum"]))
    assert consortium.asked == []


@pytest.mark.slow
def test_a_secure_sum_changes_nothing(consortium):
    plain = consortium.conduct(study("cox", columns=["age", "ill"]))["numbers"]
    hidden = consortium.conduct(study("cox", columns=["age", "ill"], transforms=["secure_sum"]))
    assert hidden["sums_only"]
    np.testing.assert_allclose(hidden["numbers"]["coefficients"], plain["coefficients"], rtol=1e-12)


def test_two_sites_are_too_few_for_a_secure_sum(tmp_path):
    two = Consortium(tmp_path, NAMES[:2])
    with pytest.raises(Refusal, match="secure_sum"):
        two.conduct(study("kaplan_meier", transforms=["secure_sum"]))
    assert two.asked == []
