"""Somebody who may write to a site's home, but not to roles.toml, and a key that was taken away from its owner."""

import shutil
import time
from pathlib import Path

import pytest

from tests.support import small_site
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import Offer, decision_path, withdraw
from wardround.deploy.person_keys import PersonKey, make_person_key
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import MOMENT_NS, HomeAccess

OWNER = "Fatu Kamara"


class SignedApproval:
    """A running site with a study that the owner of a key has approved."""

    def __init__(self, folder: Path) -> None:
        self.home: SiteHome = small_site.make(folder)
        self.offer: Offer = small_site.offered(self.home)
        self.key: PersonKey = make_person_key(folder / "fatu.key", None)
        self.name_keys(f'"{OWNER}" = "{self.key.public}"')
        approve(self.home, self.offer.id, by=OWNER, key=self.key)
        self.access = HomeAccess(self.home)
        time.sleep(4e-9 * MOMENT_NS)  # from then on what is concluded from these files is remembered

    def name_keys(self, words: str) -> None:
        (self.home.path / "roles.toml").write_text(f"[keys]\n{words}\n")

    @property
    def state(self) -> Status:
        return self.access.state(self.offer.id)[0]


@pytest.fixture
def signed(tmp_path: Path) -> SignedApproval:
    found = SignedApproval(tmp_path)
    assert [found.state, found.state] == [Status.OK, Status.OK]
    return found


def test_an_approval_does_not_outlive_the_key_that_signed_it(signed: SignedApproval, tmp_path: Path) -> None:
    """A site that was running went on to answer until the next day."""
    signed.name_keys(f'"{OWNER}" = "{make_person_key(tmp_path / "new.key", None).public}"')
    assert signed.state is Status.DENIED


def test_a_withdrawn_approval_that_is_put_back_does_not_count(signed: SignedApproval, tmp_path: Path) -> None:
    """The signature is sound, but the audit log knows better: a withdrawal is final."""
    path = decision_path(signed.home, signed.offer.id)
    shutil.copy2(path, tmp_path / "copy.json")
    withdraw(signed.home, signed.offer.id, by=OWNER, key=signed.key)
    assert signed.state is Status.WITHDRAWN
    shutil.copy2(tmp_path / "copy.json", path)
    assert signed.state is Status.WITHDRAWN
    assert HomeAccess(signed.home).state(signed.offer.id)[0] is Status.WITHDRAWN
