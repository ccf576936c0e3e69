"""What can be wrong with rules, records and experts: one paragraph, exit code 2, and nothing half-written."""

import json

import pandas as pd
import pytest

from tests.support import tiny_study as tiny
from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.study.file import parse_study, read_study
from wardround.study.sections.votes import vote_notes

NOTES = ["has pain", "has fever", "is fine", "is well"]
ILL = {"name": "unigram", "column": "note", "word": "pain", "label": "ill"}
WELL = {"name": "unigram", "column": "note", "word": "fine", "label": "well"}
NOWHERE = {**ILL, "word": "nowhere"}
MINING = {"name": "rule_mining", "labels": ["ill", "well"]}
BEAT = {"name": "template", "series": "beat_", "samples": [0.0, 1.0, 0.0], "distance": 1.0, "label": "ill"}
FORMAT = "wardround labeling functions 1"
TEXT = {"texts": {"note": {"features": 4}}}


def table(folder, notes=NOTES, **more):
    rows = pd.DataFrame({"hospital": ["a", "b", "c"] * 4, "note": (notes * 12)[:12], "state": ["ill", "well"] * 6})
    rows.assign(**more).to_csv(folder / "notes.csv", index=False)


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def study_file(folder, cleaning=None, analysis=None):
    data = {"source": "csv", "path": "notes.csv", "site": "hospital"}
    words = {"study": {"name": "votes"}, "data": data}
    if analysis:
        words["analysis"] = analysis
    else:
        data |= {"target": "state", "positive": "ill", "cleaning": cleaning}
        words |= {"model": {"name": "weasel"}, "algorithm": {"name": "fed_avg", "learning_rate": 0.1}}
    path = folder / "study.toml"
    path.write_text("\n".join(f"{key} = {toml(value)}" for key, value in words.items()))
    return path


def refused(capsys, folder, study, *words, command="run"):
    said = tiny.call(capsys, command, study, "--out", folder / "out")
    assert said.code == 2, said
    assert len(said.err.strip().splitlines()) == 1
    assert said.err.startswith("wardround: ")
    assert "Fix: " in said.err
    for word in words:
        assert word in said.err, said.err


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([NOWHERE, {**WELL, "word": "neither"}], ("No labeling function for 'ill' or 'well' fires on any of 12 rows",)),
        ([NOWHERE, WELL], ("No labeling function for 'ill' fires on any of 12 rows", "rule_votes")),
        ([ILL, {**ILL, "word": "fever"}], ("All labeling functions vote for one class (ill)", "add functions")),
        ([BEAT, WELL], ("'beat_0' is missing",)),
    ],
    ids=["always abstain", "one class is never voted for", "one class only", "series that the table does not have"],
)
def test_rules_that_teach_nothing(capsys, tmp_path, rules, words):
    table(tmp_path)
    refused(capsys, tmp_path, study_file(tmp_path, {**TEXT, "rules": rules}), *words)


def test_empty_documents(capsys, tmp_path):
    table(tmp_path, [""])
    refused(capsys, tmp_path, study_file(tmp_path, {**TEXT, "rules": [ILL, WELL]}), "fires on any of 12 rows")


def test_a_function_file_edited_by_hand(capsys, tmp_path):
    table(tmp_path)
    path = tmp_path / "functions.json"
    path.write_text(json.dumps({"format": FORMAT, "functions": [WELL, {**ILL, "name": "big"}]}))
    study = study_file(tmp_path, {**TEXT, "rules": "functions.json"})
    refused(capsys, tmp_path, study, "There is no labeling_function called 'big'", "functions.json, function 2")
    path.write_text(json.dumps({"format": FORMAT, "functions": [WELL, ILL]}))
    assert read_study(study).data.cleaning.rules == [WELL, ILL]


@pytest.mark.parametrize(
    ("analysis", "words"),
    [
        ({"kind": "series", "series": "beat_", "length": 3}, ("'beat_2'", "missing")),
        ({"kind": "series", "series": "beat_", "length": 1}, ("need series",)),
        ({"column": "note", "labels": ["ill"]}, ("two different labels or more",)),
        ({"column": "note", "frequency": [0.9, 1.0]}, ("o candidate rule is common to 3 sites",)),
    ],
    ids=["series of another length", "series of one sample", "one class", "no word is common"],
)
def test_mining_of_what_is_not_there(capsys, tmp_path, analysis, words):
    table(tmp_path, beat_0=1.0, beat_1=2.0)
    refused(capsys, tmp_path, study_file(tmp_path, analysis={**MINING, **analysis}), *words, command="label")


def test_rules_that_always_or_never_fire_are_noted_beside_others(tmp_path):
    rules = [ILL, WELL, NOWHERE, {"name": "threshold", "condition": "pulse > 0", "label": "ill"}]
    votes = pd.DataFrame({"rule 1": [1, 0], "rule 2": [0, 1], "rule 3": [0, 0], "rule 4": [1, 1]})
    data = {"source": "csv", "path": "x.csv", "target": "state", "cleaning": {"rules": rules}}
    words = {"study": {"name": "votes"}, "data": data, "model": {"name": "weasel"}}
    sites = {"a": votes, "b": votes, "nobody": votes.iloc[:0]}
    assert vote_notes(parse_study(words, where="test"), Table(sites, "state", "x.csv")) == [
        'Rule 3 (ill where note has the word "nowhere") fires on none of the rows, so it teaches nothing.',
        "Rule 4 (ill where pulse > 0) fires on all rows, so it tells nothing apart.",
    ]
    # A model that takes votes for numbers like others learns from one class of rules, too.
    plain = parse_study({**words, "model": {"name": "logistic"}}, where="test")
    only = {"a": votes.assign(**{"rule 2": 0})}
    assert len(vote_notes(plain, Table(only, "state", "x.csv"))) == 3
    with pytest.raises(Refusal, match="No labeling function for 'well' fires on any of 2 rows"):
        vote_notes(parse_study(words, where="test"), Table(only, "state", "x.csv"))
