"""A run folder is never half-written, never mixed up, and tells every round once."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from wardround.core.contracts import RoundRecord
from wardround.core.errors import Refusal
from wardround.runs.folder import RunFolder, digest
from wardround.runs.json_files import as_json
from wardround.runs.model_file import ModelFacts
from wardround.runs.sites import PredictionTask

STUDY = {"study": {"name": "t", "seed": 3}}


def record(number: int) -> RoundRecord:
    return RoundRecord(number, ("a", "b"), 2, 20, 0.1, 0.2, 8, 16, {"validation_loss": {"weighted": 0.5}})


def test_json_has_no_nan_and_keeps_the_order_of_keys() -> None:
    value = {"b": math.nan, "a": (np.float32(0.5), np.int64(3), math.inf, True, None), 1: "ä"}
    assert as_json(value) == '{"b": null, "a": [0.5, 3, null, true, null], "1": "ä"}'


def test_a_digest_is_that_of_the_json() -> None:
    # sha256 of the three characters [1]
    assert digest([1]) == "080a9ed428559ef602668b4c00f114f1a11c3f6b02a435f0bdc154578e4d7f22"
    assert digest({"a": 1}) != digest({"a": 2})


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note").touch()
    with pytest.raises(Refusal, match="not empty"):
        RunFolder.create(tmp_path, resume=False)
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", resume=False)
    with pytest.raises(Refusal, match="no run to resume"):
        RunFolder.create(tmp_path / "missing", resume=True)
    assert not (tmp_path / "missing").exists()


def test_names_of_folders_count_up(tmp_path: Path) -> None:
    assert RunFolder.free_name(tmp_path, "t") == tmp_path / "t"
    (tmp_path / "t").mkdir()
    assert RunFolder.free_name(tmp_path, "t") == tmp_path / "t-2"
    (tmp_path / "t-2").mkdir()
    assert RunFolder.free_name(tmp_path, "t") == tmp_path / "t-3"


def test_a_round_is_recorded_once_also_after_a_resume(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", resume=False)
    folder.begin(STUDY, "data", kind="run", resume=False)
    for number in (1, 2, 2):
        folder.record("fed_avg", 0, record(number))
    folder.record("fed_avg", 1, record(1))
    # A crash cut the next line off.
    path = tmp_path / "run" / "rounds.jsonl"
    path.write_text(path.read_text() + '{"method": "fed_avg", "repeat": 0, "rou')
    again = RunFolder.create(tmp_path / "run", resume=True)
    for number in (2, 3):
        again.record("fed_avg", 0, record(number))
    assert [entry["round"] for entry in again.rounds("fed_avg", 0)] == [1, 2, 3]
    assert [entry["round"] for entry in again.rounds("fed_avg", 1)] == [1]
    assert len(path.read_text().splitlines()) == 4
    told = next(iter(again.rounds("fed_avg", 0)))
    assert told == {
        "method": "fed_avg", "repeat": 0, "round": 1, "sites": ["a", "b"], "count": 2, "rows": 20, "seconds": 0.1,
        "cpu_seconds": 0.2, "bytes_down": 8, "bytes_up": 16, "measures": {"validation_loss": {"weighted": 0.5}},
    }  # fmt: skip


def test_the_manifest_keeps_its_start_and_refuses_another_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", resume=False)
    first = folder.begin(STUDY, "data", kind="run", resume=False)
    assert first["seed"] == 3
    assert first["study_hash"] == digest(STUDY)
    folder.write("manifest.json", {**first, "started": "long ago", "command": "as it was"})
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    for study, data, kind, words in (
        ({"study": {"name": "t", "seed": 4}}, "data", "run", "study file has changed"),
        (STUDY, "other", "run", "data have changed"),
        (STUDY, "data", "compare", r"another command \(run\)"),
    ):
        with pytest.raises(Refusal, match=words):
            folder.begin(study, data, kind=kind, resume=True)
        assert (tmp_path / "run" / "manifest.json").read_bytes() == before
    again = folder.begin(STUDY, "data", kind="run", resume=True)
    assert (again["started"], again["command"]) == ("long ago", "as it was")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text()) == again


@pytest.mark.parametrize("content", ["", "{", "[]", "3"])
def test_a_broken_manifest_is_refused(content: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", resume=False)
    (tmp_path / "run" / "manifest.json").write_text(content)
    with pytest.raises(Refusal, match="manifest"):
        folder.begin(STUDY, "data", kind="run", resume=True)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path / "run", resume=False)
    folder.write("result.json", {"value": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.write("result.json", {"value": 2})
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == {"value": 1}


def test_the_model_is_stored_with_names_and_header(tmp_path: Path) -> None:
    """One key of metadata: safetensors writes several in an order that changes from process to process."""
    folder = RunFolder.create(tmp_path / "run", resume=False)
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3).T  # not contiguous
    task = PredictionTask(kind="regression", target="stay", classes=(), features=("a",))
    facts = ModelFacts(
        wardround="0.1.0",
        study="t",
        method="m",
        label="M",
        rounds=3,
        task=task,
        shape=(1,),
        recipe=None,
        preparation=None,
    )
    folder.write_model({"dense/kernel": kernel}, facts)
    with safe_open(str(tmp_path / "run" / "model.safetensors"), framework="numpy") as file:
        told = json.loads(file.metadata()["wardround"])
        assert (told["study"], told["task"]["target"], told["format"]) == ("t", "stay", 1)
        assert list(file.metadata()) == ["wardround"]
        assert file.get_tensor("dense/kernel").tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("left", [["checkpoints/"], ["checkpoints/", "manifest.json.17-4711.partial"]])
def test_a_run_struck_before_its_manifest_was_written_begins_anew(tmp_path: Path, left: list[str]) -> None:
    place = tmp_path / "run"
    place.mkdir()
    for name in left:
        (place / name).mkdir() if name.endswith("/") else (place / name).write_bytes(b"{")
    with pytest.raises(Refusal, match="no run to resume"):
        RunFolder.create(place, resume=True)
    assert RunFolder.create(place, resume=False).path == place
    assert [one.name for one in place.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize("name", ["notes.txt", "photos/", "checkpoints/a.safetensors"])
def test_what_somebody_else_put_there_is_left_alone(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.mkdir() if name.endswith("/") else place.write_bytes(b"x")
    with pytest.raises(Refusal, match="not empty"):
        RunFolder.create(tmp_path, resume=False)
    assert place.exists()


HOLD = """
import sys
from pathlib import Path
from wardround.runs.folder import RunFolder
folder = RunFolder.create(Path(sys.argv[1]), resume=False)
folder.begin({"study": {"name": "t", "seed": 3}}, "data", kind="run", resume=False)
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    """Two real processes: the second is refused until the first is gone, however it went."""
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        before = sorted(path.rglob("*"))
        for resume in (True, False):
            with pytest.raises(Refusal, match="nother process is writing into this run folder"):
                RunFolder.create(path, resume=resume)
        assert sorted(path.rglob("*")) == before
        other.kill()
    folder = RunFolder.create(path, resume=True)
    # The same process may open it twice, as a coordinator does that goes on with a study.
    assert RunFolder.create(path, resume=True).path == folder.path
