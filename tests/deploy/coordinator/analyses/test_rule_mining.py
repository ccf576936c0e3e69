"""Rules mined over real sites under a secure sum: the rules of the simulation, and nothing beyond what was approved."""

import json
import threading
import time

import numpy as np
import pandas as pd
import pytest

import wardround as wr
from tests.support.in_process import NAMES, Consortium
from wardround.core.errors import Refusal
from wardround.deploy.demo import PURPOSE
from wardround.deploy.site.analyses.releases import analysis_releases
from wardround.deploy.site.policy_file import set_policy
from wardround.study.analyses.analysis import all_settings, analysis_recipe, analysis_terms
from wardround.study.file import parse_study
from wardround.workflows.expert import give_answer, waiting_question

GOOD, BAD = ("lovely", "superb", "gentle"), ("awful", "boring", "stupid")


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path)
    for place, (name, path) in enumerate(made.tables.items()):
        generator = np.random.default_rng(place)
        good = generator.random(60) < 0.5
        texts = [" ".join([*generator.choice(GOOD if one else BAD, 2), "seen"]) for one in good]
        pd.DataFrame({"note": texts, "kind": np.where(good, "good", "bad")}).to_csv(path, index=False)
        set_policy(made.homes[name].policy_path, "components", "*")
        set_policy(made.homes[name].policy_path, "columns", "*")
    return made


def words(**analysis):
    return parse_study(
        {
            "study": {"name": "mined", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "site": "hospital", "preparation": {"smallest_cell": 10}},
            "analysis": {
                "name": "rule_mining", "labels": ["bad", "good"], "column": "note", "questions": 4,
                "seeds": ["lovely -> good", "awful -> bad"], "frequency": [0.05, 0.9], **analysis,
            },
            "transforms": [{"name": "secure_sum"}],
        },
        where="test",
    )  # fmt: skip


@pytest.mark.slow
def test_an_expert_answers_through_the_folder_and_the_rules_are_the_simulation_s(consortium, tmp_path):
    study, answers = words(), []

    def judge(asked):
        rule = asked.facts["rule"]
        answers.append((rule["word"], rule["label"]))
        return "yes" if rule["word"] in (GOOD if rule["label"] == "good" else BAD) else "no"

    folder = consortium.run(study)
    ended = threading.Event()

    def expert():
        while not ended.is_set():
            asked = waiting_question(folder) if folder.exists() else None
            if asked is not None:
                give_answer(folder, asked, judge(asked))
            time.sleep(0.2)

    person = threading.Thread(target=expert, daemon=True)
    person.start()
    found = consortium.conduct(study)
    ended.set()
    frames = [pd.read_csv(path).assign(hospital=name) for name, path in consortium.tables.items()]
    pd.concat(frames).to_csv(tmp_path / "all.csv", index=False)
    simulated = study.model_copy(update={"data": study.data.model_copy(update={"path": str(tmp_path / "all.csv")})})
    expected = wr.analyse(simulated, out=tmp_path / "simulated", expert=judge).result
    assert found["numbers"]["answers"] == [list(one) for one in expected.numbers["answers"]]
    assert found["numbers"]["functions"] == list(expected.numbers["functions"])
    kinds = {one["release"] for one in consortium.left(NAMES[0], study)}
    assert kinds == {"query/kinds_of", "agree", "secure"}
    assert len((folder / "expert.jsonl").read_text().splitlines()) == 4
    assert json.loads((folder / "functions.json").read_text())["functions"] == found["numbers"]["functions"]


def test_whoever_approves_reads_what_leaves_and_what_a_coordinator_could_learn():
    study = words()
    told = analysis_terms(analysis_recipe(study)).describe(all_settings(analysis_recipe(study)))
    assert "no word is sent" in told
    assert "words with digits, denied words and likely names are left out" in told
    assert "a rule that fewer than 3 sites propose is shown to nobody" in told
    assert "a coordinator that deviates can learn" in told


def test_a_site_that_protects_small_groups_answers_in_a_secure_sum_only():
    alone = words().model_copy(update={"transforms": []})
    with pytest.raises(Refusal, match="single answer to rule_mining tells of fewer than 10 patients"):
        analysis_releases(alone, {"note": "text"}, 10)
    assert [one.kind for one in analysis_releases(words(), {"note": "text"}, 10)][-2:] == ["secure", "refusal"]
