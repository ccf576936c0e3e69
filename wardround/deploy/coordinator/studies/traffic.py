"""How many bytes a study moved: the one count, for its rounds, its result, and the status of a coordinator.

Down is what the coordinator writes into its audit log; up is what the sites write into theirs, each answer once however
often it was asked for. The line moves less where a site has a model already, and more where it broke.
HOME/studies/STUDY/traffic.json, so that a coordinator that was started again goes on counting.
"""

import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from wardround.core.errors import Refusal
from wardround.deploy.protocol.replies import Reply
from wardround.runs.json_files import read_json, write_json

FILE = "traffic.json"


class Bytes(NamedTuple):
    """To the sites, from them, and on the line in both directions."""

    down: int = 0
    up: int = 0
    line: int = 0


class StudyTraffic:
    """Of one study, over all threads; without a folder it is not kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._all = Bytes() if folder is None else Bytes(*read_traffic(folder))
        self._taken = self._all
        self._last: dict[tuple[str, str], str] = {}
        self._guard = threading.Lock()

    def add(self, *, down: int = 0, up: int = 0, line: int = 0) -> None:
        with self._guard:
            self._all = Bytes(self._all.down + down, self._all.up + up, self._all.line + line)

    def count_answer(self, site: str, topic: str, reply: Reply) -> None:
        """An answer that the site wrote down as leaving; the same one again is not counted."""
        with self._guard:
            new = self._last.get((site, topic)) != reply.sha256
            self._last[site, topic] = reply.sha256
        if new:
            self.add(up=reply.size)

    def take(self) -> Bytes:
        """What was counted since the last time."""
        with self._guard:
            before, self._taken = self._taken, self._all
            return Bytes(*(now - then for now, then in zip(self._all, before, strict=True)))

    def save(self) -> None:
        """After an offer, a round, and at the end: not waited for, since nothing depends on it."""
        if self.folder is not None:
            with suppress(OSError, Refusal):
                write_json(self.folder / FILE, {"down": self._all.down, "up": self._all.up}, wait=False)


def read_traffic(folder: Path) -> tuple[int, int]:
    """Bytes to the sites and back."""
    with suppress(OSError, Refusal, KeyError, ValueError):
        words = read_json(folder / FILE, "")
        return int(words["down"]), int(words["up"])
    return 0, 0
