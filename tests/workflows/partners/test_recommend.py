"""With whom should I train: the answer, its reasons, and what is refused."""

import json
import re

import numpy as np
import pytest

from tests.support.results import plain
from wardround.cli.app import main
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import assemble as federation_of_parts
from wardround.incentives.statement import settle_dilution
from wardround.partners.choice import Evidence
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import parse_study
from wardround.workflows.partners.gain import NEGLIGIBLE, verdict_of
from wardround.workflows.partners.recommend import (
    average_evidence,
    check_partners,
    copied_rows,
    large_partners,
    partners,
)

STUDY = """
[study]
name = "s"
seed = 5
rounds = 10
user = "Freetown"
[data]
source = "triage"
hospitals = 4
degree = 1.0
patients = 150
{data}
[algorithm]
name = "fed_avg"
learning_rate = 0.2
[evaluation]
resamples = 200
[partners]
repeats = 2
measures = ["gradient_distance", "leave_one_out"]
{partners}
"""


def words(data="", partners=""):
    import tomllib

    return parse_study(tomllib.loads(STUDY.format(data=data, partners=partners)), where="s.toml")


def planned(study):
    return check_partners(study, assemble.load_setting(study, study.study.seed))


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = RunFolder.create(tmp_path_factory.mktemp("p") / "run", resume=False)
    result = plain(partners(planned(words()), folder))
    assert json.loads((folder.path / "result.json").read_text())["asking"] == "Freetown"
    return result


def test_the_hospital_of_the_same_group_is_the_best_partner(answer):
    told = answer["verdict"]
    assert answer["truth"]["groups"]["urban"] == ["Freetown", "Bo"]
    assert told["partners"][0] == "Bo"
    assert set(told["partners"]) | set(told["others"]) == {"Kenema", "Bo", "Port Loko"}
    assert told["headline"].startswith("Train with Bo")
    assert set(told["reasons"]) == {"Kenema", "Bo", "Port Loko"}


def test_the_gain_is_that_of_the_advised_set_and_the_verdict_follows_from_its_interval(answer):
    verdict = answer["verdict"]
    gain, measured = verdict["gain"], verdict["gain"]["measured"]
    rows = next(site for site in answer["sites"] if site["name"] == "Freetown")
    assert gain["patients"] == rows["validation"]
    assert gain["of"] == verdict["partners"]
    assert measured["difference"] == pytest.approx(gain["together"] - gain["alone"])
    assert gain["low"] <= gain["difference"] <= gain["high"]
    span = (gain["difference"], gain["low"], gain["high"])
    held = (measured["difference"], measured["low"], measured["high"])
    assert verdict["helps"] == verdict_of(span, held, True, NEGLIGIBLE)
    assert (gain["patients_needed"] is not None) <= (verdict["helps"] == "unclear")
    assert "partial_pooling" in verdict["method"]


def test_measures_matrices_map_and_feedback_are_there(answer):
    assert [one["name"] for one in answer["measures"]] == ["evidence", "gradient_distance", "leave_one_out"]
    assert {one["measure"] for one in answer["agreement"]} == {"evidence", "gradient_distance"}
    for one in answer["similarity"]:
        assert np.array(one["matrix"], float).shape == (4, 4)
    assert {site["name"] for site in answer["map"]["sites"]} == {"Freetown", "Kenema", "Bo", "Port Loko"}
    assert [one["site"] for one in answer["pairs"]] == ["Kenema", "Bo", "Port Loko"]
    ranks = {one["site"]: one["rank"] for one in answer["feedback"]}
    assert ranks["Bo"]["place"] == 1
    assert ranks["Freetown"] is None
    shares = [row["row_share"] for row in answer["dilution"]]
    assert sum(shares) == pytest.approx(1)
    assert answer["cost"]["bytes_up"] > 0


def test_a_site_over_its_limit_withdraws_and_the_choice_is_made_again(tmp_path):
    said = words(partners="top = 1\nlimits = { Bo = 0.05 }")
    told = plain(partners(planned(said), RunFolder.create(tmp_path / "run", resume=False)))
    assert "Bo" not in told["verdict"]["partners"]
    assert len(told["verdict"]["partners"]) == 1
    assert "Bo" in told["verdict"]["withdrawn"]
    assert "accepts at most 5.0%" in told["verdict"]["reasons"]["Bo"]


def test_when_all_withdraw_the_local_model_is_offered(tmp_path):
    said = words(partners='withdrawn = ["Bo", "Kenema", "Port Loko"]')
    told = plain(partners(planned(said), RunFolder.create(tmp_path / "run", resume=False)))
    assert told["verdict"]["partners"] == []
    assert told["verdict"]["helps"] == "unclear"  # nobody was there to ask, so no interval says "no"
    assert told["verdict"]["headline"].startswith("There is nobody for Freetown to train with.")
    assert "local" in told["verdict"]["headline"]
    assert told["verdict"]["gain"]["difference"] is None


@pytest.mark.parametrize(
    ("data", "asking", "what"),
    [
        ("", "Freetwn", r"did you mean 'Freetown'"),
        ("shares = [0.8, 0.2, 0.0]", "Freetown", "no test patients"),
        ("shares = [0.8, 0.0, 0.2]", "Freetown", "no validation patients"),
    ],
)
def test_bad_input_is_one_paragraph_and_nothing_is_written(data, asking, what, tmp_path, capsys):
    path = tmp_path / "s.toml"
    path.write_text(STUDY.format(data=data, partners=""))
    with pytest.raises(SystemExit) as ended:
        main(["partners", str(path), "--for", asking, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert re.search(what, said)
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_mean_over_splits_by_hand():
    one = Evidence(np.array([np.nan, -1.0, -3.0]), np.array([np.nan, 3.0, np.nan]), -2.0)
    two = Evidence(np.array([np.nan, -2.0, np.nan]), np.array([np.nan, 4.0, np.nan]), -4.0)
    mean = average_evidence([one, two])
    np.testing.assert_allclose(mean.score, [np.nan, -1.5, -3.0])
    # Root mean square: sqrt((9 + 16) / 2).
    np.testing.assert_allclose(mean.error, [np.nan, np.sqrt(12.5), np.nan])
    assert mean.cut == -3.0


def test_a_choice_that_does_not_exist_is_refused():
    said = words().model_copy()
    with pytest.raises(Refusal, match="ndoye"):
        planned(words(partners='name = "ndoy"'))
    assert said.partners is not None


@pytest.mark.parametrize(("copied_by", "expected"), [("Bo", 1), (None, 0)])
def test_a_site_that_hands_on_anothers_patients_is_named(copied_by, expected):
    """Three sites of 30 rows of numbers; the third may hold the rows of the second."""
    generator = np.random.default_rng(0)
    rows = [(generator.normal(size=(30, 2)).astype(np.float32), np.arange(30) % 2) for _ in range(3)]
    if copied_by:
        rows[2] = rows[1]
    parts = [
        (name, [one, (one[0][:0], one[1][:0])] * 1 + [(one[0][:0], one[1][:0])])
        for name, one in zip("ABC", rows, strict=True)
    ]
    told = copied_rows(assemble.Setting(federation_of_parts(parts, Task((2,), ("no", "yes"))), "f"))
    assert len(told) == expected
    assert all(words.startswith("100 % of the patients of C or B") for words in told)


@pytest.mark.parametrize(("rows", "expected"), [(3600, ["D would be 98 % of the training rows"]), (36, [])])
def test_a_partner_a_hundred_times_larger_is_said_to_be_all_there_is(rows, expected):
    settlement = settle_dilution(lambda gone: ["B", "D"], {"A": 36, "B": 36, "D": rows}, {}, "A")  # 3600 of 3672
    told = large_partners(settlement, "A")
    assert [words.split(":")[0] for words in told] == expected
    assert all("partial_pooling" in words for words in told)
