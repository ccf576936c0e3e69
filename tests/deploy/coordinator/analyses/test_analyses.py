"""An analysis over sites' real homes gives what its simulation gives, once, and nothing that was not approved."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.support.analyses.spread import lend_spread
from tests.support.in_process import NAMES, Consortium, Died, die_at
from wardround.core.components.recipes import to_json
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.analyses import conduct as conducted
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.demo import PURPOSE
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import AskAnalysis, request_of
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.study_summary import describe
from wardround.report.run.page import write_report
from wardround.runs.read import require_result
from wardround.study.analyses.analysis import analysis_recipe
from wardround.study.file import parse_study


@pytest.fixture(scope="module", autouse=True)
def lent():
    lend_spread()


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path)
    for home in made.homes.values():
        set_policy(home.policy_path, "components", "*")
    return made


def words(name="ages", cell=10, transforms=(), **settings):
    return parse_study(
        {
            "study": {"name": name, "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "site": "hospital", "preparation": {"smallest_cell": cell}},
            "analysis": {"name": "spread", "column": "age", **settings},
            **({"transforms": [{"name": one} for one in transforms]} if transforms else {}),
        },
        where="test",
    )


def ages(consortium):
    return pd.concat([pd.read_csv(path) for path in consortium.tables.values()])["age"].dropna()


def test_the_answer_is_that_of_all_rows_in_one_place(consortium):
    found = consortium.conduct(words())
    assert found["numbers"]["mean"] == pytest.approx(ages(consortium).mean(), rel=1e-12)
    assert found["numbers"]["deviations"] == pytest.approx(ages(consortium).var(ddof=0) * len(ages(consortium)))
    assert (found["deployed"], found["exchanges"], found["numbers_sent"]) == (True, 2, 6)
    rows = {name: len(pd.read_csv(path)) for name, path in consortium.tables.items()}
    assert {one["name"]: one["rows"] for one in found["sites"]} == {name: n - n % 10 for name, n in rows.items()}


def test_what_leaves_is_what_was_listed_and_logged_once(consortium):
    study = words()
    consortium.conduct(study)
    for name in NAMES:
        kinds = [one["release"] for one in consortium.left(name, study)]
        assert kinds == ["query/kinds_of", "agree", "analysis/spread", "analysis/spread"]


def test_words_of_a_category_are_agreed_on(consortium):
    found = consortium.conduct(words(by="sex"))
    everybody = pd.concat([pd.read_csv(path) for path in consortium.tables.values()])
    levels = found["columns"]["sex"]["levels"]
    assert levels == sorted(everybody["sex"].dropna().unique())
    assert found["numbers"]["first"] == (everybody["sex"] == levels[0]).sum()


def offered(consortium, study, site="bo"):
    """The study's identity, after it was put before a site's administrator."""
    submission = Submission(study, NAMES, "researcher")
    request = request_of(submission.offer(), study=submission.id, number=0)
    consortium.transport.ask(site, "offer", request.body, 10.0)
    return submission.id


def test_an_approval_says_what_is_asked_how_often_and_how_many_numbers(consortium):
    name = offered(consortium, words())
    home = consortium.homes["bo"]
    summary = describe(home, read_offer(home, name))
    text = " ".join(sentence for _, part in summary.parts for sentence in part)
    assert summary.against == ()
    assert (summary.facts["columns"], summary.facts["exchanges"]) == (["age"], 2)
    assert "For the analysis spread, up to 2 times: how many of your patients have a age" in text
    assert "at most 3 numbers each time" in text
    assert "Sums for the analysis spread: all patients of the dataset, at most 2 times" in text
    assert "this study uses up to 4 of" in text


def test_a_column_that_a_policy_withholds_is_not_read(consortium):
    home = consortium.homes["bo"]
    set_policy(home.policy_path, "columns_denied", "age")
    with pytest.raises(Refusal, match="column 'age' is not allowed"):
        approve(home, offered(consortium, words()), by="admin")


def test_an_analysis_that_is_not_allowed_is_not_approved(consortium):
    home = consortium.homes["bo"]
    set_policy(home.policy_path, "components", "analysis/other")
    with pytest.raises(Refusal, match="the component analysis/spread is not allowed"):
        approve(home, offered(consortium, words()), by="admin")


def test_a_site_with_few_rows_adds_nothing_and_that_is_said(consortium):
    pd.read_csv(consortium.tables["bo"]).head(9).to_csv(consortium.tables["bo"], index=False)
    found = consortium.conduct(words())
    rest = pd.concat([pd.read_csv(consortium.tables[name]) for name in NAMES if name != "bo"])["age"].dropna()
    assert found["numbers"]["mean"] == pytest.approx(rest.mean(), rel=1e-12)
    assert found["numbers"]["count"] == len(rest)
    assert found["notes"] == ["bo has fewer than 10 rows, its smallest cell, and adds nothing."]


def test_statistics_are_counted_over_studies(consortium):
    set_policy(consortium.homes["bo"].policy_path, "statistics", "7")
    consortium.conduct(words())  # kinds_of and two exchanges were given: 3 of 7
    with pytest.raises(Refusal, match="asks for up to 5 statistics about demo, and 3 of the 7"):
        approve(consortium.homes["bo"], offered(consortium, words(name="again", most=3)), by="admin")


@pytest.mark.parametrize(
    "where", ["coordinator.agreement.saved", "coordinator.round.recorded", "coordinator.result.before_save"]
)
def test_a_coordinator_that_dies_comes_to_the_same_state(consortium, monkeypatch, where):
    study = words()
    passed = []

    def point(here):
        passed.append(here)
        if here == where and passed.count(where) == 1:
            raise Died

    monkeypatch.setattr(conducted, "point", point)
    found = consortium.until_done(study)
    assert consortium.deaths == ["coordinator"]
    assert found["numbers"]["mean"] == pytest.approx(ages(consortium).mean(), rel=1e-12)
    for name in NAMES:  # nothing left twice
        assert len(consortium.left(name, study)) == 4


def test_a_site_that_dies_gives_the_same_answer(consortium, monkeypatch):
    study = words()
    die_at(monkeypatch, "site.reply.saved", count=10)
    assert consortium.conduct(study)["numbers"]["count"] == len(ages(consortium))
    assert len(consortium.deaths) == 1


def test_an_answer_of_other_shapes_is_named(consortium):
    def change(site, topic, header, reply):
        if (site, topic) != ("kenema", "analysis"):
            return reply
        words, message = decode(reply)
        kept = {key: words[key] for key in ("status", "study", "round", "nonce", "site")}
        return encode(kept, Message({**message.arrays, "total": np.zeros(1000)}))

    consortium.change = change
    with pytest.raises(Refusal, match=r"kenema: its answer has an array of shape \(1000,\) where \(\) was expected"):
        consortium.conduct(words())


def test_what_an_analysis_cannot_be_is_refused_before_anybody_is_asked(consortium):
    partition = words().model_dump(mode="json")
    partition["data"]["partition"] = {"name": "iid", "sites": 3}
    with pytest.raises(Refusal, match="nothing to partition"):
        consortium.conduct(parse_study(partition, where="test"))
    quorum = words().model_dump(mode="json")
    quorum["deploy"]["quorum"] = 2
    with pytest.raises(Refusal, match="all of them must answer"):
        consortium.conduct(parse_study(quorum, where="test"))
    with pytest.raises(Refusal, match="needs the answer of each site by itself"):
        consortium.conduct(words(each=True, transforms=["secure_sum"]))
    assert consortium.asked == []


def test_each_answer_by_its_site_where_a_sum_is_not_enough(consortium):
    found = consortium.conduct(words(each=True))["numbers"]["each"]
    assert found == {name: pytest.approx(pd.read_csv(p)["age"].sum()) for name, p in consortium.tables.items()}


def test_the_run_folder_is_read_and_reported(consortium):
    study = words()
    consortium.conduct(study)
    result = require_result(consortium.run(study))
    assert (result.kind, result.deployed) == ("analysis", True)
    page = write_report(consortium.run(study)).read_text()
    assert all(part in page for part in ("The mean of age is", "over real hospitals"))
    assert json.loads((consortium.run(study) / "manifest.json").read_text())["kind"] == "analysis"


def test_under_a_secure_sum_the_answer_is_the_same_and_no_single_one_is_seen(consortium):
    plain, study = consortium.conduct(words(by="sex")), words(name="hidden", by="sex", transforms=["secure_sum"])
    found = consortium.conduct(study)
    assert found["numbers"] == pytest.approx(plain["numbers"], rel=1e-14)
    assert found["sums_only"]
    for name in NAMES:
        left = consortium.left(name, study)
        assert {one["release"] for one in left} == {"query/kinds_of", "query/names_of", "agree", "secure"}
        # Three numbers in four digits each are masked, and nothing else of the rows leaves.
        assert [one["arrays"] for one in left if "vector" in str(one["arrays"])] == [{"['vector']": [12]}] * 2


def test_a_single_answer_is_not_given_where_only_sums_are_opened(consortium):
    study = consortium.full(words(name="hidden", transforms=["secure_sum"]))
    consortium.conduct(study)
    asked = AskAnalysis(to_json(analysis_recipe(study)))
    message = Message({"around": np.array(0.0), "power": np.array(1.0)})
    request = request_of(asked, message, study=consortium.id(study), number=1)
    reply = read_reply(consortium.transport.ask("bo", "analysis", request.body, 10.0))
    assert (reply.status, "only the sum of the answers is opened" in reply.why) == ("refused", True)


def test_two_sites_are_too_few_for_a_secure_sum(tmp_path):
    with pytest.raises(Refusal, match="2 sites with patients take part"):
        Consortium(tmp_path, NAMES[:2]).conduct(words(transforms=["secure_sum"]))
