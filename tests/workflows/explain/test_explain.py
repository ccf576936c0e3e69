import json
import shutil

import numpy as np
import pandas as pd
import pytest

from benchmarks.planted_region import planted
from wardround.api.commands import explain_study
from wardround.cli.app import main
from wardround.core.errors import Refusal
from wardround.predict.selection import SelectionPredictor
from wardround.runs.explain.selection_file import find_selection, read_selection
from wardround.runs.read import require_result
from wardround.study.file import parse_study, read_study

WORDS = """
[study]
name = "planted"
seed = 1

[data]
source = "csv"
path = "patients.csv"
site = "hospital"
target = "died"
positive = "yes"
shares = [0.4, 0.3, 0.3]
drop = ["inside"]

[explain]
points = ["youden", "sensitivity=0.9"]
shuffles = 19
k = 25

[explain.units]
lactate = "mmol/l"
"""


def write_study(folder, tables, words=WORDS):
    rows = pd.concat([table.assign(hospital=name) for name, table in tables.items()])
    rows.to_csv(folder / "patients.csv", index=False)
    (folder / "study.toml").write_text(words)
    return folder / "study.toml"


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """A run of the command on two hospitals with a planted region, and its folder."""
    folder = tmp_path_factory.mktemp("explain")
    write_study(folder, planted(1500, 1))
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(folder / "study.toml"), "--out", str(folder / "run"), "--json"])
    assert ended.value.code == 0
    return folder


def test_the_planted_region_is_found_in_words(explained):
    result = require_result(explained / "run")
    a, b = result.sites
    assert (a.site, a.verdict) == ("A", "gain")
    used = [rule for rule in a.rules if rule.used]
    assert used[0].words.startswith(("lactate above 2", "lactate above 1.9"))
    assert "mmol/l" in used[0].words
    assert "age at most 6" in used[0].words
    assert used[0].source == "B"
    assert a.headline.startswith("On ")
    assert "B's model is right more often" in a.headline
    # B sees far more of such patients, and knows it.
    assert used[0].there > 0.9 > used[0].here
    assert used[0].more_there < 1e-6
    cell = a.cell("youden", "local")
    rules = cell.strategy("rules")
    assert rules.test.right + rules.test.wrong == sum(rule.right + rule.wrong for rule in used)
    assert rules.test.success > 0.6
    assert {one.point for one in a.cells} == {"youden", "sensitivity 0.9"}
    assert {one.keeps for one in a.cells} == {"local", "own"}
    assert b.verdict in ("none", "unconfirmed", "gain")


def test_predict_follows_the_rules_and_says_so(explained, capsys):
    new = planted(400, 77)["A"]
    new.assign(number=range(400)).to_csv(explained / "new.csv", index=False)
    out = explained / "predicted.csv"
    options = ["--site", "A", "--keep", "number", "--out", str(out)]
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(explained / "run"), str(explained / "new.csv"), *options])
    assert ended.value.code == 0
    assert "A's own model decided for" in capsys.readouterr().out
    table = pd.read_csv(out)
    inside = new["inside"].to_numpy()
    by_b = (table["decided by"] == "B").to_numpy()
    assert (by_b & inside).sum() >= 0.85 * inside.sum()
    assert (by_b & inside).sum() >= 0.85 * by_b.sum()
    assert (table["rule"][~by_b] == "none: the own model decides").all()
    assert table["rule"][by_b].str.contains("lactate above").all()
    # The rules make the predictions better than the own model alone.
    folder = find_selection(explained / "run", "A")
    selection = read_selection(folder)
    own = SelectionPredictor(selection, folder).classifiers["A"]
    died = (new["died"] == "yes").to_numpy()
    alone = ((own.scores(new) >= selection.thresholds["A"]) == died).mean()
    assert (table["died"] == new["died"].to_numpy()).mean() > alone + 0.05


def test_predict_refuses_what_it_cannot_follow(explained, capsys):
    run, new = str(explained / "run"), str(explained / "new.csv")
    for options, said in (
        ([], "Every site has rules of its own here"),
        (["--site", "C"], "There are no rules of C"),
        (["--site", "A", "--explain"], "about one model"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["predict", run, new, *options])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


def test_a_classifier_that_was_exchanged_is_checked_again(explained, tmp_path):
    shutil.copytree(explained / "run", tmp_path / "run")
    folder = find_selection(tmp_path / "run", "A")
    selection = read_selection(folder)
    (folder / "B.onnx").write_bytes(b"changed")
    with pytest.raises(Refusal, match="ONNX"):
        SelectionPredictor(selection, folder)
    (folder / "B.onnx").unlink()
    with pytest.raises(Refusal, match="classifier of B is missing"):
        SelectionPredictor(selection, folder)
    (folder / "selection.json").write_text('{"format": 1}')
    with pytest.raises(Refusal, match="damaged"):
        read_selection(folder)


def test_nothing_about_patients_is_in_the_run_folder(explained):
    # The columns hold thousands of different values: none of the patients' own may be in a file of the folder.
    values = {f"{value:.2f}" for value in planted(1500, 1)["A"]["lactate"] if value > 10}
    files = [one for one in (explained / "run" / "selection").rglob("*") if one.is_file()]
    assert {one.name for one in files} == {"selection.json", "A.onnx", "B.onnx"}
    text = (explained / "run" / "selection" / "A" / "selection.json").read_text()
    assert not [value for value in values if value in text]


def test_the_page_says_it_for_clinicians(explained):
    page = (explained / "run" / "report.html").read_text()
    for words in ("The answer", "B&#x27;s model", "Otherwise A's own model decides", "What this cannot tell"):
        assert words in page or words.replace("'", "&#x27;") in page


def study_of(tables, **explain):
    return {
        "study": {"name": "small", "seed": 1},
        "data": {"source": "csv", "path": "patients.csv", "site": "hospital", "target": "died", "drop": ["inside"]},
        "explain": {"points": ["youden"], "prune": False, "k": 10, **explain},
    }


def run_small(tmp_path, tables, **explain):
    write_study(tmp_path, tables)
    content = study_of(tables, **explain)
    content["data"]["path"] = str(tmp_path / "patients.csv")
    return explain_study(parse_study(content, where="study"), out=tmp_path / "out")[0]


def test_three_sites_with_classifiers_of_their_own_kind(tmp_path):
    tables = planted(400, 3)
    tables["C"] = planted(400, 4)["A"]
    (tmp_path / "b.onnx").write_bytes(b"nothing")  # B is left out, the others go on
    result = run_small(tmp_path, tables, classifiers={"C": "gradient_boosting"}, files={"B": str(tmp_path / "b.onnx")})
    assert {one.site: one.kind for one in result.classifiers} == {
        "A": "logistic regression with ridge penalty",
        "C": "gradient boosting",
    }
    assert "is no ONNX file" in result.absent["B"]
    assert [one.site for one in result.sites] == ["A", "C"]


def test_sources_can_be_hidden(tmp_path):
    result = run_small(tmp_path, planted(400, 3), hide_sources=True)
    assert {one.site for one in result.sites} == {"hospital 1", "hospital 2"}


def test_patients_with_several_rows_stay_together_and_rows_are_beside(tmp_path):
    tables = {}
    for name, table in planted(300, 5).items():
        twice = pd.concat([table, table.assign(pulse=table["pulse"] + 1)])
        tables[name] = twice.assign(patient=[f"{name}{at}" for at in [*range(300), *range(300)]])
    write_study(tmp_path, tables)
    content = study_of(tables)
    content["data"] |= {"path": str(tmp_path / "patients.csv"), "split_by": "patient"}
    content["explain"] |= {"repeats": 2}
    result = explain_study(parse_study(content, where="study"), out=tmp_path / "out")[0]
    assert [(one.seed, one.by) for one in result.sites[0].splits] == [
        (1, "patient"), (1, "row"), (2, "patient"), (2, "row"),
    ]  # fmt: skip
    assert "patient" not in result.task.features


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"k": 5000}, "5000 neighbours are asked for"),
        ({"classifiers": {"Z": "ridge"}}, "no site called 'Z'"),
        ({"files": {"A": "/nowhere.onnx", "B": "/nowhere.onnx"}}, "an exchange needs two"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, change, said):
    with pytest.raises(Refusal, match=said):
        run_small(tmp_path, planted(300, 3), **change)
    assert not (tmp_path / "out" / "result.json").exists()


def test_one_outcome_is_refused_and_numbers_are(tmp_path):
    tables = planted(300, 3)
    tables["B"] = tables["B"].assign(died="no")
    with pytest.raises(Refusal, match="an exchange needs two"):
        run_small(tmp_path, tables)
    numbers = {name: table.assign(died=np.arange(300.0)) for name, table in planted(300, 3).items()}
    with pytest.raises(Refusal, match="rules are about classifiers of two outcomes"):
        run_small(tmp_path, numbers)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('points = ["often"]', "no operating point"),
        ('classifier = "oracle"', "classifier"),
        ("least = 0.9", "least"),
        ("neighbours = 5", "Unknown key 'neighbours'"),
    ],
)
def test_the_study_file_is_checked(tmp_path, words, said):
    (tmp_path / "study.toml").write_text(f'[study]\nname = "x"\n[data]\nsource = "triage"\n[explain]\n{words}\n')
    with pytest.raises(Refusal, match=said):
        read_study(tmp_path / "study.toml")


def test_privacy_needs_the_studys_own_model(tmp_path):
    content = study_of({})
    content["data"]["path"] = str(tmp_path / "patients.csv")
    content["privacy"] = {"epsilon": 3.0}
    with pytest.raises(Refusal, match='classifier = "study"'):
        explain_study(parse_study(content, where="study"), out=tmp_path / "out")


def test_the_result_is_json(explained):
    found = json.loads((explained / "run" / "result.json").read_text())
    assert found["kind"] == "explain"
    assert found["sites"][0]["cells"][0]["strategies"][0]["test"]["sources"] == {
        "B": found["sites"][0]["cells"][0]["strategies"][0]["test"]["rows"]
    }


ONE_RULE = WORDS.replace('"youden", "sensitivity=0.9"', '"youden"').replace(
    "k = 25", "k = 40\nleast = 0.49\nmost_rules = 1\nboth_ways = false"
)
"""Rules so wide that none helps: what is confirmed is the threshold of competence."""


@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_confirmed_threshold_is_followed_where_the_sites_patients_are_kept(tmp_path, capsys, kept):
    words = ONE_RULE.replace("k = 40", f"k = 40\nkeep_neighbours = {str(kept).lower()}")
    explain_study(read_study(write_study(tmp_path, planted(2000, 3), words)), out=tmp_path / "run")
    folder = find_selection(tmp_path / "run", "A")
    selection = read_selection(folder)
    assert selection.strategy == "hybrid"
    assert (folder / "neighbours.safetensors").is_file() == kept
    new = planted(400, 78)["A"]
    new.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "--site", "A", "--out", str(tmp_path / "o")])
    assert ended.value.code == 0
    table, said = pd.read_csv(tmp_path / "o"), capsys.readouterr().out
    inside, by_b = new["inside"].to_numpy(), (table["decided by"] == "B").to_numpy()
    if not kept:
        assert not by_b.any()
        assert "Not followed: a threshold of competence was confirmed" in said
        return
    assert "(by rules and competence)" in said
    assert table["rule"][by_b].str.contains("B is more competent among the 40 most similar patients here").all()
    assert (by_b & inside).sum() > 0.8 * by_b.sum() > 0
