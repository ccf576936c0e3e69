"""Four small hospitals in a CSV file, the study file beside it, and a way to call the command line."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from wardround.cli.app import main

ROUNDS = 4
HOSPITALS = ("bo", "freetown", "kenema", "makeni")
Tables = dict[str, Any]


def patients(rows: int = 30, seed: int = 0) -> pd.DataFrame:
    """Four hospitals with three numbers a patient and a logistic truth."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(4 * rows, 3)).round(3)
    outcome = generator.random(4 * rows) < 1 / (1 + np.exp(-x @ [1.5, -1.0, 0.5]))
    frame = pd.DataFrame(x, columns=["age", "pulse", "lactate"])
    return frame.assign(hospital=np.repeat(HOSPITALS, rows), outcome=outcome.astype(int))


def toml(value: Any) -> str:
    """A value as TOML writes it; JSON's spelling serves for all but tables."""
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def write_study(folder: Path, frame: pd.DataFrame | None = None, **tables: Tables | list[Tables]) -> Path:
    """The patients and a study of them in the folder; `tables` add to its tables, None takes a key out."""
    frame = patients() if frame is None else frame
    frame.to_csv(folder / "patients.csv", index=False)
    if tables.get("privacy"):
        # So few patients that the noise would hide their statistics: their ranges are declared.
        own = tables.get("data") or {}
        assert isinstance(own, dict)
        ranges = {str(name): [-6.0, 6.0] for name in frame.columns if name not in ("hospital", "outcome")}
        tables["data"] = {"preparation": {"ranges": ranges, "scale": "none"}, **own}
    whole: dict[str, Tables] = {
        "study": {"name": "tiny", "seed": 1, "rounds": ROUNDS},
        "data": {"source": "csv", "path": "patients.csv", "site": "hospital", "target": "outcome"},
        "algorithm": {"name": "fed_avg", "batch_size": 8},
        "evaluation": {"resamples": 20},
    }
    for name, table in tables.items():
        if isinstance(table, dict):
            whole[name] = {**whole.get(name, {}), **table}
    lists = {name: table for name, table in tables.items() if isinstance(table, list)}
    lines = []
    for head, table in [
        *((f"[{name}]", table) for name, table in whole.items()),
        *((f"[[{name}]]", table) for name, several in lists.items() for table in several),
    ]:
        lines.append(head)
        lines += [f"{key} = {toml(value)}" for key, value in table.items() if value is not None]
    path = folder / "study.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Said:
    """The command line, in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return Said(int(left.value.code or 0), *capsys.readouterr())


# A shell may start background jobs with SIGINT ignored, which children inherit: ask for Python's handler.
LAUNCH = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from wardround.cli.app import main; main()"
)


def launch(*arguments: str | Path) -> "subprocess.Popen[str]":
    """The command line, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *(str(argument) for argument in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of rounds.jsonl."""
    path = folder / "rounds.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def struck_at(process: "subprocess.Popen[str]", folder: Path, rounds: int, blow: signal.Signals) -> Said:
    """Send a signal as soon as so many rounds are recorded, and wait for the end."""
    while len(recorded(folder)) < rounds and process.poll() is None:
        try:
            process.wait(0.002)
        except subprocess.TimeoutExpired:
            continue
    assert process.poll() is None, f"it ended by itself: {process.communicate()}"
    process.send_signal(blow)
    out, err = process.communicate(timeout=60)
    return Said(process.returncode, out, err)
