"""A run gives the same bits however often it is killed on the way, and its folder tells every round once."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support import tiny_study as tiny
from tests.support.results import plain
from wardround.engine.fit import FitResult
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import read_study
from wardround.study.methods import compared_methods, own_method
from wardround.workflows.run import run, train
from wardround.workflows.training_plan import evaluated_sites, main_metric, plan_training

Capture = pytest.CaptureFixture[str]
LONG = 150
"""Rounds that take long enough to be struck in the middle."""

STUDIES: dict[str, dict[str, dict[str, Any]]] = {
    "scaffold, half of the sites a round": {
        "study": {"rounds": LONG},
        "algorithm": {"name": "scaffold", "batch_size": 8, "learning_rate": 0.01},
        "participation": {"fraction": 0.5},
    },
    # 18 training rows a site and a small rate: the loss falls for longer than it takes to strike.
    "early stopping": {
        "study": {"rounds": 10 * LONG},
        "algorithm": {"name": "fed_avg", "batch_size": 8, "learning_rate": 0.1},
        "stopping": {"patience": 20},
    },
}
COSTS = ("seconds", "compile_seconds", "meters")


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what depends on the clock."""
    methods = [{key: value for key, value in one.items() if key not in COSTS} for one in result["methods"]]
    return {**result, "methods": methods}


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=[pytest.mark.slow] * place) for place, one in enumerate(STUDIES)]
)
def test_killed_and_interrupted_it_ends_with_the_same_bits(case: str, tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, **STUDIES[case])
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert tiny.call(capsys, "run", study, "--out", whole).code == 0

    killed = tiny.struck_at(tiny.launch("run", study, "--out", broken), broken, 3, signal.SIGKILL)
    assert killed.code == -signal.SIGKILL
    after_kill = len(tiny.recorded(broken))
    assert 3 <= after_kill < len(tiny.recorded(whole))
    # What the kill would have done in the middle of a line.
    with open(broken / "rounds.jsonl", "a", encoding="utf-8") as file:
        file.write('{"method": "fed_a')

    process = tiny.launch("run", study, "--resume", "--out", broken)
    stopped = tiny.struck_at(process, broken, after_kill + 5, signal.SIGINT)
    assert stopped.code == 130
    assert "Traceback" not in stopped.err
    assert f"--resume --out {broken}" in stopped.err
    assert not (broken / "result.json").exists()

    resumed = tiny.call(capsys, "run", study, "--resume", "--out", broken, "--json")
    assert resumed.code == 0
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    told, expected = (json.loads((folder / "result.json").read_text()) for folder in (broken, whole))
    assert figures(told) == figures(expected)
    assert told["methods"][0]["meters"]["traffic"] == expected["methods"][0]["meters"]["traffic"]

    rounds, all_rounds = tiny.recorded(broken), tiny.recorded(whole)
    assert [entry["round"] for entry in rounds] == list(range(1, len(all_rounds) + 1))
    same = ("sites", "rows", "bytes_up", "bytes_down", "measures")
    assert [[entry[key] for key in same] for entry in rounds] == [[entry[key] for key in same] for entry in all_rounds]
    assert told["methods"][0]["stopped_early"] == (case == "early stopping")
    assert told["methods"][0]["rounds"] == len(all_rounds)
    started = [json.loads((folder / "manifest.json").read_text()) for folder in (whole, broken)]
    assert started[0]["study_hash"] == started[1]["study_hash"]
    assert all("finished" in manifest for manifest in started)


def test_resuming_a_run_that_had_stopped_early_tells_the_same(tmp_path: Path, capsys: Capture) -> None:
    """A crash after the last round but before the result: nothing is left to train, and the result is the same."""
    study = tiny.write_study(tmp_path, study={"rounds": 60}, algorithm={"learning_rate": 3.0}, stopping={"patience": 2})
    out = tmp_path / "out"
    first = tiny.call(capsys, "run", study, "--out", out, "--json").json
    assert first["methods"][0]["stopped_early"]
    assert first["methods"][0]["rounds"] == first["methods"][0]["best_round"] + 2 < 60
    for name in ("result.json", "model.safetensors"):
        (out / name).unlink()
    again = tiny.call(capsys, "run", study, "--out", out, "--resume", "--json").json
    assert figures(again) == figures(first)


def test_early_stopping_restores_the_best_weights(tmp_path: Path, capsys: Capture) -> None:
    """Stopped at the best round plus patience, the model is the one that as many rounds as the best give."""
    tables = {"algorithm": {"learning_rate": 3.0}}
    study = tiny.write_study(tmp_path, **tables, study={"rounds": 60}, stopping={"patience": 3})
    told = tiny.call(capsys, "run", study, "--out", tmp_path / "stopped", "--json").json["methods"][0]
    losses = [entry["measures"]["validation_loss"]["weighted"] for entry in tiny.recorded(tmp_path / "stopped")]
    best = int(np.argmin(losses)) + 1
    assert told["best_round"] == best
    assert len(losses) == best + 3
    shorter = tiny.write_study(tmp_path, **tables, study={"rounds": best})
    assert tiny.call(capsys, "run", shorter, "--out", tmp_path / "best").code == 0
    stopped, right = (load_file(tmp_path / name / "model.safetensors") for name in ("stopped", "best"))
    assert all(np.array_equal(stopped[name], right[name]) for name in right)
    longer = tiny.write_study(tmp_path, **tables, study={"rounds": best + 3})
    assert tiny.call(capsys, "run", longer, "--out", tmp_path / "last").code == 0
    last = load_file(tmp_path / "last" / "model.safetensors")
    assert not all(np.array_equal(stopped[name], last[name]) for name in last)


def test_the_seed_decides_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    models = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        study = tiny.write_study(tmp_path, study={"seed": seed})
        assert tiny.call(capsys, "run", study, "--out", tmp_path / name).code == 0
        models.append((tmp_path / name / "model.safetensors").read_bytes())
    assert models[0] == models[1] != models[2]


def test_repeats_and_methods_share_splits_and_each_round_is_told_once(tmp_path: Path) -> None:
    path = tiny.write_study(tmp_path, compare={"methods": ["local", "global"], "repeats": 2})
    study = read_study(path)
    methods = compared_methods(study)
    seen: list[tuple[str, int, int]] = []
    folder = RunFolder.create(tmp_path / "out", resume=False)
    result = plain(
        run(
            study,
            folder,
            methods,
            kind="compare",
            repeats=2,
            on_round=lambda m, r, record: seen.append((m.name, r, record.round)),
        )
    )
    expected = [
        (name, repeat, n) for repeat in (0, 1) for name in ("local", "global") for n in range(1, tiny.ROUNDS + 1)
    ]
    assert seen == expected
    assert [(e["method"], e["repeat"], e["round"]) for e in tiny.recorded(tmp_path / "out")] == expected
    assert [one["name"] for one in result["methods"]] == ["local", "global"]
    # Nobody sends anything when each learns alone; with logistic regression on three numbers the common model has
    # 4 parameters (3 weights, 1 intercept) of 4 bytes, or 8 with two outputs, and comes back with its weight.
    traffic = [one["meters"]["traffic"]["bytes_down"] for one in result["methods"]]
    assert traffic[0] == 0
    assert traffic[1] in (16 * 4 * tiny.ROUNDS, 32 * 4 * tiny.ROUNDS)
    models = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert models == ["model-global.safetensors", "personal-local.safetensors"]


def test_only_the_evaluated_sites_are_named(tmp_path: Path) -> None:
    study = read_study(tiny.write_study(tmp_path, evaluation={"sites": 2}, compare={"methods": ["local", "global"]}))
    setting = assemble.load_setting(study, 1)
    chosen = evaluated_sites(study, setting, 1)
    assert len(chosen) == 2
    method = own_method(study)
    trained = train(plan_training(study, setting, method), None)
    assert list(trained.sites) == [tiny.HOSPITALS[index] for index in chosen]
    folder = RunFolder.create(tmp_path / "out", resume=False)
    result = plain(run(study, folder, compared_methods(study), kind="compare"))
    for one in result["methods"]:
        assert sorted(one["scores"]["sites"]) == sorted(trained.sites)
    # Paired by site only where every site was evaluated.
    assert {entry["site"] for entry in result["comparison"]} == {"all sites"}


def test_validation_loss_of_a_round_is_the_mean_negative_log_likelihood(tmp_path: Path) -> None:
    study = read_study(tiny.write_study(tmp_path))
    setting = assemble.load_setting(study, 1)
    trained = train(plan_training(study, setting, own_method(study)), None, part="validation")
    chance = trained.scores.predicted[np.arange(len(trained.scores.actual)), trained.scores.actual]
    measures = trained.fitted.records[-1].measures
    assert measures["validation_loss"]["weighted"] == pytest.approx(-np.log(chance).mean(), rel=1e-5)
    edges = trained.scores.first
    own = [-np.log(chance[edges[i] : edges[i + 1]]).mean() for i in range(4)]
    assert list(measures["validation_loss"]["sites"].values()) == pytest.approx(own, rel=1e-5)
    right = (trained.scores.predicted.argmax(axis=1) == trained.scores.actual).mean()
    assert measures["validation_accuracy"]["weighted"] == right


def test_the_main_metric_follows_the_task(tmp_path: Path) -> None:
    frame = tiny.patients()
    for target, metric in (("outcome", "roc_auc"), ("age", "rmse"), ("ward", "accuracy")):
        ward = np.array(["a", "b", "c"])[np.arange(len(frame)) % 3]
        study = read_study(tiny.write_study(tmp_path, frame.assign(ward=ward), data={"target": target}))
        assert main_metric(study, assemble.load_setting(study, 1)) == metric


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    study = read_study(tiny.write_study(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    trained = train(plan_training(study, assemble.load_setting(study, 1), own_method(study)), None)
    assert isinstance(trained.fitted, FitResult)
    assert trained.fitted.rounds == tiny.ROUNDS
    assert sorted(tmp_path.rglob("*")) == before
