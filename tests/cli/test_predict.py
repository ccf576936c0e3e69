"""`wardround predict`: what a user types, what comes out, and one paragraph for each mistake."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import tiny_study as tiny
from tests.support.mixed_patients import patients, study_of, train
from wardround.runs.model_file import read_facts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of a common with personal models, and tables beside it."""
    folder = tmp_path_factory.mktemp("predict")
    frame = patients(12)
    frame.to_csv(folder / "patients.csv", index=False)
    words = {"name": "mixed", "seed": 3, "rounds": 1}
    compare = {"methods": ["fed_avg", "fine_tune"], "repeats": 1}
    train(study_of(folder / "patients.csv", study=words, compare=compare), folder / "run")
    frame.dropna().head(3).to_csv(folder / "three.csv", index=False)
    frame.head(0).to_csv(folder / "empty.csv", index=False)
    frame.rename(columns={"age": "Age", "sex": "gender"}).to_csv(folder / "other.csv", index=False)
    frame.rename(columns={"age": "ages"}).to_csv(folder / "misspelt.csv", index=False)
    frame.assign(age="old").to_csv(folder / "words.csv", index=False)
    (folder / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    return folder


def predict(capsys: pytest.CaptureFixture[str], place: Path, table: str, *options: str | Path) -> tiny.Said:
    method = () if "--method" in options else ("--method", "fed_avg")
    return tiny.call(capsys, "predict", place / "run", place / table if table != "-" else "-", *method, *options)


def test_a_pipe_gets_csv_and_a_program_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = predict(capsys, place, "three.csv", "--keep", "patient")
    table = pd.read_csv(io.StringIO(said.out))
    assert list(table.columns) == [
        *("patient", "probability of ill", "outcome", "missing", "outside the training range", "unknown")
    ]
    told = predict(capsys, place, "three.csv", "--keep", "patient", "--json").json
    assert (told["study"], told["method"], told["site"], told["target"]) == ("mixed", "fed_avg", None, "outcome")
    found = [one["probability of ill"] for one in told["patients"]]
    np.testing.assert_allclose(found, table["probability of ill"], rtol=1e-6)
    point = read_facts(place / "run" / "model-fed_avg.safetensors").threshold
    assert [one["outcome"] for one in told["patients"]] == ["ill" if chance >= point else "well" for chance in found]


def test_the_known_outcome_can_stand_beside_the_predicted_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = predict(
        capsys, place, "three.csv", "--keep", "patient", "--keep", "outcome", "--keep", "patient", "--json"
    ).json
    table = pd.read_csv(place / "three.csv")
    assert [one["outcome (given)"] for one in told["patients"]] == list(table["outcome"])
    assert list(told["patients"][0])[:4] == ["patient", "outcome (given)", "probability of ill", "outcome"]


def test_a_personal_model_is_another(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = predict(capsys, place, "three.csv", "--json").json["patients"]
    own = predict(capsys, place, "three.csv", "--method", "fine_tune", "--site", "north", "--json").json
    assert own["site"] == "north"
    assert own["patients"][0]["probability of ill"] != common[0]["probability of ill"]


def test_standard_input_and_files(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = predict(capsys, place, "three.csv").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((place / "three.csv").read_bytes())))
    assert predict(capsys, place, "-").out == usual
    for suffix in ("csv", "parquet", "json"):
        said = predict(capsys, place, "three.csv", "--out", tmp_path / f"scores.{suffix}")
        assert said.out.startswith("outcome of 3 patients by the model (Common model) of the study mixed.")
    assert (tmp_path / "scores.csv").read_text() == usual
    written = pd.read_parquet(tmp_path / "scores.parquet")
    assert written["probability of ill"].dtype == np.float32
    assert len(json.loads((tmp_path / "scores.json").read_text())["patients"]) == 3


def test_other_settings_of_a_file(place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pd.read_csv(place / "three.csv").to_csv(tmp_path / "b.csv", sep=";", decimal=",", index=False)
    options = ("--method", "fed_avg", "--setting", "separator=;", "--setting", "decimal=,")
    assert tiny.call(capsys, "predict", place / "run", tmp_path / "b.csv", *options).out == (
        predict(capsys, place, "three.csv").out
    )
    said = tiny.call(capsys, "predict", place / "run", tmp_path / "b.csv", "--method", "fed_avg")
    assert said.code == 2
    assert "is one column" in said.err


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        ("other.csv", (), "2 of 5 columns are missing: age, sex; the table has Age, lactate, gender"),
        ("misspelt.csv", (), "Column 'age' is missing; did you mean 'ages'?"),
        ("empty.csv", (), "The table has no rows"),
        ("words.csv", (), "Column 'age' holds text but numbers were expected"),
        ("nowhere.csv", (), "There is no such file"),
        ("broken.parquet", (), "The file cannot be read"),
        (".", (), "This is a folder, not a table"),
        ("three.csv", ("--keep", "patent"), "did you mean 'patient'?"),
        ("three.csv", ("--site", "north"), "This method has no personal models, so there is none of north"),
        ("three.csv", ("--method", "fine_tune", "--site", "noth"), "There is no personal model of noth"),
        ("three.csv", ("--setting", "separatr=;"), "unknown key 'separatr'"),
        ("three.csv", ("--out", "/nowhere/scores.csv"), "The file's folder does not exist"),
    ],
)
def test_mistakes_are_one_paragraph_and_nothing_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, table: str, options: tuple[str, ...], words: str
) -> None:
    out = () if "--out" in options else ("--out", tmp_path / "scores.csv")
    said = predict(capsys, place, table, *options, *out)
    assert said.code == 2
    assert words.lower() in said.err.lower()
    assert "Fix: " in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_explanations_in_words_and_numbers(place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    told = predict(capsys, place, "three.csv", "--explain", "--page", page, "--json").json["patients"]
    for one in told:
        parts = [value for name, value in one.items() if name.startswith("contribution of ")]
        chance = one["probability of ill"]
        assert abs(one["typical log-odds"] + sum(parts) - np.log(chance / (1 - chance))) < 1e-5
        assert "it from" in one["explanation"]
    text = page.read_text()
    assert text.count("<svg") == 3
    assert "script" not in text.replace("form-action", "")
    assert "http://" not in text + "https://".replace("https://", "")
    assert "row 1" in text


def test_a_name_cannot_break_the_page(place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = pd.read_csv(place / "three.csv").assign(patient="<b onload=x>", sex='"><script>alert(1)</script>')
    table.to_csv(tmp_path / "a.csv", index=False)
    said = tiny.call(
        capsys, "predict", place / "run", tmp_path / "a.csv", "--method", "fed_avg",
        "--keep", "patient", "--page", tmp_path / "page.html",
    )  # fmt: skip
    assert said.code == 0
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "<b onload" not in text


def test_long_tables_are_not_explained_in_whole(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pd.concat([pd.read_csv(place / "three.csv")] * 70).to_csv(tmp_path / "a.csv", index=False)
    said = tiny.call(
        capsys, "predict", place / "run", tmp_path / "a.csv", "--method", "fed_avg", "--page", tmp_path / "page.html"
    )
    assert said.code == 2
    assert "210 patients are too many to be explained on one page" in said.err
