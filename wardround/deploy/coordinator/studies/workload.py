"""Studies that a coordinator conducts at the same time: each in a thread of its own, with its own end and state.

They share the connections and nothing else. A study that waits for sites which are away does not count: it computes
nothing, and others have its place until those sites are back.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wardround.deploy.coordinator.events import AnswersMissing, Event, SitesAwaited
from wardround.deploy.coordinator.studies.process_state import status_after

MOST_UNDER_WAY = 16
"""Studies that are under way, those that wait for sites included: each keeps its model in memory."""


@dataclass
class StudyUnderWay:
    """One study: `ended` stops it, `words` tell what it is at."""

    name: str
    ended: threading.Event = field(default_factory=threading.Event)
    waits: bool = False
    words: dict[str, Any] = field(default_factory=lambda: {"since": time.time(), "state": "running", "missing": {}})


@dataclass
class Workload:
    """Of one coordinator; `most` studies work at the same time."""

    most: int
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _studies: dict[str, StudyUnderWay] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    def enter(self, name: str) -> StudyUnderWay:
        with self._guard:
            return self._studies.setdefault(name, StudyUnderWay(name))

    def leave(self, name: str) -> None:
        with self._guard:
            self._studies.pop(name, None)

    def begin(self, name: str, conduct: Callable[[], object]) -> None:
        """Conduct it in a thread of its own."""
        thread = threading.Thread(target=conduct, name=f"wardround {name}", daemon=True)
        with self._guard:
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def join(self, within: float) -> None:
        """Wait until all have stopped, or so many seconds: what matters is on the disk."""
        end = time.monotonic() + within
        for thread in list(self._threads):
            thread.join(max(0.0, end - time.monotonic()))

    @property
    def names(self) -> frozenset[str]:
        with self._guard:
            return frozenset(self._studies)

    def has_room(self) -> bool:
        """Whether another study may begin."""
        with self._guard:
            working = sum(not one.waits for one in self._studies.values())
            return working < self.most and len(self._studies) < MOST_UNDER_WAY

    def end(self, name: str) -> None:
        """Let a study stop where it is."""
        with self._guard:
            if name in self._studies:
                self._studies[name].ended.set()

    def note(self, name: str, event: Event) -> None:
        """What happened in a study changes what is told of it."""
        self.tell(name, **status_after(event))
        with self._guard:
            if name in self._studies:
                self._studies[name].waits = isinstance(event, SitesAwaited | AnswersMissing)

    def tell(self, name: str, **words: Any) -> None:
        with self._guard:
            if name in self._studies:
                self._studies[name].words |= words

    def words(self) -> dict[str, dict[str, Any]]:
        """For the status, by study."""
        with self._guard:
            return {name: dict(one.words) for name, one in sorted(self._studies.items())}
