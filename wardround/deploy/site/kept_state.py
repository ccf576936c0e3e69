"""What a site keeps between the rounds of a study: an algorithm's state and the transforms', in versions, on disk."""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from wardround.core.contracts import Algorithm, Message, Transform, Tree
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.requests import Received
from wardround.deploy.protocol.wire import decode, encode
from wardround.engine.checkpoint import read_checkpoint, write_checkpoint

KEPT_VERSIONS = 3
"""Rounds for which a site remembers what it kept: the coordinator may go back by one after a crash, never by more."""


@dataclass
class KeptState:
    """In one folder, by the algorithm and the course of a request."""

    folder: Path
    _starts: dict[str, Tree] = field(default_factory=dict)

    def begin(self, asked: Received[Any], message: Message) -> None:
        """Write down the model before the first round, from which follows what is kept at first."""
        path = self._first_path(asked)
        for old in self.folder.glob("course-*"):  # the coordinator has done with these
            if old != path.parent:
                shutil.rmtree(old)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, encode({}, message))
        self._starts.clear()

    def read(self, algorithm: Algorithm, asked: Received[Any], number: int) -> Tree:
        """What was kept in the last round, up to `number`, in which this site took part."""
        path = self._first_path(asked)
        if str(path) not in self._starts:
            if not path.exists():
                raise Refusal("a round was requested before training began", remedy="start the study again")
            first = decode(path.read_bytes())[1].arrays["first"]
            self._starts[str(path)] = jax.device_get(algorithm.init_client(first))
        start = self._starts[str(path)]
        versions = [at for at in versions_of(path) if at <= number]
        if not versions or not jax.tree.leaves(start):
            return start
        return read_checkpoint(version_path(path, versions[-1]), {"kept": start})[0]["kept"]

    def read_carried(self, start: Tree, asked: Received[Any], number: int) -> Tree:
        """What was carried on for the transforms in that round; at first what it is at the start."""
        path = self._first_path(asked)
        versions = [at for at in versions_of(path) if at <= number]
        if not versions or not jax.tree.leaves(start):
            return start
        return read_checkpoint(version_path(path, versions[-1]), {"carried": start})[0]["carried"]

    def write(self, asked: Received[Any], number: int, keeps: Tree, carried: Tree = ()) -> None:
        if not jax.tree.leaves((keeps, carried)):
            return
        path = self._first_path(asked)
        point("site.kept.before_save")
        write_checkpoint(version_path(path, number), {"kept": keeps, "carried": carried}, {"round": number})
        point("site.kept.saved")
        for old in versions_of(path)[:-KEPT_VERSIONS]:
            version_path(path, old).unlink(missing_ok=True)

    def drop_carried(self, asked: Received[Any], transform: Transform) -> None:
        """At the end of a study: what was never sent is of no use any more, and shows what the site's answers hid.

        Left where the algorithm keeps something beside it, from which the site's own model follows.
        """
        path = self._first_path(asked)
        if transform.init_carried is not None and not jax.tree.leaves(self._starts.get(str(path), ())):
            for version in versions_of(path):
                version_path(path, version).unlink(missing_ok=True)

    def _first_path(self, asked: Received[Any]) -> Path:
        words = json.dumps(asked.question.algorithm, sort_keys=True)
        # Of a choice of partners each training has a folder of its own: nothing is kept from one to the next.
        course = asked.course or 0
        place = self.folder / (f"course-{course}" if course else "")
        return place / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}.first"


def version_path(first: Path, number: int) -> Path:
    return first.with_suffix(f".{number:08d}.safetensors")


def versions_of(first: Path) -> list[int]:
    return sorted(int(path.name.split(".")[1]) for path in first.parent.glob(f"{first.stem}.*.safetensors"))
