"""`wardround export`: what it writes from a real run, and one paragraph for everything that cannot be right."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from wardround.cli.app import main
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.datasets.triage import triage
from wardround.data.folder import data_folder
from wardround.export.network import evaluate, plain_model
from wardround.export.onnx_model import onnx_inputs, run_onnx
from wardround.export.sklearn_model import sklearn_model
from wardround.export.trial_rows import largest_difference
from wardround.predict.predictor import read_predictor
from wardround.runs.model_file import write_model
from wardround.runs.models import find_model

STUDY = """
[study]
name = "small"
rounds = 2
purpose = "Who needs the <isolation> ward"

[data]
source = "triage"

[model]
name = "logistic"

[algorithm]
name = "fine_tune"

[evaluation]
resamples = 20
"""


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "study.toml").write_text(STUDY)
    assert command("run", folder / "study.toml", "--out", folder / "run") == 0
    return folder / "run"


def test_a_personal_model_of_a_run_in_every_form(run, tmp_path, capsys):
    predictor = read_predictor(find_model(run, None, "Kenema"), "Kenema")
    table = next(iter(triage(hospitals=2).sites.values()))
    files = {kind: tmp_path / f"model.{kind}" for kind in ("onnx", "sklearn", "calculator")}
    for kind, path in files.items():
        assert command("export", run, "--to", kind, "--site", "Kenema", "--unit", "age=years", "--out", path) == 0
        assert f"Written to {path}" in capsys.readouterr().out
    found = run_onnx(files["onnx"].read_bytes(), onnx_inputs(predictor.preparation, table))
    expected = predictor.predict(table)
    assert largest_difference(found[0], expected) <= 1e-5
    assert np.array_equal(sklearn_model(files["sklearn"]).predict_proba(table), np.float64(expected))
    page = files["calculator"].read_text(encoding="utf-8")
    assert "Personal model of Kenema, study small" in page
    assert "Who needs the &lt;isolation&gt; ward" in page
    assert "(years)" in page
    # The card has the figures of all hospitals, as the run's own model card has them.
    (method,) = json.loads((run / "model_card.json").read_text())["methods"]
    value = method["figures"]["roc_auc"]
    assert f"{value['value']:.3f}<br><span class='small'>({value['low']:.3f} to {value['high']:.3f})" in page


@pytest.mark.skipif(not (data_folder() / "uci_heart_disease").is_dir(), reason="heart_disease needs WARDROUND_DATA")
def test_real_patients_with_their_gaps(tmp_path):
    """All patients of four hospitals through every export that computes."""
    (tmp_path / "study.toml").write_text(STUDY.replace("triage", "heart_disease").replace("fine_tune", "fed_avg"))
    assert command("run", tmp_path / "study.toml", "--out", tmp_path / "run") == 0
    for kind in ("onnx", "sklearn"):
        assert command("export", tmp_path / "run", "--to", kind, "--out", tmp_path / kind) == 0
    predictor = read_predictor(find_model(tmp_path / "run"))
    patients = pd.concat(heart_disease().sites.values())
    prepared = patients[[column.name for column in predictor.preparation.columns]]
    assert len(patients) > 800
    assert prepared.isna().to_numpy().mean() > 0.05
    expected = predictor.predict(patients)
    found, _ = run_onnx((tmp_path / "onnx").read_bytes(), onnx_inputs(predictor.preparation, patients))
    assert largest_difference(found, expected) <= 1e-5
    assert np.array_equal(sklearn_model(tmp_path / "sklearn").predict_proba(patients), np.float64(expected))
    double = evaluate(plain_model(predictor), predictor.preparation.apply(patients))  # what the calculator computes
    assert largest_difference(double, expected) <= 1e-6


def test_the_how_to_gives_these_numbers(run, tmp_path, monkeypatch):
    """The Python of the page, in a folder with the files that its commands write."""
    page = (Path(__file__).parents[2] / "docs/how-to/export-a-model.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    triage(hospitals=2).sites["Freetown"].to_csv("patients.csv", index=False)
    for kind, name in (("onnx", "triage.onnx"), ("sklearn", "triage.safetensors")):
        assert command("export", run, "--site", "Bo", "--to", kind, "--out", name) == 0
    onnx_block, sklearn_block = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    said: dict[str, Any] = {}
    exec(onnx_block, said)
    exec(sklearn_block, said)
    confirmed = list(said["model"].predictor.facts.task.classes).index("confirmed")
    assert len(said["risk"]) > 50
    np.testing.assert_allclose(said["probabilities"][:, confirmed], said["risk"], atol=1e-5)


def test_as_json(run, tmp_path, capsys):
    path = tmp_path / "model.html"
    assert command("export", run, "--to", "calculator", "--site", "Bo", "--out", path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"kind": "calculator", "file": str(path), "bytes": path.stat().st_size}


def images(make_saved, folder):
    predictor = make_saved("cnn", "two", shape=(8, 8), channels=(2,), dense=4)
    write_model(folder / "model.safetensors", predictor.params, predictor.facts)
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "calculater", "--site", "Bo"), "there is no export to 'calculater' (--to). Fix: did you mean 'calc"),
        (("--to", "onnx", "--site", "Boo"), "no personal model of Boo"),
        (("--to", "onnx", "--site", "Bo", "--unit", "aeg=years"), "no column 'aeg' (--unit). Fix: did you mean 'age'?"),
        (("--to", "onnx", "--site", "Bo", "--unit", "years"), "'years' names no column"),
        (("--to", "onnx", "--method", "fed_avg"), "no model of a method called 'fed_avg'"),
    ],
)
def test_one_paragraph_for_a_mistake(run, tmp_path, capsys, words, said):
    out = tmp_path / "out"
    assert command("export", run, *words, "--out", out) == 2
    error = capsys.readouterr().err
    assert said.lower() in error.lower()
    assert error.count("\n") == 1
    assert not out.exists()


def test_places_and_models_that_cannot_be(run, tmp_path, capsys, make_saved, monkeypatch):
    taken = tmp_path / "taken.html"
    taken.write_text("mine")
    cases = [
        (run, ("calculator", "--site", "Bo"), taken, "such a file already"),
        (run, ("calculator", "--site", "Bo"), tmp_path / "no" / "a.html", "no such folder"),
        (tmp_path / "nowhere", ("onnx",), tmp_path / "a", "no such run or model file"),
        (images(make_saved, tmp_path), ("calculator",), tmp_path / "a", "takes arrays, such as images"),
        (images(make_saved, tmp_path), ("sklearn",), tmp_path / "a", "takes arrays, such as images"),
    ]
    for place, words, out, said in cases:
        assert command("export", place, "--to", *words, "--out", out) == 2
        assert said in capsys.readouterr().err
    assert taken.read_text() == "mine"
    assert not (tmp_path / "a").exists()
    monkeypatch.setattr("wardround.export.onnx_model.find_spec", lambda name: None)
    assert command("export", run, "--to", "onnx", "--site", "Bo", "--out", tmp_path / "a") == 2
    assert 'pip install "wardround[export]"' in capsys.readouterr().err


def test_a_model_file_without_its_run_says_so(run, tmp_path):
    out = tmp_path / "alone.html"
    assert command("export", run / "personal.safetensors", "--to", "calculator", "--site", "Bo", "--out", out) == 0
    page = out.read_text(encoding="utf-8")
    assert "made from the model alone" in page
    assert "purpose is not recorded" in page
