"""A coordinator that tells two stories of who belongs to the consortium, or takes one back, is found out."""

import shutil
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.adversary.four_sites import (
    FOUR,
    asking,
    copy_four,
    exchange_all,
    make_four,
)
from tests.support.adversary.root import certificate_for
from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import admit, membership_of, revoke
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.trust.audit_log import examine
from wardround.deploy.trust.certificates import make_request, pem
from wardround.deploy.trust.countersignatures import share_membership
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.membership import MembershipLog, change_of
from wardround.deploy.trust.membership_witness import read_state, require_membership, reset_membership
from wardround.deploy.trust.pins import trust


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_four(tmp_path_factory.mktemp("four"))


@pytest.fixture
def homes(made: Path, tmp_path: Path) -> tuple[CoordinatorHome, dict[str, SiteHome]]:
    return copy_four(made, tmp_path / "all")


def test_all_sites_witness_the_same_log(homes: Any) -> None:
    hub, sites = homes
    exchange_all(hub, sites)
    exchange_all(hub, sites)
    own = membership_of(hub).chain()
    assert [(line.entry.kind, line.entry.name) for line in own.lines] == [
        ("coordinator", "coordinator"),
        *(("admitted", name) for name in FOUR),
    ]
    for name, site in sites.items():
        assert MembershipLog(site.membership_path).chain().hashes == own.hashes
        assert set(read_state(site)["statements"]) == set(FOUR) - {name}
        require_membership(site, FOUR)
    revoke(hub, "makeni", by="anna")
    exchange_all(hub, {name: sites[name] for name in FOUR[:3]})
    with pytest.raises(Refusal, match="makeni was revoked"):
        require_membership(sites["bo"], FOUR)


def fork(hub: CoordinatorHome, folder: Path) -> CoordinatorHome:
    """A second coordinator with the same keys, from now on with a history of its own."""
    shutil.copytree(hub.path, folder / "fork")
    return CoordinatorHome(folder / "fork")


def admit_new(hub: CoordinatorHome, name: str, folder: Path) -> None:
    path = folder / f"{name}-{hub.path.name}.csr"
    path.write_bytes(pem(make_request(ec.generate_private_key(ec.SECP256R1()), name)))
    admit(hub, path)


def test_two_sites_that_are_told_two_stories_find_out_at_the_next_exchange(homes: Any, tmp_path: Path) -> None:
    """The coordinator admits a puppet in the log that it shows bo, and another one in the log that it shows kenema."""
    hub, sites = homes
    exchange_all(hub, sites)
    other = fork(hub, tmp_path)
    admit_new(hub, "sherbro", tmp_path)
    admit_new(other, "bonthe", tmp_path)
    share_membership(hub, membership_of(hub), "bo", asking(sites["bo"]))
    share_membership(other, membership_of(other), "kenema", asking(sites["kenema"]))
    require_membership(sites["bo"], FOUR[:3])
    # Heads are gossiped: what kenema signed reaches bo with its next exchange, however the coordinator turns it.
    shutil.copy(other.statement_path("kenema"), hub.statement_path("kenema"))
    with pytest.raises(Refusal, match="kenema was shown another entry 6 than this site: two stories"):
        share_membership(hub, membership_of(hub), "bo", asking(sites["bo"]))
    for _ in range(2):  # and it stays so, in one paragraph
        with pytest.raises(Refusal, match="cannot be believed: kenema was shown another entry 6") as refusal:
            require_membership(sites["bo"], FOUR)
        assert "\n" not in str(refusal.value)
        with pytest.raises(Refusal, match="cannot be believed"):
            share_membership(hub, membership_of(hub), "bo", asking(sites["bo"]))
    # The evidence is in bo's own log; an administrator may begin anew.
    assert any(one["kind"] == "membership" for one in examine(sites["bo"].audit_path).entries)
    hub.statement_path("kenema").unlink()
    reset_membership(sites["bo"], by="anna", why="it was a test")
    share_membership(hub, membership_of(hub), "bo", asking(sites["bo"]))
    require_membership(sites["bo"], FOUR)


def test_one_site_is_not_told_a_second_story(homes: Any, tmp_path: Path) -> None:
    hub, sites = homes
    exchange_all(hub, sites)
    other = fork(hub, tmp_path)
    admit_new(hub, "sherbro", tmp_path)
    admit_new(other, "bonthe", tmp_path)
    admit_new(other, "kabala", tmp_path)
    share_membership(hub, membership_of(hub), "bo", asking(sites["bo"]))
    with pytest.raises(Refusal, match="entry 6 is not the one that was shown to this site before"):
        share_membership(other, membership_of(other), "bo", asking(sites["bo"]))


def test_a_log_that_was_rolled_back_is_found_by_the_next_exchange(homes: Any, tmp_path: Path) -> None:
    hub, sites = homes
    exchange_all(hub, sites)
    before = fork(hub, tmp_path)
    revoke(hub, "kenema", by="anna")
    share_membership(hub, membership_of(hub), "bo", asking(sites["bo"]))
    with pytest.raises(Refusal, match="it was rolled back to 5 entries, and 6 were shown before"):
        share_membership(before, membership_of(before), "bo", asking(sites["bo"]))
    # Also where only others have seen the end that was cut off.
    shutil.copy(hub.statement_path("bo"), before.statement_path("bo"))
    with pytest.raises(Refusal, match="bo was shown 6 entries of it, and this site 5"):
        share_membership(before, membership_of(before), "makeni", asking(sites["makeni"]))


def test_entries_that_cannot_be_are_trouble(homes: Any) -> None:
    """A coordinator that writes its log by hand: another key for a known site, without the old key's signature."""
    hub, sites = homes
    exchange_all(hub, sites)
    log = membership_of(hub)
    stolen = x509.load_pem_x509_certificate(certificate_for(hub.path, "kenema").encode())
    for kind, why in (("rotated", "the old key of kenema did not sign"), ("renewed", "kenema has another key")):
        change = change_of(kind, stolen)
        with pytest.raises(Refusal, match=why):
            log.append(change)
    with log.journal.lock(write=True) as file:
        log.journal.append(file, log.journal.end(file), asdict(change_of("rotated", stolen)))
    with pytest.raises(Refusal, match="kenema was rotated, but the old key of kenema did not sign the new one"):
        share_membership(hub, log, "bo", asking(sites["bo"]))
    with pytest.raises(Refusal, match="cannot be believed"):
        require_membership(sites["bo"], FOUR)


def test_a_log_that_names_another_key_than_the_pinned_one(homes: Any) -> None:
    hub, sites = homes
    trust(sites["bo"], "kenema", fingerprint(ec.generate_private_key(ec.SECP256R1()).public_key()), by="anna")
    with pytest.raises(Refusal, match=r"another key for kenema .* than the one pinned here"):
        exchange_all(hub, {"bo": sites["bo"]})


def test_statements_and_logs_that_are_withheld(homes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that shows no log, or not what the others saw, gets no secure sums after a week."""
    hub, sites = homes
    bo = sites["bo"]
    require_membership(bo, FOUR)  # it has just begun
    later(monkeypatch, days=8)
    with pytest.raises(Refusal, match="The coordinator has not shown the membership log since"):
        require_membership(bo, FOUR)
    monkeypatch.undo()
    exchange_all(hub, sites)
    exchange_all(hub, sites)
    for name in FOUR[1:]:
        hub.statement_path(name).unlink()
    admit_new(hub, "sherbro", hub.path.parent)
    exchange_all(hub, {"bo": bo})
    later(monkeypatch, days=8)
    exchange_all(hub, {"bo": bo})
    with pytest.raises(Refusal, match=r"reetown has confirmed 5 entries .* shown 6 for more than 7 days"):
        require_membership(bo, FOUR)
    exchange_all(hub, sites)
    exchange_all(hub, {"bo": bo})
    require_membership(bo, FOUR)


def later(monkeypatch: pytest.MonkeyPatch, *, days: int) -> None:
    moment = clock.now() + timedelta(days=days)
    monkeypatch.setattr(clock, "now", lambda: moment)
