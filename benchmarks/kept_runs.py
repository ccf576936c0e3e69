"""Runs of a long benchmark: written to a file as each ends, and taken from there when the benchmark goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Run = dict[str, Any]


def read_runs(file: Path | None) -> list[Run]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file is not None and file.exists() else []


def write_runs(runs: Iterator[Run], file: Path | None) -> Iterator[Run]:
    """The same runs, each kept as it ends."""
    for run in runs:
        if file is not None:
            with file.open("a") as lines:
                lines.write(json.dumps(run) + "\n")
        yield run
