"""Finds what somebody should hear of in a coordinator's status: missing sites, certificates that age, studies' ends."""

import time
from collections.abc import Mapping
from typing import Any

from wardround.core import clock
from wardround.deploy.coordinator.events import Event, StudyEnded, StudyOffered
from wardround.deploy.home import CoordinatorHome, PartyHome
from wardround.deploy.notices.notice import Notifier
from wardround.deploy.trust.certificates import LASTS, RENEW_BEFORE, read_certificate

LATE = RENEW_BEFORE / 2
"""Time before its end at which a certificate should have been renewed."""
STATUS = "wardround coordinator status"


def notice_event(notifier: Notifier, event: Event) -> None:
    """Tell what happened to a study."""
    match event:
        case StudyEnded(study, "failed"):
            notifier.notify("study failed", command=STATUS, key=f"{study} {time.time():.0f}", study=study)
        case StudyEnded(study, state):
            notifier.notify("study ended", command=STATUS, key=f"{study} {time.time():.0f}", study=study, state=state)
        case StudyOffered(study):
            notifier.notify("study waits", command=STATUS, study=study)


def notice_coordinator(notifier: Notifier, home: CoordinatorHome, status: Mapping[str, Any]) -> None:
    """Tell of sites that a study needs and that are away, and of certificates that were not renewed."""
    settings = notifier.settings()
    if settings is None:
        return
    for site, study in needed_sites(home, status).items():
        away = ((status.get("connections") or {}).get(site) or {}).get("since") or status.get("since", time.time())
        if site in status.get("present", ()):
            notifier.forget("site missing", site)
        elif time.time() - float(away) >= settings.missing_after:
            notifier.notify("site missing", command=STATUS, key=site, name=site, study=study)
    revoked = home.revoked()
    for path in (home.certificate_path, *home.party_certificates()):
        own = path == home.certificate_path
        if path.exists() and path.stem not in revoked:
            name = home.own_name if own else path.stem
            command = "wardround coordinator renew" if own else f"wardround coordinator renew {name}"
            notice_certificate(notifier, path, name, command)


def notice_party(notifier: Notifier, home: PartyHome) -> None:
    """The same for a site's or second server's own certificate."""
    if home.certificate_path.exists():
        notice_certificate(notifier, home.certificate_path, home.own_name, f"wardround {home.role} status")


def notice_certificate(notifier: Notifier, path: Any, name: str, command: str) -> None:
    until = read_certificate(path).not_valid_after_utc
    if until - clock.now() < min(LATE, LASTS):
        day = f"{until:%Y-%m-%d}"
        notifier.notify("certificate ages", command=command, key=f"{name} {day}", name=name, until=day)


def needed_sites(home: CoordinatorHome, status: Mapping[str, Any]) -> dict[str, str]:
    """Sites of studies that wait or run, each with one of these studies."""
    from wardround.deploy.coordinator.queue import read_submission

    found: dict[str, str] = {}
    for study in status.get("queue", ()):
        for site in read_submission(home.folder(study))[0].deploy.sites:
            found.setdefault(site, study)
    return found
