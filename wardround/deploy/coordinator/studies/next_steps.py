"""Who must act next in a study, and with which command: from how it stands, so that nobody has to ask around."""

from collections.abc import Mapping
from typing import Any, NamedTuple

COORDINATOR = "coordinator"


class NextStep(NamedTuple):
    """One who has to do something, what, and the command for it."""

    who: str
    what: str
    command: str


def next_steps(study: Mapping[str, Any], present: frozenset[str] | set[str], *, running: bool) -> list[NextStep]:
    """The steps of one study; none where it goes on by itself or has ended well."""
    name, state = study["study"], study["state"]
    if state in ("queued", "running", "interrupted") and not running:
        return [NextStep(COORDINATOR, "start the coordinator", "wardround coordinator start")]
    if state == "queued":
        undecided = sorted(study["pending"])
        return [decision_of(site, name, site in present) for site in undecided]
    if state == "running":
        away = [site for site in sorted(study["waiting"]) if site not in present]
        return [NextStep(site, "connect", "wardround site start") for site in away]
    if state in ("failed", "interrupted"):
        return [
            NextStep(COORDINATOR, "fix the cause, then resume", f"wardround coordinator resume {name}"),
            NextStep(COORDINATOR, "or change the study", f"wardround coordinator amend {name} FILE"),
        ]
    return []


def decision_of(site: str, study: str, here: bool) -> NextStep:
    if not here:
        return NextStep(site, "connect", "wardround site start")
    return NextStep(site, "decide", f"wardround site approve {study}")
