"""Attack C3 and its relatives: a coordinator that signs certificates cannot play other sites to one that pins them."""

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import in_process
from tests.support.adversary.four_sites import (
    FOUR,
    SUM,
    asking,
    certificates,
    checked,
    copy_four,
    exchange_all,
    make_four,
    offer_and_approve,
    rotated,
    secure_study,
)
from tests.support.adversary.root import Puppet, certificate_for, replace_with_puppet
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import admit, membership_of
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.home import CoordinatorHome, SiteHome
from wardround.deploy.party.enrolment import distrust_coordinator, join, leave
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.partner_summary import who_takes_part
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.transport.in_process import InProcess
from wardround.deploy.transport.site_register import SiteRegister
from wardround.deploy.trust import certificates as trust_certificates
from wardround.deploy.trust.audit_log import verify
from wardround.deploy.trust.certificates import make_request, pem, sign
from wardround.deploy.trust.countersignatures import exchange
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.pins import read_partners, smallest_roster, trust
from wardround.deploy.trust.rotations import key_hex, rotation_of
from wardround.privacy.secure_sum.fixed_point import ring_vector


class Stopped(BaseException):
    """Ends a study that would ask for ever."""


class Attack:
    """Attack C3: two of three sites are the coordinator's own, so the sum minus their answers is the victim's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.consortium = in_process.Consortium(folder)
        self.study = self.consortium.full(in_process.study_of("c3", rounds=1, transforms=SUM))
        for name in ("freetown", "kenema"):
            replace_with_puppet(self.consortium, name, self.study)
        self.answers: dict[str, np.ndarray] = {}
        """What each site masked: those of its own sites the coordinator knows, the victim's it wants to know."""
        self.opened: list[np.ndarray] = []
        self.refused: list[str] = []
        self.here = threading.local()
        unmask = in_process.coordinator_sum.unmask_sum

        def watching(answer: Message) -> Any:
            self.answers[self.here.name] = ring_vector(answer)
            return self.answers[self.here.name]

        def watched(server: Any) -> Any:
            self.opened.append(unmask(server))
            return self.opened[-1]

        monkeypatch.setattr(in_process.site_sum, "ring_vector", watching)
        monkeypatch.setattr(in_process.coordinator_sum, "unmask_sum", watched)
        self.consortium.change = self.hear
        self.conduct = lambda: self.consortium.conduct(self.study)

    def watch_handlers(self) -> None:
        def watched(name: str, answer: Any) -> Any:
            def respond(*given: Any) -> bytes:
                self.here.name = name
                return bytes(answer(*given))

            return respond

        for name, handler in self.consortium.handlers.items():
            self.consortium.transport.sites[name] = watched(name, handler.answer)

    def hear(self, site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:  # noqa: ARG002
        said = read_reply(reply)
        if site == "bo" and said.status is Status.REFUSED:
            self.refused.append(said.why)
            raise Stopped
        return reply


def test_a_coordinator_that_plays_every_other_site_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = Attack(tmp_path, monkeypatch)
    attack.watch_handlers()
    with pytest.raises(Stopped):
        attack.conduct()
    assert attack.opened == []
    assert attack.answers == {}, "the victim masked nothing"
    assert "the key sent for freetown is not the pinned one" in attack.refused[0]


def test_the_attack_succeeds_on_a_site_that_pins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The positive control: whoever believes any certificate of the authority has its answer opened, bit by bit."""
    attack = Attack(tmp_path, monkeypatch)
    access = Puppet(attack.consortium.homes["bo"])
    attack.consortium.handlers["bo"] = RequestHandler(access)
    attack.watch_handlers()
    access.store_offer(study_id(attack.study), attack.study.model_dump(mode="json"), "researcher")
    approve(attack.consortium.homes["bo"], study_id(attack.study), by="admin")
    attack.conduct()
    found = attack.opened[0] - attack.answers["freetown"] - attack.answers["kenema"]
    assert found.any()
    np.testing.assert_array_equal(found, attack.answers["bo"])


# ---- rosters ----


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_four(tmp_path_factory.mktemp("four"))


@pytest.fixture
def homes(made: Path, tmp_path: Path) -> tuple[CoordinatorHome, dict[str, SiteHome]]:
    return copy_four(made, tmp_path / "all")


def test_the_roster_of_the_approved_study_passes(homes: Any) -> None:
    hub, sites = homes
    keys = checked(hub, sites["bo"], secure_study(hub), FOUR, certificates(hub))
    assert {name: fingerprint(key) for name, key in keys.items()} == {
        name: fingerprint(home.key.public_key()) for name, home in sites.items()
    }
    # Of four sites three are more than two thirds, and enough; a quorum that was approved says so itself.
    assert len(checked(hub, sites["bo"], secure_study(hub), FOUR[:3], certificates(hub))) == 3
    assert smallest_roster(secure_study(hub, quorum=4)) == 4
    assert smallest_roster(secure_study(hub, quorum=1)) == 3


def test_rosters_that_were_not_approved_are_refused(homes: Any) -> None:
    hub, sites = homes
    study, shown, bo = secure_study(hub), certificates(hub), sites["bo"]
    key = ec.generate_private_key(ec.SECP256R1())
    other = certificate_for(hub.path, "kenema", key)
    stranger = {**shown, "sherbro": certificate_for(hub.path, "sherbro")}
    cases = [
        ((*FOUR, "sherbro"), stranger, study, "sherbro is not a site of the approved study"),
        (FOUR[:2], shown, study, "has 2 sites, and the approved study needs 3"),
        (FOUR[1:], shown, study, "leaves this site out"),
        (("bo", "bo", "kenema", "makeni"), shown, study, "names a site twice"),
        (FOUR, {**shown, "kenema": other}, study, "the key sent for kenema is not the pinned one"),
        (FOUR, {**shown, "kenema": shown["makeni"]}, study, "certificate sent for kenema belongs to someone else"),
        (FOUR, {**shown, "bo": certificate_for(hub.path, "bo")}, study, "another key for bo itself"),
        (FOUR, {name: shown[name] for name in FOUR[:3]}, study, "without the certificate of makeni"),
        (FOUR[:3], shown, secure_study(hub, quorum=4), "has 3 sites, and the approved study needs 4"),
    ]
    unpinned = study.model_copy(update={"deploy": study.deploy.model_copy(update={"fingerprints": {}})})
    cases.append((FOUR, shown, unpinned, "names no fingerprint of bo"))
    for roster, given, asked, why in cases:
        with pytest.raises(Refusal, match=why):
            checked(hub, bo, asked, roster, given)


def test_two_names_for_one_key_are_one_site(homes: Any, tmp_path: Path) -> None:
    """A site that holds two names of three would know the third answer: refused by coordinator, study and round."""
    hub, sites = homes
    (tmp_path / "second.csr").write_bytes(pem(make_request(sites["kenema"].key, "sherbro")))
    with pytest.raises(Refusal, match="This key already belongs to"):
        admit(hub, tmp_path / "second.csr")
    # A coordinator that signs it nevertheless:
    hub.site_certificate("sherbro").write_text(certificate_for(hub.path, "sherbro", sites["kenema"].key))
    study = secure_study(hub)
    with pytest.raises(Refusal, match="kenema and sherbro have the same key"):
        offer_and_approve(sites["bo"], study)
    shown = {**certificates(hub), "sherbro": hub.site_certificate("sherbro").read_text()}
    with pytest.raises(Refusal, match="sherbro has the key of another site"):
        checked(hub, sites["bo"], study, (*FOUR, "sherbro"), shown)


# ---- approval ----


def test_a_site_that_pinned_another_fingerprint_refuses_the_study(homes: Any) -> None:
    hub, sites = homes
    bo = sites["bo"]
    right = fingerprint(sites["kenema"].key.public_key())
    trust(bo, "kenema", right.upper(), by="anna")
    hub.site_certificate("kenema").write_text(certificate_for(hub.path, "kenema"))
    with pytest.raises(Refusal, match=r"another fingerprint for kenema .* than the one pinned here") as refusal:
        offer_and_approve(bo, secure_study(hub))
    assert "\n" not in str(refusal.value)
    assert set(read_partners(bo)) == {"kenema"}, "nothing was pinned by a study that was not approved"
    assert read_partners(bo)["kenema"].fingerprint == right


def test_the_first_study_pins_and_the_telephone_compares(homes: Any) -> None:
    hub, sites = homes
    bo, study = sites["bo"], secure_study(hub)
    offer_and_approve(bo, study)
    assert {name: one.how for name, one in read_partners(bo).items()} == dict.fromkeys(FOUR[1:], "first use")
    access = HomeAccess(bo)
    assert access.state(study_id(study))[0] is Status.OK
    # The policy may want more, and takes effect at once.
    set_policy(bo.policy_path, "partners", "compared")
    status, why = access.state(study_id(study))
    assert status is Status.DENIED
    assert "freetown, kenema, makeni was not compared by telephone yet" in why
    loud = "WARNING: no other site was compared by phone. A coordinator that lies could play them all"
    assert loud in " ".join(who_takes_part(bo, study))
    for name in FOUR[1:]:
        trust(bo, name, study.deploy.fingerprints[name].split(), by="anna")
        left = ", ".join(FOUR[FOUR.index(name) + 1 :])
        assert (f"WARNING: never compared by phone: {left}." in " ".join(who_takes_part(bo, study))) == bool(left)
    assert "WARNING" not in " ".join(who_takes_part(bo, study))
    assert access.state(study_id(study))[0] is Status.OK
    # Another key for a partner, read out later, ends the approval of the study that names the old one.
    trust(bo, "makeni", fingerprint(ec.generate_private_key(ec.SECP256R1()).public_key()), by="anna")
    assert "another fingerprint for makeni" in access.state(study_id(study))[1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda said: {**said, "bo": said["kenema"]}, "another fingerprint for bo itself"),
        (lambda said: {name: said[name] for name in FOUR[:3]}, "names no fingerprint of makeni"),
        (lambda said: {**said, "kenema": "acorn zinc"}, "has 10 words, and these are 2"),
        (lambda said: {}, "names no fingerprint of"),
    ],
)
def test_a_secure_sum_without_right_fingerprints_is_not_approved(homes: Any, change: Any, why: str) -> None:
    hub, sites = homes
    study = secure_study(hub)
    deploy = study.deploy.model_copy(update={"fingerprints": change(study.deploy.fingerprints)})
    with pytest.raises(Refusal, match=why):
        offer_and_approve(sites["bo"], study.model_copy(update={"deploy": deploy}))
    assert read_partners(sites["bo"]) == {}


# ---- renewal, rotation ----


def test_a_renewal_with_another_key_is_refused(homes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers for a site in a connection cannot have another key certified under its name."""
    hub, sites = homes
    monkeypatch.setattr(trust_certificates, "RENEW_BEFORE", timedelta(days=91))
    before = hub.site_certificate("bo").read_bytes()
    other = pem(make_request(ec.generate_private_key(ec.SECP256R1()), "bo")).decode()
    warnings: list[tuple[str, str]] = []
    carer = Maintenance(hub, InProcess({}, SiteRegister(hub, hub.log())), lambda *told: warnings.append(told))
    monkeypatch.setattr(carer, "ask", lambda site, topic, words: {"request": other})
    with pytest.raises(Refusal, match="belongs to a site with another key"):
        carer.renew("bo")
    assert hub.site_certificate("bo").read_bytes() == before
    own = pem(make_request(sites["bo"].key, "bo")).decode()
    monkeypatch.setattr(carer, "ask", lambda site, topic, words: {"request": own})
    carer.renew("bo")
    assert hub.site_certificate("bo").read_bytes() != before
    assert membership_of(hub).chain().lines[-1].entry.kind == "renewed"


def test_a_key_is_replaced_only_if_the_old_one_signed_the_new(homes: Any, tmp_path: Path) -> None:
    hub, sites = homes
    kenema, bo, study = sites["kenema"], sites["bo"], secure_study(hub)
    offer_and_approve(bo, study)
    trust(bo, "kenema", study.deploy.fingerprints["kenema"], by="anna")
    exchange_all(hub, sites)
    old = kenema.key
    # Somebody else's signature under a new key of kenema's is worth nothing.
    thief = ec.generate_private_key(ec.SECP256R1())
    forged = replace(rotation_of("kenema", thief, thief), old=key_hex(old.public_key()))
    (tmp_path / "forged.json").write_bytes(forged.to_bytes())
    with pytest.raises(Refusal, match="belongs to a site with another key"):
        admit(hub, tmp_path / "forged.json")
    rotated(hub, kenema)
    assert kenema.key.public_key() != old.public_key()
    # Before bo has seen the proof, the new key is a stranger's; afterwards the pin has followed, still compared.
    with pytest.raises(Refusal, match="the key sent for kenema is not the pinned one"):
        checked(hub, bo, study, FOUR, certificates(hub))
    exchange_all(hub, sites)
    pin = read_partners(bo)["kenema"]
    assert (pin.fingerprint, pin.is_compared) == (fingerprint(kenema.key.public_key()), True)
    assert pin.former == (fingerprint(old.public_key()),)
    assert "kenema" in checked(hub, bo, study, FOUR, certificates(hub))
    assert HomeAccess(bo).state(study_id(study))[0] is Status.OK
    # The old key is no longer kenema's: a certificate for it is refused, also by kenema's own log of its past.
    stale = {**certificates(hub), "kenema": certificate_for(hub.path, "kenema", old)}
    with pytest.raises(Refusal, match="the key sent for kenema is not the pinned one"):
        checked(hub, bo, study, FOUR, stale)
    for home in (kenema, hub):
        assert verify(home.audit_path, home.public_keys()) == []


# ---- the authority, and who is trusted at all ----


def test_a_site_answers_nothing_to_a_coordinator_that_it_revoked(homes: Any) -> None:
    hub, sites = homes
    ask = asking(sites["bo"])
    assert "wardround" in ask("hello", {})
    distrust_coordinator(sites["bo"], by="anna", why="it lied")
    for topic in ("hello", "renewal", "heads"):
        with pytest.raises(Refusal, match="Bo no longer answers this coordinator"):
            ask(topic, {})
    with pytest.raises(Refusal, match="site leave"):
        join(sites["bo"], hub.site_certificate("bo"), hub.authority_path)
    kept = leave(sites["bo"], by="anna")
    assert (kept / "authority.pem").exists()
    with pytest.raises(Refusal, match="Bo has left the consortium"):
        ask("hello", {})
    assert not sites["bo"].has_joined
    assert verify(sites["bo"].audit_path, sites["bo"].public_keys()) == []


def test_another_coordinator_of_the_same_authority_is_not_believed(homes: Any) -> None:
    hub, sites = homes
    exchange_all(hub, sites)
    other = ec.generate_private_key(ec.SECP256R1())
    hub.certificate_path.write_bytes(
        pem(sign(hub.path, make_request(other, "coordinator", "coordinator"), hosts=("localhost",)))
    )
    hub.__dict__["key"] = other
    with pytest.raises(Refusal, match="The coordinator's key is not the one that this site knows"):
        exchange(hub, "bo", asking(sites["bo"]))
