"""An authority away from the coordinator: its key is encrypted, and requests wait until somebody carries them there."""

import os
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import (
    accept,
    admit,
    begin_consortium,
    coordinator_settings,
    membership_of,
    waiting_requests,
)
from wardround.deploy.coordinator.maintenance import Maintenance, renew_own
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.transport.in_process import InProcess
from wardround.deploy.transport.site_register import SiteRegister
from wardround.deploy.trust import certificates
from wardround.deploy.trust.authority import begin_authority, can_sign, issue, issued_keys, key_warnings
from wardround.deploy.trust.certificates import PASSPHRASE, check_issued, make_request, pem, read_certificate
from wardround.deploy.trust.rotations import SigningRequest, read_signing_request, rotation_of

SECRET = "correct horse"


@pytest.fixture(autouse=True)
def no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE, raising=False)


def settings() -> Any:
    return coordinator_settings("West Africa", "hub", "127.0.0.1:8002", ["hub.example.org"])


def request(folder: Path, name: str, key: ec.EllipticCurvePrivateKey) -> Path:
    path = folder / f"{name}.csr"
    path.write_bytes(pem(make_request(key, name)))
    return path


def test_the_key_is_encrypted_and_opens_with_its_passphrase_only(tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "stick"
    begin_authority(folder, "West Africa", SECRET)
    content = (folder / "authority.key").read_bytes()
    assert content.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert stat.S_IMODE(os.stat(folder / "authority.key").st_mode) == 0o600
    serialization.load_pem_private_key(content, SECRET.encode())  # an independent reading
    asked = SigningRequest(make_request(ec.generate_private_key(ec.SECP256R1()), "bo"))
    for given, why in ((None, "encrypted, and no passphrase was given"), ("wrong", "The passphrase is wrong")):
        with pytest.raises(Refusal, match=why):
            issue(folder, asked, passphrase=given)
    assert issued_keys(folder) == {}
    assert not can_sign(folder)
    monkeypatch.setenv(PASSPHRASE, SECRET)
    assert can_sign(folder)
    check_issued(issue(folder, asked), read_certificate(folder / "authority.pem"), where="here")
    assert key_warnings(folder, listens=False) == []


def test_a_key_without_a_passphrase_is_warned_about(tmp_path: Path) -> None:
    begin_authority(tmp_path / "stick", "West Africa")
    (warning,) = key_warnings(tmp_path / "stick", listens=False)
    assert "not encrypted" in warning
    assert len(key_warnings(tmp_path / "stick", listens=True)) == 2
    with pytest.raises(Refusal, match="already holds an authority"):
        begin_authority(tmp_path / "stick", "West Africa")


def test_a_name_keeps_its_key_at_the_authority_itself(tmp_path: Path) -> None:
    """Whatever the coordinator carries there: the authority remembers whom it signed."""
    folder = tmp_path / "stick"
    begin_authority(folder, "West Africa", SECRET)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    issue(folder, SigningRequest(make_request(keys[0], "hub", "coordinator"), ("hub.org",)), passphrase=SECRET)
    issue(folder, SigningRequest(make_request(keys[1], "bo")), passphrase=SECRET)
    refused = [
        (SigningRequest(make_request(keys[2], "bo")), "belongs to a site with another key"),
        (SigningRequest(make_request(keys[2], "BO")), "There is already a site called 'bo'"),
        (SigningRequest(make_request(keys[1], "kenema")), "This key already belongs to 'bo'"),
        (SigningRequest(make_request(keys[2], "hub")), "coordinator's own name"),
        (SigningRequest(make_request(keys[2], "spy", "coordinator"), ("spy.org",)), "coordinator is 'hub'"),
        (rotation_of("bo", keys[0], keys[2]), "belongs to a site with another key"),
    ]
    for asked, why in refused:
        with pytest.raises(Refusal, match=why):
            issue(folder, asked, passphrase=SECRET)
    issue(folder, rotation_of("bo", keys[1], keys[2]), passphrase=SECRET)
    with pytest.raises(Refusal, match="belongs to a site with another key"):
        issue(folder, SigningRequest(make_request(keys[1], "bo")), passphrase=SECRET)


def carried(hub: CoordinatorHome, stick: Path, name: str, out: Path) -> Path:
    """As `wardround authority sign` does it."""
    asked = read_signing_request(hub.request_path(name))
    path = out / f"{name}.pem"
    path.write_bytes(pem(issue(stick, asked, passphrase=SECRET)))
    return path


def test_a_coordinator_without_the_authoritys_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginning, admission and both renewals wait in `requests`, and go on when the certificates come back."""
    stick, public = tmp_path / "stick", tmp_path / "public"
    begin_authority(stick, "West Africa", SECRET)
    public.mkdir()
    (public / "authority.pem").write_bytes((stick / "authority.pem").read_bytes())
    hub = begin_consortium(tmp_path / "hub", settings(), public)
    assert not (hub.path / "authority.key").exists()
    assert not hub.certificate_path.exists()
    accept(hub, carried(hub, stick, "hub", tmp_path))
    assert check_issued(read_certificate(hub.certificate_path), read_certificate(hub.authority_path), where="").name
    key = ec.generate_private_key(ec.SECP256R1())
    waits = admit(hub, request(tmp_path, "bo", key))
    assert (waits.until, waits.path) == (None, hub.request_path("bo"))
    assert [one.name for one in waiting_requests(hub)] == ["bo"]
    assert not hub.site_certificate("bo").exists()
    signed = carried(hub, stick, "bo", tmp_path)
    made = accept(hub, signed)
    assert (made.name, made.renewed, waiting_requests(hub)) == ("bo", False, [])
    with pytest.raises(Refusal, match="No request of 'bo' is waiting"):
        accept(hub, signed)
    # Both certificates end soon: the running coordinator can only ask.
    monkeypatch.setattr(certificates, "RENEW_BEFORE", timedelta(days=91))
    assert not renew_own(hub)
    sent: list[str] = []

    def ask(site: str, topic: str, words: Any) -> Any:
        sent.append(topic)
        return {"request": pem(make_request(key, "bo")).decode()}

    carer = Maintenance(hub, InProcess({}, SiteRegister(hub, hub.log())), lambda site, why: None)
    monkeypatch.setattr(carer, "ask", ask)
    with pytest.raises(Refusal, match="waits for the authority"):
        carer.renew("bo")
    assert sorted(one.name for one in waiting_requests(hub)) == ["bo", "hub"]
    before = hub.site_certificate("bo").read_bytes()
    for name in ("bo", "hub"):
        accept(hub, carried(hub, stick, name, tmp_path))
    assert hub.site_certificate("bo").read_bytes() != before
    monkeypatch.setattr(certificates, "RENEW_BEFORE", timedelta(days=1))
    carer.renew("bo")
    carer.renew("bo")
    assert sent == ["renewal", "certificate"], "delivered once"
    kinds = [(line.entry.kind, line.entry.name) for line in membership_of(hub).chain().lines]
    assert kinds == [("coordinator", "hub"), ("admitted", "bo"), ("renewed", "bo"), ("coordinator", "hub")]


def test_a_certificate_for_another_key_than_was_asked_for_is_not_accepted(tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    hub = begin_consortium(tmp_path / "hub", settings(), stick, SECRET)
    assert hub.certificate_path.exists()
    assert (stick / "authority.key").exists()
    assert not (hub.path / "authority.key").exists()
    admit(hub, request(tmp_path, "bo", ec.generate_private_key(ec.SECP256R1())))
    other = SigningRequest(make_request(ec.generate_private_key(ec.SECP256R1()), "bo"))
    (tmp_path / "bo.pem").write_bytes(pem(issue(stick, other, passphrase=SECRET)))
    with pytest.raises(Refusal, match="for another key than the request"):
        accept(hub, tmp_path / "bo.pem")


def test_a_site_that_asks_to_be_a_coordinator_is_signed_as_a_site_or_not_at_all(tmp_path: Path) -> None:
    hub = begin_consortium(tmp_path / "hub", settings())
    asked = SigningRequest(make_request(ec.generate_private_key(ec.SECP256R1()), "evil", "coordinator"), ("evil.org",))
    (tmp_path / "evil.json").write_bytes(asked.to_bytes())
    with pytest.raises(Refusal, match="role 'coordinator'"):
        admit(hub, tmp_path / "evil.json")
    for content in (b"{", b'{"request": 1}', b'{"request": "", "hosts": 3, "old": "", "proof": ""}'):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(Refusal, match="not a certificate request"):
            admit(hub, tmp_path / "bad.json")
