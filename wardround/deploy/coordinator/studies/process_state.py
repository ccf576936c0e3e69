"""What the coordinator's process says of itself while it works: what each event changes, and who was here when."""

from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import (
    AnswersGathered,
    AnswersMissing,
    Event,
    RoundDone,
    SitesAwaited,
)
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.requests import Topic


def status_after(event: Event) -> dict[str, Any]:
    """What an event changes in the coordinator's status."""
    match event:
        case AnswersGathered():
            found: dict[str, Any] = {"missing": dict(event.missing)}
            if event.seconds is not None:
                found["seconds"] = event.seconds
            if event.topic == Topic.ROUND:
                found |= {"round": event.round, "state": "running", "why": ""}
            doing = {"topic": str(event.topic), "answered": len(event.answered), "missing": sorted(event.missing)}
            return {**found, "doing": doing}
        case RoundDone():
            return {"round": event.round, "missing": dict(event.absent)}
        case AnswersMissing():
            return {"missing": dict(event.missing)}
        case SitesAwaited():
            return {"missing": dict.fromkeys(event.sites, "it is not connected")}
        case _:
            return {}


def last_connections(home: CoordinatorHome) -> dict[str, Any]:
    """When each site was last here, as the process before wrote it; nobody is here yet."""
    try:
        told = home.status()
    except Refusal:
        return {}
    known = told.get("connections") if isinstance(told.get("connections"), dict) else {}
    at = told.get("at", 0.0)
    return {
        str(site): {"here": False, "since": at if words.get("here") else words.get("since", 0.0)}
        for site, words in (known or {}).items()
        if isinstance(words, dict)
    }
