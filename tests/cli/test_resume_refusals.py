"""What cannot be resumed is refused in one paragraph, with exit code 2, and nothing that was there is touched."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_study as tiny

Capture = pytest.CaptureFixture[str]


def test_resume_needs_a_run(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = tiny.write_study(tmp_path)
    said = tiny.call(capsys, "run", study, "--resume")
    assert said.code == 2
    assert "--out" in said.err
    assert not (tmp_path / "runs").exists()
    refusal = tiny.call(capsys, "run", study, "--resume", "--out", tmp_path / "out")
    assert refusal.code == 2
    assert "no run to resume" in refusal.err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def finished(tmp_path: Path, capsys: Capture) -> Path:
    """The folder of a finished run, with its study beside it."""
    assert tiny.call(capsys, "run", tiny.write_study(tmp_path), "--out", tmp_path / "out").code == 0
    return tmp_path / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: tiny.write_study(folder, study={"rounds": 9}), ("study file has changed",)),
        (lambda folder: tiny.write_study(folder, tiny.patients(seed=1)), ("data have changed",)),
        (
            # The last checkpoint and the one before it: a single damaged one would be bridged.
            lambda folder: [path.write_bytes(b"torn") for path in (folder / "out" / "checkpoints").iterdir()],
            ("checkpoint cannot be read", "fed_avg-0"),
        ),
    ],
)
def test_resume_of_another_run_is_refused_and_nothing_touched(
    change: Callable[[Path], Any], words: tuple[str, ...], finished: Path, tmp_path: Path, capsys: Capture
) -> None:
    change(tmp_path)
    before = contents(finished)
    said = tiny.call(capsys, "run", tmp_path / "study.toml", "--resume", "--out", tmp_path / "out")
    assert said.code == 2
    assert all(word in said.err for word in words)
    after = contents(finished)
    # The manifest of the same study may be written anew, to say that the run is no longer finished.
    assert {**after, "manifest.json": b""} == {**before, "manifest.json": b""}
    was, now = json.loads(before["manifest.json"]), json.loads(after["manifest.json"])
    assert {**now, "finished": ""} == {**was, "finished": ""}


def test_resume_with_another_command_is_refused(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, compare={"methods": ["local", "global"]})
    said = tiny.call(capsys, "compare", study, "--resume", "--out", tmp_path / "out")
    assert said.code == 2
    assert "another command (run)" in said.err


def test_resume_with_a_broken_manifest_is_refused(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    (finished / "manifest.json").write_text('{"study')
    said = tiny.call(capsys, "run", tmp_path / "study.toml", "--resume", "--out", tmp_path / "out")
    assert said.code == 2
    assert "manifest" in said.err
