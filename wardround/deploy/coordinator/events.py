"""What happens while a coordinator works, for whoever wants to hear of it: a terminal, a status file, a log."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Reasons = Mapping[str, str]
"""Why there is no answer, by site."""


@dataclass(frozen=True)
class Event:
    """Something that happened; its kind is its class."""

    about: str = field(default="", kw_only=True)
    """The study in which it happened, where several are under way."""


Observer = Callable[[Event], None]


@dataclass(frozen=True)
class ApprovalPending(Event):
    """The study waits until these sites have approved it."""

    sites: tuple[str, ...]
    reasons: Reasons


@dataclass(frozen=True)
class StudyOffered(Event):
    """A study is put before these from now on."""

    study: str
    parties: tuple[str, ...]


@dataclass(frozen=True)
class SitesAwaited(Event):
    """These sites are not connected, and so many of them must come back."""

    sites: tuple[str, ...]
    fewest: int


@dataclass(frozen=True)
class SitesReturned(Event):
    """Enough of those who were awaited are connected again."""


@dataclass(frozen=True)
class AnswersMissing(Event):
    """Everybody must answer, and these have not yet."""

    missing: Reasons


@dataclass(frozen=True)
class AnswersGathered(Event):
    """Sites were asked: who has answered up to now, who has not, and how many seconds each was given."""

    topic: str
    round: int
    answered: tuple[str, ...]
    missing: Reasons
    seconds: float | None = None


@dataclass(frozen=True)
class PartnersSought(Event):
    """Partners are being chosen for a site."""

    choice: str
    user: str | None


@dataclass(frozen=True)
class SiteJoined(Event):
    """A site joined a study under way, with so many training rows."""

    site: str
    rows: int


@dataclass(frozen=True)
class RoundDone(Event):
    """A round is on the disk."""

    round: int
    of: int
    sites: tuple[str, ...]
    measures: Mapping[str, Any]

    @property
    def absent(self) -> Reasons:
        found: Reasons = self.measures.get("absent", {})
        return found


# ---- of the long-lived process ----


@dataclass(frozen=True)
class StudyEnded(Event):
    """A study finished, or failed for a reason; its run folder."""

    study: str
    state: str
    why: str
    folder: str


@dataclass(frozen=True)
class ConnectionChanged(Event):
    """A site connected, or went away."""

    site: str
    connected: bool


@dataclass(frozen=True)
class SiteWarning(Event):
    """Something is wrong with a site that stops no study."""

    site: str
    why: str


@dataclass(frozen=True)
class DiskFailed(Event):
    """The coordinator cannot write its files."""

    why: str


def ignore(event: Event) -> None:
    """Hears nothing."""


def suppress_failures(observer: Observer) -> Observer:
    """Nobody's screen or log file, full, closed or unable to show something, may stop the work."""

    def observe(event: Event) -> None:
        with suppress(Exception):
            observer(event)

    return observe
