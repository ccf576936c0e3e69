"""Whose turn it is at a site that several studies ask at the same time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StudyTurns:
    """One question of a study at a time, those of different studies side by side: a long round keeps no other waiting.

    What studies share (the audit log, the ledger, the count of statistics, approvals) is locked where it is read and
    written. Nothing is kept of a study about which nobody asks now, so made-up names fill no memory.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def of(self, study: str) -> Iterator[None]:
        """Wait until no other question of this study is being answered."""
        with self._guard:
            lock, waiting = self._locks.get(study, (threading.Lock(), 0))
            self._locks[study] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, waiting = self._locks.pop(study)
                if waiting > 1:
                    self._locks[study] = lock, waiting - 1

    def unless_asked(self, study: str, do: Callable[[], object]) -> bool:
        """Do something quick, unless somebody asks about this study now; nobody begins to in between."""
        with self._guard:
            idle = study not in self._locks
            if idle:
                do()
            return idle
