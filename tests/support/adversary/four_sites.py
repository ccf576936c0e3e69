"""A coordinator and four sites that joined: their homes, a study with a secure sum, and what they exchange."""

import shutil
from pathlib import Path
from typing import Any

from tests.support import in_process
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import admit, membership_of
from wardround.deploy.coordinator.queue import with_members
from wardround.deploy.demo import make_coordinator, make_site, write_patients
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.decisions import store_offer
from wardround.deploy.party.enrolment import join, rotate_key
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.trust.certificates import read_certificate
from wardround.deploy.trust.countersignatures import exchange, share_membership
from wardround.deploy.trust.pins import check_roster, read_partners
from wardround.study.file import Study

FOUR = ("bo", "freetown", "kenema", "makeni")
SUM = [{"name": "secure_sum"}]


def certificates(hub: CoordinatorHome) -> dict[str, str]:
    return {name: hub.site_certificate(name).read_text() for name in FOUR}


def secure_study(hub: CoordinatorHome, **deploy: Any) -> Study:
    return with_members(in_process.study_of("rosters", transforms=SUM, deploy=deploy), hub)


def checked(hub: CoordinatorHome, site: SiteHome, study: Study, roster: Any, shown: Any) -> Any:
    return check_roster(
        study,
        roster,
        shown,
        read_certificate(hub.authority_path),
        own=(site.own_name, site.key.public_key()),
        partners=read_partners(site),
    )


def offer_and_approve(home: SiteHome, study: Study) -> None:
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    approve(home, study_id(study), by="admin")


def rotated(hub: CoordinatorHome, home: SiteHome) -> Path:
    made = admit(hub, rotate_key(home, by="anna"))
    assert made.rotated
    join(home, made.path, hub.authority_path)
    return made.path


def exchange_all(hub: CoordinatorHome, sites: dict[str, SiteHome]) -> None:
    for name, site in sites.items():
        exchange(hub, name, asking(site))
        share_membership(hub, membership_of(hub), name, asking(site))


def asking(site: SiteHome) -> Any:
    """Hands words to the site's handler, as the network would."""
    handler = RequestHandler(HomeAccess(site))

    def ask(topic: str, words: Any) -> Any:
        told = read_reply(handler.answer(topic, "server", request_of_site(words)))
        if told.status is not Status.OK:
            raise Refusal(told.why)
        return told.header

    return ask


def make_four(folder: Path) -> Path:
    """A coordinator and four sites that joined; nothing was asked yet."""
    hub = make_coordinator(folder / "coordinator", 1)
    for name, table in write_patients(folder, FOUR).items():
        make_site(folder / name, name, hub, table)
    return folder


def copy_four(made: Path, folder: Path) -> tuple[CoordinatorHome, dict[str, SiteHome]]:
    shutil.copytree(made, folder)
    return CoordinatorHome(folder / "coordinator"), {name: SiteHome(folder / name) for name in FOUR}
