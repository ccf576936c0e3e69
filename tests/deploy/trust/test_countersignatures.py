"""Coordinator and site countersign each other's logs over the handler; either notices a log that was taken back."""

import json
import shutil
from pathlib import Path

import pytest

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.maintenance import renew_own
from wardround.deploy.demo import make_coordinator, make_site, write_patients
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.trust.audit_log import event_entry, examine, verify
from wardround.deploy.trust.certificates import read_certificate
from wardround.deploy.trust.countersignatures import exchange
from wardround.deploy.trust.log_heads import read_witness

NAMES = ("bo", "kenema")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("consortium")
    coordinator = make_coordinator(folder / "coordinator", 1)
    tables = write_patients(folder, NAMES)
    for name in NAMES:
        make_site(folder / name, name, coordinator, tables[name])
    return folder


@pytest.fixture
def homes(made, tmp_path):
    from wardround.deploy.home import CoordinatorHome, SiteHome

    shutil.copytree(made, tmp_path / "all")
    return CoordinatorHome(tmp_path / "all" / "coordinator"), {n: SiteHome(tmp_path / "all" / n) for n in NAMES}


def asking(site, spoil=lambda topic, words: words):
    """Hands words to the site's handler, as the network would."""
    handler = RequestHandler(HomeAccess(site))

    def ask(topic, words):
        content = encode({"protocol": 1, "wardround": __version__, **spoil(topic, dict(words))})
        told = decode(handler.answer(topic, "server", content))[0]
        if told["status"] != "ok":
            raise Refusal(str(told["why"]))
        return told

    return ask


def kinds(home):
    return [entry["kind"] for entry in examine(home.audit_path, home.public_keys()).entries]


def test_both_keep_what_the_other_countersigned(homes):
    hub, sites = homes
    for _ in range(2):
        for name, site in sites.items():
            site.log().append(event_entry("test", what="something"))
            seen = exchange(hub, name, asking(site))
            assert (seen.head.who, seen.by) == (name, hub.own_name)
            assert read_witness(hub.witness_path(name)) == seen
    for home in (hub, *sites.values()):
        examined = examine(home.audit_path, home.public_keys())
        assert examined.findings == []
        assert examined.unchecked == (), "every countersignature was checked against its key"
    assert kinds(hub)[-4:] == ["countersigned"] * 4
    assert kinds(sites["bo"])[-1] == "countersigned"
    # What each keeps of the other fits the other's log.
    assert verify(hub.audit_path, hub.public_keys(), witnesses=[read_witness(sites["bo"].witness_path)]) == []
    witness = read_witness(hub.witness_path("bo"))
    assert verify(sites["bo"].audit_path, sites["bo"].public_keys(), witnesses=[witness]) == []


def rolled_back(home, change):
    """Do something to the log, and put the old log with its old head back: both fit, so the log alone shows nothing."""
    files = [home.audit_path, home.audit_path.with_name(home.audit_path.name + ".head")]
    before = [path.read_bytes() for path in files]
    change()
    for path, content in zip(files, before, strict=True):
        path.write_bytes(content)
    assert verify(home.audit_path, home.public_keys()) == []


def test_a_site_that_takes_its_log_back_is_not_countersigned(homes):
    hub, sites = homes
    bo = sites["bo"]
    exchange(hub, "bo", asking(bo))

    def more():
        bo.log().append(event_entry("sent", what="what nobody shall know"))
        exchange(hub, "bo", asking(bo))

    rolled_back(bo, more)
    with pytest.raises(
        Refusal, match=r"it was rolled back to entry \d+, and entry \d+ was countersigned already \(bo\)"
    ):
        exchange(hub, "bo", asking(bo))
    found = verify(bo.audit_path, bo.public_keys(), witnesses=[read_witness(hub.witness_path("bo"))])
    assert any(f"the head that '{hub.own_name}' countersigned" in str(one) for one in found)


def test_a_coordinator_that_takes_its_log_back_is_told_by_the_site(homes):
    hub, sites = homes
    exchange(hub, "kenema", asking(sites["kenema"]))
    rolled_back(
        hub, lambda: (hub.log().append(event_entry("sent", what="x")), exchange(hub, "bo", asking(sites["bo"])))
    )
    with pytest.raises(Refusal, match="rolled back"):
        exchange(hub, "bo", asking(sites["bo"]))
    # Others have seen nothing of what was taken back.
    exchange(hub, "kenema", asking(sites["kenema"]))


def other_certificate(hub, sites):
    return sites["kenema"].certificate_path.read_text()


@pytest.mark.parametrize(
    ("topic", "change", "why"),
    [
        ("heads", lambda words, hub, sites: {**words, "certificate": "x"}, "cannot be read"),
        (
            "heads",
            lambda words, hub, sites: {**words, "certificate": other_certificate(hub, sites)},
            "belongs to the site kenema",
        ),
        ("heads", lambda words, hub, sites: {**words, "head": {"entries": 1}}, "not the head"),
        (
            "heads",
            lambda words, hub, sites: {**words, "head": {**words["head"], "entries": 10**6}},
            "signature is not by",
        ),
        ("countersigned", lambda words, hub, sites: {"countersigned": None}, "not a countersignature"),
        (
            "countersigned",
            lambda words, hub, sites: {"countersigned": {**words["countersigned"], "by": "kenema"}},
            "by kenema for bo",
        ),
        (
            "countersigned",
            lambda words, hub, sites: {"countersigned": {**words["countersigned"], "signature": "ab" * 40}},
            "is not valid",
        ),
    ],
)
def test_what_is_not_the_coordinators_is_refused_and_not_kept(homes, topic, change, why):
    hub, sites = homes
    bo = sites["bo"]
    exchange(hub, "bo", asking(bo))
    before = kinds(bo)

    def spoil(asked, words):
        return change(words, hub, sites) if asked == topic else words

    with pytest.raises(Refusal, match=why):
        exchange(hub, "bo", asking(bo, spoil))
    assert [one for one in kinds(bo) if one != "refused"] == before
    assert verify(bo.audit_path, bo.public_keys()) == []


def test_the_coordinators_own_certificate_is_renewed_when_it_ends_soon(homes, monkeypatch):
    hub, sites = homes
    before = read_certificate(hub.certificate_path)
    assert not renew_own(hub)
    from datetime import timedelta

    from wardround.deploy.trust import certificates

    monkeypatch.setattr(certificates, "RENEW_BEFORE", timedelta(days=91))
    assert renew_own(hub)
    after = read_certificate(hub.certificate_path)
    assert after.serial_number != before.serial_number
    assert after.public_key() == before.public_key()
    exchange(hub, "bo", asking(sites["bo"]))
    assert json.loads(Path(hub.audit_path).read_text().splitlines()[-1])["entry"]["kind"] == "countersigned"
