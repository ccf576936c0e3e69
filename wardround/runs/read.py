"""The reader of a run folder's files, also of one that a crash left behind or another version wrote.

A file that is missing is told; one that cannot be read at all is refused, since a reader that silently left out half of
a run would mislead.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.runs.fields import TOLERANT, Json, unknown_keys, whole
from wardround.runs.file_names import MANIFEST, RESULT, ROUNDS
from wardround.runs.result import FORMAT, KINDS, Result, RunResult

UNFINISHED = "continue it: the same command with --resume --out FOLDER"


@dataclass(frozen=True)
class ResultFile:
    """A result as it was read, and what a reader must know about the file."""

    result: Result
    remarks: tuple[str, ...] = ()


def read_result(folder: Path) -> ResultFile | None:
    """The result in a run folder; None where the run is not finished."""
    found = read_object(folder / RESULT)
    return None if found is None else parse_result(found)


def require_result(folder: Path, remedy: str = UNFINISHED) -> Result:
    """The result of a run that must be finished."""
    found = read_result(folder)
    if found is None:
        raise Refusal("this run is not finished", where=str(folder / RESULT), remedy=remedy)
    return found.result


def parse_result(found: Json) -> ResultFile:
    """The parts of a result, each as far as it is there; a kind that is not known is read as a run's."""
    sort = KINDS.get(str(found.get("kind") or "run"), RunResult)
    result = sort.model_validate({key: value for key, value in found.items() if key != "format"}, context=TOLERANT)
    return ResultFile(result, tuple(remarks_on(found, result)))


def remarks_on(found: Json, result: Result) -> list[str]:
    version, unknown = whole(found.get("format")), unknown_keys(result)
    if version is None:
        return [f"{RESULT} has no format number: an older version wrote it, and what it lacks is not shown."]
    if version > FORMAT:
        return [
            f"{RESULT} has format {version}, and this version reads {FORMAT}: a newer version wrote it, and what "
            "this version does not know is left out."
        ]
    if unknown:
        return [f"{RESULT} holds keys that are unknown to this version and are left out: {', '.join(unknown)}."]
    return []


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What the run was started with; None where it is missing."""
    return read_object(folder / MANIFEST)


def require_manifest(folder: Path, remedy: str = "name a folder that `wardround run` wrote") -> dict[str, Any]:
    found = read_manifest(folder)
    if found is None:
        raise Refusal("this is not a run folder", where=str(folder / MANIFEST), remedy=remedy)
    return found


def has_manifest(folder: Path) -> bool:
    """Whether a run was begun here."""
    return (folder / MANIFEST).exists()


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in the file, None when there is no file."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(
            f"the file cannot be read as JSON: {error}",
            where=str(path),
            remedy="restore it, run the study again, or remove the file to see what the other files contain",
        ) from None
    if not isinstance(found, dict):
        raise Refusal(
            "the file cannot be read as JSON: it holds no object",
            where=str(path),
            remedy="restore it, run the study again, or remove the file",
        )
    return found


def read_rounds(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The records, and how many lines were torn (a crash may cut the line that was being written)."""
    path = folder / ROUNDS
    if not path.is_file():
        return [], 0
    records: list[dict[str, Any]] = []
    torn = 0
    with path.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict) and whole(record.get("round")) is not None:
                records.append(record)
            else:
                torn += 1
    return records, torn


def round_lines(folder: Path) -> Iterator[tuple[str, Any]]:
    """Every line of the rounds with its place, for a reader who takes no line that is not as it was written."""
    path = folder / ROUNDS
    # Bytes: names of sites may hold characters at which text, but not the file, begins a new line.
    for place, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), start=1):
        try:
            yield f"{path}, line {place}", json.loads(line)
        except (ValueError, RecursionError):
            yield f"{path}, line {place}", None


def hash_of(folder: Path) -> str:
    """What names the very result and rounds of a run, to the byte."""
    content = [(folder / name).read_bytes() for name in (RESULT, ROUNDS) if (folder / name).is_file()]
    return sha256(b"".join(sha256(part).digest() for part in content)).hexdigest()
