"""A run folder: manifest, rounds, checkpoints, result, model and report, each written whole."""

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from wardround import __version__
from wardround.core import clock
from wardround.core.components.packages import announcements
from wardround.core.contracts import RoundRecord, Tree
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.runs.file_names import MANIFEST, MODEL, MODEL_CARD, PREDICTIONS, RESULT, ROUNDS
from wardround.runs.json_files import as_json
from wardround.runs.lock import FolderLock, lock_folder
from wardround.runs.model_file import ModelFacts, write_model
from wardround.runs.read import has_manifest, require_manifest
from wardround.runs.result import Result, values_of

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "pandas", "scikit-learn", "safetensors", "torch")


def digest(value: Any) -> str:
    return sha256(as_json(value).encode()).hexdigest()


def remove_unstarted(path: Path) -> None:
    """Take away what a crash left that fell between making a run's folder and writing its manifest."""
    checkpoints = path / "checkpoints"
    found = list(path.iterdir()) if path.is_dir() else []
    ours = all(one.suffix == ".partial" or one == checkpoints for one in found)
    if found and ours and (not checkpoints.is_dir() or not any(checkpoints.iterdir())):
        for one in found:
            one.rmdir() if one.is_dir() else one.unlink()


class RunFolder:
    """The folder of one run. `rounds.jsonl` holds every reported round exactly once, also across a resume.

    Whoever creates or resumes it holds its lock as long as this object lives: no other process writes into it.
    """

    def __init__(self, path: Path, lock: FolderLock | None = None) -> None:
        self.path = path
        self._lock = lock
        self._seen: set[tuple[str, int, int, str | None]] = set()

    @classmethod
    def create(cls, path: Path, *, resume: bool) -> "RunFolder":
        """Make the folder; one with something else in it, or in use by another process, is never written into."""
        lock = lock_folder(path) if path.is_dir() else None
        remove_unstarted(path)
        if resume:
            if not has_manifest(path):
                raise Refusal("there is no run to resume here", where=str(path), remedy="leave --resume out")
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise Refusal(
                "the output folder is not empty", where=str(path), remedy="choose another with --out, or use --resume"
            )
        try:
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refusal(
                f"the output folder cannot be created: {error.strerror}", where=str(path), remedy="choose another --out"
            ) from None
        folder = cls(path, lock or lock_folder(path))
        if resume:
            folder._seen = {(one["method"], one["repeat"], one["round"], one.get("user")) for one in folder.records()}
        return folder

    @classmethod
    def open_or_create(cls, path: Path) -> "RunFolder":
        """Make the folder, or go on with it where a run was begun in it."""
        return cls.create(path, resume=has_manifest(path))

    @staticmethod
    def free_name(parent: Path, name: str) -> Path:
        """A folder that does not exist yet: NAME, or NAME-2, NAME-3, ..."""
        numbers = iter(range(2, 1_000_000))
        path = parent / name
        while path.exists():
            path = parent / f"{name}-{next(numbers)}"
        return path

    def checkpoint(self, method: str, repeat: int, place: str = "") -> Path:
        return self.path / "checkpoints" / f"{method}-{repeat}{place}.safetensors"

    def write(self, name: str, value: Any) -> None:
        write_whole(self.path / name, (as_json(value) + "\n").encode())

    def write_result(self, result: Result) -> None:
        """The result of a finished run."""
        self.write(RESULT, values_of(result))

    def write_card(self, facts: Mapping[str, Any]) -> None:
        """The model card for programs."""
        self.write(MODEL_CARD, facts)

    def finish(self, manifest: Mapping[str, Any], **facts: Any) -> None:
        """Note in the manifest that the run is finished, with further facts."""
        self.write(MANIFEST, {**manifest, "finished": clock.timestamp(), **facts})

    def amend_manifest(self, **facts: Any) -> None:
        self.write(MANIFEST, {**require_manifest(self.path), **facts})

    def write_model(self, params: Tree, facts: ModelFacts, name: str = MODEL) -> None:
        write_model(self.path / name, params, facts)

    def write_predictions(self, table: bytes) -> None:
        """Predictions of single patients, as CSV."""
        write_whole(self.path / PREDICTIONS, table)

    def record(self, method: str, repeat: int, record: RoundRecord, *, user: str | None = None) -> None:
        """Append a round, unless it is there already (a crash fell between checkpoint and record).

        `user` is the asking site, where each site asks in turn.
        """
        key = (method, repeat, record.round, user)
        if key in self._seen:
            return
        self._seen.add(key)
        asking = {} if user is None else {"user": user}
        self.append(ROUNDS, {"method": method, "repeat": repeat, **asking, **asdict(record)})

    def append(self, name: str, entry: Mapping[str, Any]) -> None:
        """One more line of a file of JSON lines."""
        with open(self.path / name, "a", encoding="utf-8") as file:
            file.write(as_json(entry) + "\n")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """All entries of a file of JSON lines; a last line that a crash cut off is taken away."""
        path = self.path / name
        if not path.exists():
            return []
        whole, end, torn = path.read_bytes().rpartition(b"\n")
        if torn:
            write_whole(path, whole + end)
        return [json.loads(line) for line in whole.splitlines()]

    def records(self) -> list[dict[str, Any]]:
        """All rounds that were written down."""
        return self.lines(ROUNDS)

    def drop_rounds_after(self, last: int) -> None:
        """Take records away of rounds that will be done again."""
        records = self.records()
        kept = [one for one in records if one["round"] <= last]
        if len(kept) < len(records):
            lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in kept)
            write_whole(self.path / ROUNDS, lines.encode())
            self._seen = {key for key in self._seen if key[2] <= last}

    def add_bytes(self, method: str, down: int, up: int) -> None:
        """Count bytes that were sent after the last round (the model is judged and kept) to that round."""
        records = self.records()
        last = next((one for one in reversed(records) if one["method"] == method), None)
        if last is None or not (down or up):
            return
        last |= {"bytes_down": last["bytes_down"] + down, "bytes_up": last["bytes_up"] + up}
        write_whole(self.path / ROUNDS, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records).encode())

    def sync_rounds(self) -> None:
        """Wait until the records are on the disk."""
        with open(self.path / ROUNDS, "rb") as file:
            os.fsync(file.fileno())

    def rounds(self, method: str, repeat: int, *, user: str | None = None) -> Iterator[dict[str, Any]]:
        with open(self.path / ROUNDS, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                if (entry["method"], entry["repeat"], entry.get("user")) == (method, repeat, user):
                    yield entry

    def begin(self, study: Mapping[str, Any], data_hash: str, *, kind: str, resume: bool) -> dict[str, Any]:
        """Write the manifest and give it; a run to be resumed must be of the same study, data and kind."""
        manifest = self.manifest(study, data_hash, kind)
        if resume:
            before = require_manifest(self.path, "start in another folder")
            for key, what in (
                ("kind", f"this folder holds the run of another command ({before.get('kind')})"),
                ("study_hash", "the study file has changed since this run was started"),
                ("data_hash", "the data have changed since this run was started"),
            ):
                if before.get(key) != manifest[key]:
                    raise Refusal(
                        what,
                        where=str(self.path),
                        remedy="resume with the original study and data, or start in another folder",
                    )
            manifest |= {key: before.get(key) for key in ("command", "started")}
        self.write(MANIFEST, manifest)
        return manifest

    def manifest(self, study: Mapping[str, Any], data_hash: str, kind: str) -> dict[str, Any]:
        """What is needed to run the same again and get the same bits."""
        return {
            "kind": kind,
            "wardround": __version__,
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "packages": {name: found for name in PACKAGES if (found := _version(name))}
            | {one.package.name: one.package.version for one in announcements()},
            "devices": [str(device) for device in jax.devices()],
            "study": study,
            "study_hash": digest(study),
            "data_hash": data_hash,
            "seed": study["study"]["seed"],
            "command": " ".join(["wardround", *sys.argv[1:]]),
            "started": clock.timestamp(),
        }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
