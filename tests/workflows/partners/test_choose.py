"""Partners are found over the engine that then trains with them, and what that costs is written down."""

import json

import numpy as np
import pytest

from tests.support.results import plain
from wardround.core.errors import Refusal
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import parse_study
from wardround.study.methods import compared_methods, own_method
from wardround.workflows.partners.choose import refuse_user
from wardround.workflows.run import run
from wardround.workflows.training_plan import check_methods


def study(**tables):
    words = {
        "study": {"name": "s", "rounds": 4, "user": "Freetown", **tables.pop("study", {})},
        "data": {"source": "triage", "hospitals": 4, "patients": 60, **tables.pop("data", {})},
        "evaluation": {"resamples": 0},
        **tables,
    }
    return parse_study(words, where="s.toml")


def lines(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_only_the_chosen_train_and_the_choice_is_round_0(tmp_path):
    said = study(partners={"name": "gradient_distance", "by_hand": ["Bo"]})
    folder = RunFolder.create(tmp_path / "run", resume=False)
    result = plain(run(said, folder, [own_method(said)], kind="run"))
    assert result["methods"][0]["partners"] == ["Bo"]
    first, *others = lines(folder.path)
    assert (first["round"], first["measures"]["told"]["chosen"]) == (0, ["Bo"])
    assert set(first["measures"]["told"]["score"]) == {"Kenema", "Bo", "Port Loko"}
    assert first["bytes_up"] > 0
    assert [one["sites"] for one in others] == [["Freetown", "Bo"]] * 4
    total = sum(one["bytes_up"] for one in (first, *others))
    assert result["methods"][0]["meters"]["traffic"]["bytes_up"] == total


def test_each_site_in_turn_is_predicted_by_the_model_trained_for_it(tmp_path):
    words = {"methods": ["local", "weight_erosion"], "users": "each", "repeats": 1}
    said = study(compare=words)
    folder = RunFolder.create(tmp_path / "run", resume=False)
    run(said, folder, compared_methods(said), kind="compare")
    users = {one.get("user") for one in lines(folder.path) if one["method"] == "weight_erosion"}
    assert users == {"Freetown", "Kenema", "Bo", "Port Loko"}
    # The figures of a site are those of a study in which this site alone asks.
    alone = study(study={"user": "Bo"}, compare={**words, "users": "one", "methods": ["weight_erosion"]})
    other = RunFolder.create(tmp_path / "other", resume=False)
    run(alone, other, compared_methods(alone), kind="compare")
    found = [json.loads((one.path / "result.json").read_text()) for one in (folder, other)]
    figures = [
        next(method for method in result["methods"] if method["name"] == "weight_erosion")["scores"]["sites"]["Bo"]
        for result in found
    ]
    assert figures[0] == figures[1]


def test_a_resumed_run_with_a_choice_tells_every_round_once(tmp_path):
    said = study(partners={"name": "gradient_distance", "top": 1})
    folder = RunFolder.create(tmp_path / "run", resume=False)
    run(said, folder, [own_method(said)], kind="run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    run(said, RunFolder.create(tmp_path / "run", resume=True), [own_method(said)], kind="run", resume=True)
    assert [one["round"] for one in lines(tmp_path / "run")] == [0, 1, 2, 3, 4]
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_an_absent_site_has_not_answered_and_can_be_taken_by_hand_only(tmp_path):
    there = {"participation": {"present": {"Bo": "2-"}}}
    said = study(partners={"name": "gradient_distance", "top": 3}, **there)
    folder = RunFolder.create(tmp_path / "run", resume=False)
    result = plain(run(said, folder, [own_method(said)], kind="run"))
    assert "Bo" not in result["methods"][0]["partners"]
    assert set(lines(folder.path)[0]["measures"]["told"]["score"]) == {"Kenema", "Port Loko"}
    late = study(partners={"name": "gradient_distance"}, participation={"present": {"Freetown": "2-"}})
    with pytest.raises(Refusal, match="not there in the first round"):
        run(late, RunFolder.create(tmp_path / "late", resume=False), [own_method(late)], kind="run")


def test_who_withdrew_is_no_candidate(tmp_path):
    said = study(partners={"name": "gradient_distance", "top": 3, "withdrawn": ["Bo"]})
    result = plain(run(said, RunFolder.create(tmp_path / "run", resume=False), [own_method(said)], kind="run"))
    assert sorted(result["methods"][0]["partners"]) == ["Kenema", "Port Loko"]
    everybody = study(partners={"name": "gradient_distance", "withdrawn": ["Bo", "Kenema", "Port Loko"]})
    alone = plain(
        run(everybody, RunFolder.create(tmp_path / "alone", resume=False), [own_method(everybody)], kind="run")
    )
    assert alone["methods"][0]["partners"] == []


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"study": {"user": "Freetwon"}}, "did you mean 'Freetown'"),
        ({"data": {"shares": [0.8, 0.2, 0.0]}}, "has no test patients"),
        ({"partners": {"name": "gradient_distance", "by_hand": ["Freetown"]}}, "not among the possible partners"),
        ({"partners": {"name": "gradient_distance", "top": 1, "threshold": 0.0}}, "two ways"),
        ({"partners": {"name": "gradient_distance", "withdrawn": ["Boo"]}}, "is not among the sites"),
    ],
)
def test_bad_input_is_refused(tables, words, tmp_path):
    said = study(**{"partners": {"name": "gradient_distance"}, **tables})
    setting = assemble.load_setting(said, 0)
    with pytest.raises(Refusal, match=words):
        check_methods(said, setting, [own_method(said)])


def test_an_asking_site_with_one_outcome_is_refused():
    said = study()
    setting = assemble.load_setting(said, 0)
    first, count = (int(column[0]) for column in setting.federation.part("test"))
    setting.federation.y[first : first + count] = 1
    with pytest.raises(Refusal, match="test patients of the asking site have the same outcome"):
        refuse_user(said, setting)
    setting.federation.y[: int(np.sum(setting.federation.counts[0]))] = 0
    with pytest.raises(Refusal, match="training patients of the asking site have the same outcome"):
        refuse_user(said, setting)


def test_stopping_on_the_asking_site_needs_its_validation_patients():
    said = study(data={"shares": [0.8, 0.0, 0.2]}, stopping={"patience": 2, "user": True})
    with pytest.raises(Refusal, match="no validation patients to stop by"):
        check_methods(said, assemble.load_setting(said, 0), [own_method(said)])
