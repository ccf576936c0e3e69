"""What the coordinator's process says of itself while it works: what each event changes, and who was here when."""

from collections.abc import Collection, Mapping
from typing import Any

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import (
    AnswersGathered,
    AnswersMissing,
    Event,
    RoundDone,
    SitesAwaited,
    SitesReturned,
)
from wardround.deploy.coordinator.queue import queued_studies
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.operations.gauges import Gauge
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.transport.transfers.exchange import Movement
from wardround.deploy.trust.certificates import certificate_summary, read_certificate


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
        case SitesReturned():
            return {"missing": {}}
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


def coordinator_gauges(
    home: CoordinatorHome,
    present: Collection[str],
    running: Mapping[str, Mapping[str, Any]],
    moving: Mapping[str, Movement],
) -> list[Gauge]:
    """Figures for a monitor: of the consortium, of each study under way, of each transfer."""
    own = certificate_summary(read_certificate(home.certificate_path)).until
    late = {site for words in running.values() for site in words.get("missing") or ()}
    of_studies = {"round": "The last round of a study under way.", "rounds": "Rounds of a study under way."}
    return [
        Gauge("sites", len(home.site_names()), "Sites with a certificate that were not revoked."),
        Gauge("sites_connected", len(present), "Sites that are connected."),
        Gauge("studies_queued", len(queued_studies(home)), "Studies that wait or are under way."),
        Gauge("studies_running", len(running), "Studies that are under way."),
        *(
            Gauge(f"study_{key}", int(words.get(key) or 0), said, {"study": name})
            for key, said in of_studies.items()
            for name, words in running.items()
        ),
        Gauge("sites_late", len(late), "Sites that have not answered a study in time."),
        Gauge("certificate_ends_seconds", own.timestamp(), "When the own certificate ends (Unix)."),
        Gauge("build_info", 1, "The version of wardround.", {"version": __version__}),
        *(
            Gauge(f"transfer_{name}_bytes", value, f"Bytes of a transfer under way, {name}.", {"site": site})
            for site, one in moving.items()
            for name, value in (("moved", one.moved), ("whole", one.of))
        ),
    ]
