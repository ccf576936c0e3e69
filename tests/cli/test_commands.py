"""The commands do what they say: folder, table, one JSON object on standard output, progress elsewhere."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.stats import norm

from tests.support import tiny_study as tiny
from wardround import __version__
from wardround.engine import registry

Capture = pytest.CaptureFixture[str]
FILES = {
    *("manifest.json", "rounds.jsonl", "result.json", "model.safetensors", "report.html", "checkpoints"),
    *("model_card.json", "model_card.md"),
}


def one_object(text: str) -> Any:
    """The only thing in the text is one JSON object on one line."""
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


def test_run_writes_a_folder_and_prints_a_table(tmp_path: Path, capsys: Capture) -> None:
    said = tiny.call(capsys, "run", tiny.write_study(tmp_path), "--out", tmp_path / "out")
    assert said.code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert all(name in said.out for name in tiny.HOSPITALS)
    assert "report.html" in said.out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["wardround"] == __version__
    assert manifest["kind"] == "run"
    assert manifest["seed"] == 1
    assert len(manifest["study_hash"]) == len(manifest["data_hash"]) == 64
    assert manifest["started"] <= manifest["finished"]
    params = load_file(tmp_path / "out" / "model.safetensors")
    assert sum(array.size for array in params.values()) in (4, 8)


def test_run_in_json_is_the_result_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    said = tiny.call(capsys, "run", tiny.write_study(tmp_path), "--out", tmp_path / "out", "--json")
    told = one_object(said.out)
    assert told.pop("folder") == str(tmp_path / "out")
    assert told.pop("report") == str(tmp_path / "out" / "report.html")
    assert told == json.loads((tmp_path / "out" / "result.json").read_text())
    assert (told["study"], told["kind"], told["repeats"]) == ("tiny", "run", 1)
    assert [site["name"] for site in told["sites"]] == list(tiny.HOSPITALS)


def test_without_out_folders_are_named_after_the_study(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = tiny.write_study(tmp_path)
    folders = [one_object(tiny.call(capsys, "run", study, "--json").out)["folder"] for _ in range(2)]
    assert folders == ["runs/tiny", "runs/tiny-2"]


def test_compare_tells_every_method_and_their_differences(tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, compare={"methods": ["local", "global"], "repeats": 2})
    told = one_object(tiny.call(capsys, "compare", study, "--out", tmp_path / "out", "--json").out)
    assert [method["name"] for method in told["methods"]] == ["local", "global"]
    assert {entry["site"] for entry in told["comparison"]} == {"all sites", *tiny.HOSPITALS}
    assert all(entry["method"] == "global" and entry["against"] == "local" for entry in told["comparison"])
    again = tiny.call(capsys, "compare", study, "--out", tmp_path / "again")
    assert again.code == 0
    for name in ("local", "fed_avg"):
        assert registry.find("algorithm", name).label in again.out
    assert (tmp_path / "again" / "personal-local.safetensors").exists()
    assert not (tmp_path / "again" / "model-local.safetensors").exists(), "alone there is no common model"


def test_check_trains_nothing_and_writes_nothing(tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, participation={"cohort": 3}, model={"name": "mlp", "hidden": [5]})
    before = sorted(tmp_path.rglob("*"))
    told = one_object(tiny.call(capsys, "check", study, "--json").out)
    # An MLP with five hidden units on three numbers and two classes: 3·5 + 5 + 5·2 + 2 = 32 parameters.
    assert told["parameters"] == 32
    # 4 bytes each way for every parameter, and on the way back the site's weight, another 4.
    assert told["message_bytes"] == 32 * 4 + 4
    assert (told["sites"], told["rows"], told["cohort"]) == (4, 120, 3)
    assert told["classes"] == ["0", "1"]
    assert told["largest_sites"][0] == {"name": "bo", "train": 18, "validation": 6, "test": 6}
    words = tiny.call(capsys, "check", study).out
    assert "4 sites, 120 rows, 3 features" in words
    assert "The study is valid." in words
    assert sorted(tmp_path.rglob("*")) == before


def test_check_looks_at_the_compared_methods_too(tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, compare={"methods": ["local", "scaffold"]})
    assert one_object(tiny.call(capsys, "check", study, "--json").out)["methods"] == ["fed_avg", "local", "scaffold"]
    wrong = tiny.write_study(tmp_path, compare={"methods": ["local"], "settings": {"local": {"momentun": 0.1}}})
    said = tiny.call(capsys, "check", wrong)
    assert said.code == 2
    assert "'momentum'" in said.err


def test_report_is_made_again_also_of_an_interrupted_run(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert tiny.call(capsys, "run", tiny.write_study(tmp_path), "--out", out).code == 0
    (out / "report.html").unlink()
    assert one_object(tiny.call(capsys, "report", out, "--json").out) == {"report": str(out / "report.html")}
    whole = (out / "report.html").read_text()
    assert all(name in whole for name in tiny.HOSPITALS)
    assert "This run was interrupted" not in whole
    (out / "result.json").unlink()
    said = tiny.call(capsys, "report", out)
    assert said.out == f"Report: {out / 'report.html'}\n"
    assert "This run was interrupted" in (out / "report.html").read_text()


def test_tune_says_what_to_write(tmp_path: Path, capsys: Capture) -> None:
    search = {"parameters": {"learning_rate": [0.1]}, "trials": 1, "folds": 2}
    said = tiny.call(capsys, "tune", tiny.write_study(tmp_path, tune=search), "--out", tmp_path / "out")
    assert said.code == 0
    assert "[algorithm]\nlearning_rate = 0.1\n" in said.out
    assert re.search(r"Best of 1 trials: validation loss 0\.\d{4}", said.out)


def test_demo_compares_three_ways_at_four_hospitals(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = one_object(tiny.call(capsys, "demo", "--json").out)
    assert told["folder"] == "runs/demo"
    assert told["kind"] == "demo"
    assert len(told["methods"]) == 3
    assert len(told["sites"]) == 4
    for method in told["methods"]:
        assert method["scores"]["weighted"][told["metric"]]["value"] > 0.6, "better than a coin"
    assert (tmp_path / "runs" / "demo" / "report.html").exists()


def test_the_version(capsys: Capture) -> None:
    assert tiny.call(capsys, "--version").out == f"wardround {__version__}\n"


def test_names_with_brackets_are_printed_as_they_are(tmp_path: Path, capsys: Capture) -> None:
    """Rich reads [red] as a colour; a hospital may be called so."""
    frame = tiny.patients().replace({"hospital": {"bo": "[red]bo[/red]"}})
    study = tiny.write_study(tmp_path, frame)
    assert "[red]bo[/red]" in tiny.call(capsys, "check", study).out
    assert "[red]bo[/red]" in tiny.call(capsys, "run", study, "--out", tmp_path / "out").out


def test_check_tells_the_noise_that_a_promise_needs(tmp_path: Path, capsys: Capture) -> None:
    """Each site takes one step over all its 18 patients in each of 2 rounds: two Gaussian sums, whose exact formula is

    delta = Phi(mu / 2 - eps / mu) - e^eps Phi(-mu / 2 - eps / mu), mu = sqrt(2) / noise (Balle and Wang 2018).
    """
    privacy = {"epsilon": 1.0, "delta": 1e-3, "clip": 0.5, "batch": 18}
    study = tiny.write_study(tmp_path, study={"rounds": 2}, privacy=privacy, participation={"cohort": 4})
    told = one_object(tiny.call(capsys, "check", study, "--json").out)
    (noise,) = told["noise"].values()

    def delta(noise: float) -> float:
        mu = 2**0.5 / noise
        return float(norm.cdf(mu / 2 - 1 / mu) - np.exp(1) * norm.cdf(-mu / 2 - 1 / mu))

    assert delta(noise) <= 1e-3 < delta(noise / 1.01)
    words = tiny.call(capsys, "check", study).out
    assert "epsilon 1 at delta 0.001 for each patient" in " ".join(words.split())
