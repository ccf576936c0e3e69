"""How many bytes a study moved: every request as the audit log counts it, every answer as it came.

HOME/studies/STUDY/traffic.json, so that a coordinator that was started again goes on counting.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from wardround.core.errors import Refusal
from wardround.runs.json_files import read_json, write_json

FILE = "traffic.json"


@dataclass
class StudyTraffic:
    """Of one study, in its folder."""

    folder: Path
    down: int = 0
    up: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.down, self.up = read_traffic(self.folder)

    def add(self, *, down: int = 0, up: int = 0) -> None:
        with self._guard:
            self.down, self.up = self.down + down, self.up + up

    def save(self) -> None:
        """After a round, and at the end: not waited for, since nothing depends on it."""
        with suppress(OSError, Refusal):
            write_json(self.folder / FILE, {"down": self.down, "up": self.up}, wait=False)


def read_traffic(folder: Path) -> tuple[int, int]:
    """Bytes to the sites and back."""
    with suppress(OSError, Refusal, KeyError, ValueError):
        words = read_json(folder / FILE, "")
        return int(words["down"]), int(words["up"])
    return 0, 0
