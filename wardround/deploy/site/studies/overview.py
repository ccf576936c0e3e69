"""How a site stands: its connection, certificate and studies, the newest first, and what waits for somebody."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import Offer, offers, read_decision
from wardround.deploy.party.enrolment import read_revocation
from wardround.deploy.party.study_ends import read_end
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.approvals import approval_status
from wardround.deploy.site.datasets import read_datasets
from wardround.deploy.site.studies.own_energy import own_energy
from wardround.deploy.trust.certificates import is_due, read_certificate

OVER = ("finished", "cancelled", "amended")
"""Ends after which a study is not taken up again without being offered."""


def study_facts(home: SiteHome, offer: Offer) -> dict[str, Any]:
    """One study: how the site stands to it, since when, and how it ended as the coordinator says."""
    status, why = approval_status(home, offer.id)
    decision, end = read_decision(home, offer.id), read_end(home, offer.id)
    since = end.get("when") or (decision.when if decision else offer.came)
    return {
        "study": offer.id,
        "state": status,
        "ended": end.get("state", ""),
        "why": end.get("why", "") if end else why,
        "replaced": end.get("replaced", ""),
        "since": moment_of(since),
        "submitter": offer.submitter,
        "came": offer.came,
        "amends": offer.amends,
        "energy": own_energy(home.folder(offer.id), home.settings),
        "next": next_command(offer.id, status, str(end.get("state", ""))),
    }


def next_command(study: str, status: Status, end: str) -> str:
    """What the site's administrator is to do about a study, as a command."""
    if end in OVER:
        return ""
    return f"wardround site approve {study}" if status is Status.WAITING else ""


def studies_at(home: SiteHome) -> list[dict[str, Any]]:
    """All studies that were ever offered, those that wait first, then the newest."""
    found = [study_facts(home, offer) for offer in offers(home)]
    return sorted(found, key=lambda one: (not one["next"], -one["since"], one["study"]))


def moment_of(text: str) -> float:
    """A time of a file, in seconds."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def is_process(told: Mapping[str, Any]) -> bool:
    """Whether the process that wrote this status still runs: it writes only what changed."""
    import psutil

    try:
        return abs(psutil.Process(int(told["process"])).create_time() - float(told["began"])) < 1
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def site_status(home: SiteHome) -> dict[str, Any]:
    """The process, the connection, the certificate, the studies, and the next steps."""
    try:
        told = home.status()
    except Refusal:
        told = {}
    alive = is_process(told)
    certificate = read_certificate(home.certificate_path) if home.certificate_path.exists() else None
    until = None if certificate is None else certificate.not_valid_after_utc
    found = studies_at(home)
    facts = {
        "site": home.own_name,
        "coordinator": home.settings.coordinator,
        "running": alive,
        "connected": bool(alive and told.get("connected")),
        "why": str(told.get("why") or "") if alive else "",
        "last_answer": told.get("last_at"),
        "until": None if until is None else f"{until:%Y-%m-%d}",
        "due": certificate is not None and is_due(certificate),
        "expired": until is not None and until < clock.now(),
        "revoked": read_revocation(home),
        "data": sorted(read_datasets(home)),
        "studies": found,
    }
    return {**facts, "next": next_commands(facts)}


def next_commands(facts: dict[str, Any]) -> list[str]:
    """What the administrator is to do, the most urgent first."""
    found = []
    if facts["until"] is None:
        found.append("wardround site join CERTIFICATE AUTHORITY")
    elif facts["expired"]:
        found.append("wardround site join CERTIFICATE (ask the coordinator for `wardround coordinator renew`)")
    elif not facts["running"]:
        found.append("wardround site start")
    elif not facts["connected"] or facts["revoked"]:
        found.append("wardround doctor")
    if not facts["data"]:
        found.append("wardround site data add NAME --source csv --path FILE")
    return found + [one["next"] for one in facts["studies"] if one["next"]]
