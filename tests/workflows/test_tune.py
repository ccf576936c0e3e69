"""The search finds a better rate, goes on where it was killed, and never looks at a test row."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tests.support import tiny_study as tiny
from tests.support.results import plain
from wardround.core.errors import Refusal
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.file import Study, read_study
from wardround.workflows.tune import cross_validate, distribution, folds, space_of, tune, with_settings

Capture = pytest.CaptureFixture[str]
CHOICES = [0.0001, 0.1, 0.3]
TRIALS = 30
"""Enough to be killed in the middle; few choices, since every other rate is compiled anew."""


def tiny_search(folder: Path, **tables: dict[str, Any]) -> Path:
    search = {"parameters": {"learning_rate": CHOICES}, "trials": 4, "folds": 2, **tables.pop("tune", {})}
    path: Path = tiny.write_study(folder, tune=search, **tables)
    return path


def test_finds_a_better_rate_than_a_bad_one(tmp_path: Path, capsys: Capture) -> None:
    """Four rounds at 0.0001 hardly move the model from log 2, its loss before the first round."""
    found = tiny.call(capsys, "tune", tiny_search(tmp_path), "--out", tmp_path / "out", "--json").json
    losses = {trial["settings"]["learning_rate"]: trial["loss"] for trial in found["all"]}
    assert len(losses) > 1, "the search tried one value only"
    assert found["settings"]["algorithm"]["learning_rate"] == min(losses, key=lambda rate: losses[rate])
    assert found["settings"]["algorithm"]["learning_rate"] > 0.0001
    if 0.0001 in losses:
        assert losses[0.0001] == pytest.approx(np.log(2), abs=0.01)
    assert found["loss"] == min(losses.values()) < np.log(2) - 0.02
    assert found["trials"] == len(found["all"]) == 4
    assert json.loads((tmp_path / "out" / "result.json").read_text())["loss"] == found["loss"]


def test_the_loss_is_the_mean_over_folds(tmp_path: Path) -> None:
    study = read_study(tiny_search(tmp_path, tune={"trials": 1}))
    setting = assemble.load_setting(study, study.study.seed)
    found = plain(tune(study, setting, space_of(study, setting), RunFolder.create(tmp_path / "out", resume=False)))
    parts = [replace(setting, federation=part) for part in folds(setting.federation, 2, study.study.seed)]
    losses = cross_validate(with_settings(study, found["all"][0]["settings"]), parts)
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-12)
    assert found["spread"] == pytest.approx(losses.std(), rel=1e-12)


@pytest.mark.slow
def test_killed_it_does_only_the_rest_and_finds_the_same(tmp_path: Path, capsys: Capture) -> None:
    study = tiny_search(tmp_path, tune={"trials": TRIALS})
    whole = tiny.call(capsys, "tune", study, "--out", tmp_path / "whole", "--json").json
    broken = tmp_path / "broken"
    process = tiny.launch("tune", study, "--out", broken)
    log = broken / "trials.jsonl"

    def finished() -> int:
        return log.read_bytes().count(b"\n") if log.exists() else 0

    while finished() < 3 and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = finished()
    assert 3 <= done < TRIALS
    # What the kill may leave behind: half a line.
    with open(log, "ab") as file:
        file.write(b'{"settings": {"lear')
    assert not (broken / "result.json").exists()
    said = tiny.call(capsys, "tune", study, "--resume", "--out", broken, "--json").json
    assert finished() == TRIALS
    assert said["all"] == whole["all"]
    assert {**said, "folder": ""} == {**whole, "folder": ""}


def test_a_resumed_search_of_another_study_is_refused(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert tiny.call(capsys, "tune", tiny_search(tmp_path, tune={"trials": 1}), "--out", out).code == 0
    said = tiny.call(capsys, "tune", tiny_search(tmp_path, tune={"trials": 2}), "--resume", "--out", out)
    assert said.code == 2
    assert "study file has changed" in said.err


def test_test_rows_are_never_looked_at(tmp_path: Path) -> None:
    """Test rows made nonsense (every label swapped, every feature NaN) change no bit of any fold's loss."""
    study = read_study(tiny_search(tmp_path))
    setting = assemble.load_setting(study, 1)
    clean = setting.federation
    spoilt = replace(clean, x=clean.x.copy(), y=clean.y.copy())
    rows = clean.rows_of("test")
    assert len(rows) == 24
    spoilt.x[rows] = np.nan
    spoilt.y[rows] = 1 - clean.y[rows]
    losses = [
        cross_validate(study, [replace(setting, federation=part) for part in folds(one, 2, 1)])
        for one in (clean, spoilt)
    ]
    assert np.array_equal(losses[0], losses[1])
    assert np.isfinite(losses[0]).all()


def test_folds_part_the_open_rows_and_keep_the_test_rows(tmp_path: Path) -> None:
    """30 rows a site: 18 train and 6 validation, so 24 open ones; three folds hold out 8 each, every row once."""
    study = read_study(tiny_search(tmp_path))
    federation = assemble.load_setting(study, 1).federation
    parts = folds(federation, 3, seed=5)
    assert all((part.counts == [[16, 8, 6]] * 4).all() for part in parts)

    def of(one: Any, name: str, site: int) -> list[tuple[float, ...]]:
        first, count = one.part(name)
        rows = slice(first[site], first[site] + count[site])
        return sorted(zip(*one.x[rows].T.tolist(), one.y[rows].tolist(), strict=True))

    for site in range(4):
        opened = sorted(of(federation, "train", site) + of(federation, "validation", site))
        assert sorted(row for part in parts for row in of(part, "validation", site)) == opened
        for part in parts:
            assert sorted(of(part, "train", site) + of(part, "validation", site)) == opened
            assert of(part, "test", site) == of(federation, "test", site)


def test_a_rate_that_diverges_is_the_worst_answer_not_the_end(tmp_path: Path, capsys: Capture) -> None:
    frame = tiny.patients().assign(cost=lambda rows: 2.5 * rows.age + rows.pulse).drop(columns="outcome")
    tables: dict[str, Any] = {"data": {"target": "cost"}, "model": {"name": "linear"}, "study": {"rounds": 12}}
    search = {"parameters": {"learning_rate": [1e7, 0.1, 0.05]}, "trials": 6, "folds": 2}
    study = tiny.write_study(tmp_path, frame, tune=search, **tables)
    found = tiny.call(capsys, "tune", study, "--out", tmp_path / "out", "--json")
    assert found.code == 0
    losses = {trial["settings"]["learning_rate"]: trial["loss"] for trial in found.json["all"]}
    assert found.json["settings"]["algorithm"]["learning_rate"] in (0.1, 0.05)
    assert 1e7 in losses, "the search never tried the rate that diverges"
    assert losses[1e7] is None, "JSON has no infinity"
    hopeless = tiny.write_study(
        tmp_path, frame, tune={**search, "parameters": {"learning_rate": [1e7, 2e7, 3e7]}}, **tables
    )
    said = tiny.call(capsys, "tune", hopeless, "--out", tmp_path / "none")
    assert said.code == 2
    assert "diverged in every trial" in said.err


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([1, 8], IntDistribution(1, 8)),
        ([1, 8, "log"], IntDistribution(1, 8, log=True)),
        ([0.1, 1], FloatDistribution(0.1, 1.0)),
        ([0.001, 1.0, "log"], FloatDistribution(0.001, 1.0, log=True)),
        ([1, 2, 4], CategoricalDistribution([1, 2, 4])),
        (["samples", "uniform"], CategoricalDistribution(["samples", "uniform"])),
        ([True, False], CategoricalDistribution([True, False])),
        ([0.5], CategoricalDistribution([0.5])),
    ],
)
def test_ranges_and_choices(said: list[Any], expected: Any) -> None:
    assert distribution("key", said) == expected


def test_settings_go_into_the_table_that_is_named(tmp_path: Path) -> None:
    study: Study = read_study(tiny_search(tmp_path, model={"name": "mlp"}))
    changed = with_settings(study, {"learning_rate": 0.7, "model.hidden": [4], "evaluation.every": 2})
    assert changed.algorithm.settings["learning_rate"] == 0.7
    assert changed.model.settings["hidden"] == [4]
    assert changed.evaluation.every == 2
    assert changed.study == study.study
    with pytest.raises(Refusal, match=r"\[modell\]"):
        with_settings(study, {"modell.hidden": 3})


def test_every_choice_is_tried_on_the_study_before_training(tmp_path: Path) -> None:
    study = read_study(tiny_search(tmp_path, tune={"parameters": {"batch_size": [8, 16, -1]}}))
    with pytest.raises(Refusal, match="-1"):
        space_of(study, assemble.load_setting(study, 1))
