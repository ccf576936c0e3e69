"""Looks after all studies of a coordinator at once: offers them, notes decisions and cancellations, runs errands.

A study that waits for somebody holds up no other. Each site is visited by one thread at a time, so that a silent one
keeps nobody waiting, and less often the longer nothing changes.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import Observer, StudyOffered
from wardround.deploy.coordinator.gather import reasons_of
from wardround.deploy.coordinator.queue import has_begun, is_finished, queued_studies
from wardround.deploy.coordinator.studies.errands import run_errands, studies_with_errands
from wardround.deploy.coordinator.studies.interruption import StudyTransport
from wardround.deploy.coordinator.studies.offers import LONGEST_PAUSE, PAUSE, Standing, announce, ask_offer
from wardround.deploy.coordinator.studies.submission import Submission, policy_of
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.transport.contract import Transport

PATIENCE = 20.0
"""Seconds that a site has to answer."""
LAST_PAUSE = 0.05
"""Seconds between two looks while the process waits to end."""
MOST_VISITS = 16
"""Sites that are visited at the same time."""


@dataclass
class StudyDesk:
    """Of one coordinator; `submission_of` reads a queued study, `transport_of` counts what it moves, `end` ends it."""

    home: CoordinatorHome
    transport: Transport
    transport_of: Callable[[str], StudyTransport]
    submission_of: Callable[[str], Submission]
    end: Callable[[str, str, str], None]
    observer: Observer
    clock: Callable[[], float] = time.monotonic
    standings: dict[str, Standing] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    """Studies that are conducted now, which are not offered here any more."""
    errands: dict[str, set[str]] = field(default_factory=dict)
    _guard: threading.RLock = field(default_factory=threading.RLock)
    _visited: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each site may be visited next, and the pause after that."""
    _busy: set[str] = field(default_factory=set)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_VISITS))

    def __post_init__(self) -> None:
        self.errands = studies_with_errands(self.home)

    def look(self, *, wait: bool = False) -> None:
        """Do what is due now; with `wait`, return when it is done."""
        with self._guard:
            self._read_queue()
            now, here = self.clock(), self.transport.present()
            due = [site for site in sorted(here) if self._is_due(site, now)]
            self._busy |= set(due)
        visits = [self._threads.submit(self._visit, site) for site in due]
        for visit in visits if wait else ():
            visit.result()

    def run_last_errands(self, within: float) -> None:
        """Before the process ends: until those who are here have what is for them, or the time is over."""
        end = time.monotonic() + within
        while self._awaited_here() and time.monotonic() < end:
            self.look(wait=True)
            time.sleep(LAST_PAUSE)  # another thread may be on its way to them

    def _awaited_here(self) -> bool:
        with self._guard:
            here = self.transport.present()
            return any(here & parties for parties in self.errands.values())

    def next_study(self) -> str | None:
        """The first of the queue that can begin; one that never will is ended."""
        with self._guard:
            for name in queued_studies(self.home):
                if name in self.running:
                    continue
                if is_finished(self.home.folder(name)) or has_begun(self.home.folder(name)):
                    return name
                standing = self.standings.get(name)
                if standing is None:
                    continue
                try:
                    standing.drop(self.transport.revoked())
                    standing.require()
                except Refusal as refusal:
                    self.end(name, "failed", str(refusal))
                    continue
                if standing.is_settled():
                    return name
        return None

    def visit_soon(self, site: str) -> None:
        """A site that has just come is not left waiting."""
        self._visited.pop(site, None)

    def unchanged(self) -> AbstractContextManager[object]:
        """Nothing changes here within; whoever needs another lock as well takes this one first."""
        return self._guard

    def words(self) -> dict[str, Any]:
        """How the offers stand, for the status."""
        with self._guard:
            return {
                name: {
                    "approved": sorted(one.approved),
                    "pending": dict(sorted(one.pending.items())),
                    "left_out": dict(sorted(reasons_of(one.left_out).items())),
                }
                for name, one in self.standings.items()
                if name not in self.running
            }

    def take_running(self, name: str) -> Standing | None:
        """The study is conducted from now on; gives how it stands."""
        with self._guard:
            self.running.add(name)
            return self.standings.get(name)

    def unless_running(self, name: str, end: Callable[[], None]) -> bool:
        """End a study that waits, while it cannot begin; whether it waited."""
        with self._guard:
            waits = name not in self.running
            if waits:
                end()
            return waits

    def release_running(self, name: str) -> None:
        with self._guard:
            self.standings.pop(name, None)
            self.running.discard(name)
            self.errands = studies_with_errands(self.home)
            self._visited.clear()

    # ---- parts of a look ----

    def _read_queue(self) -> None:
        """Begin with studies that are new in the queue, forget those that left it."""
        queue = queued_studies(self.home)
        for name in [one for one in self.standings if one not in queue and one not in self.running]:
            del self.standings[name]
            self._visited.clear()
        for name in [one for one in queue if one not in self.standings and one not in self.running]:
            try:
                submission = self.submission_of(name)
                self.standings[name] = Standing(submission, policy_of(submission), self.clock)
            except Refusal as refusal:
                self.end(name, "failed", str(refusal))
                continue
            self._visited.clear()
            self.observer(StudyOffered(name, submission.parties))

    def _is_due(self, site: str, now: float) -> bool:
        return site not in self._busy and now >= self._visited.get(site, (0.0, 0.0))[0] and self._has_work(site)

    def _has_work(self, site: str) -> bool:
        waits = any(site in one.pending for name, one in self.standings.items() if name not in self.running)
        return waits or any(site in parties for parties in self.errands.values())

    def _visit(self, site: str) -> None:
        try:
            changed = self._offer_all(site)
            for study in [one for one, parties in list(self.errands.items()) if site in parties]:
                with suppress(Exception):  # whatever a site's answer trips over, the others are looked after
                    run_errands(self.home, self.transport_of(study), study, site, PATIENCE)
                    changed = True
        finally:
            with self._guard:
                self.errands = studies_with_errands(self.home) if self.errands else self.errands
                self._busy.discard(site)
                pause = PAUSE if changed else min(LONGEST_PAUSE, 1.5 * self._visited.get(site, (0.0, PAUSE))[1])
                self._visited[site] = self.clock() + pause, pause

    def _offer_all(self, site: str) -> bool:
        """Ask about every study that waits for this site; gives whether something changed."""
        changed = False
        with self._guard:
            waiting = [one for name, one in self.standings.items() if name not in self.running and site in one.pending]
        for standing in waiting:
            transport = self.transport_of(standing.submission.id)
            told = ask_offer(transport, transport.traffic, standing, site, PATIENCE)
            with self._guard:
                before = standing.pending.get(site)
                standing.take(site, told)
                news = standing.pending.get(site) != before
            if news:
                announce(self.observer, standing)
            changed = changed or news
        return changed


def waiting_words(offers: Mapping[str, Any], study: str) -> dict[str, str]:
    """Why a study has not begun, by site, from the status of a coordinator."""
    words = offers.get(study) or {}
    return {**words.get("pending", {}), **words.get("left_out", {})}
