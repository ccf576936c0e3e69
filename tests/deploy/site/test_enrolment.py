"""A key never leaves its home, and only the certificate that belongs to it is taken in."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.party.enrolment import join
from wardround.deploy.site.enrolment import begin_site, site_settings
from wardround.deploy.trust.audit_log import examine
from wardround.deploy.trust.certificates import make_authority, make_request, new_key, pem, read_request, sign

WORDS = site_settings("freetown", "hub.example.org:8002", "hub")


@pytest.fixture
def home(tmp_path) -> SiteHome:
    make_authority(tmp_path / "ca", "West")
    return begin_site(tmp_path / "site", WORDS)


def issued(tmp_path: Path, request: x509.CertificateSigningRequest, name: str = "one.pem", **more) -> Path:
    (tmp_path / name).write_bytes(pem(sign(tmp_path / "ca", request, **more)))
    return tmp_path / name


def request_of(home: SiteHome) -> x509.CertificateSigningRequest:
    return read_request(home.request_path.read_bytes(), "test")


def test_the_home_is_its_owners_alone_and_the_key_is_in_no_other_file(home):
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.key_path.stat().st_mode) == 0o600
    secret = b"".join(home.key_path.read_bytes().splitlines()[1:-1])
    for path in home.path.rglob("*"):
        if path != home.key_path:
            assert secret not in b"".join(path.read_bytes().splitlines())
    assert request_of(home).public_key() == home.key.public_key()


def test_what_the_coordinator_signed_is_taken_in(home, tmp_path):
    assert not home.has_joined
    certificate = issued(tmp_path, request_of(home))
    assert join(home, certificate, tmp_path / "ca" / "authority.pem").name == "freetown"
    assert home.has_joined
    assert home.certificate_path.read_bytes() == certificate.read_bytes()
    # A renewed one for the same key replaces it.
    again = issued(tmp_path, request_of(home), "two.pem")
    join(home, again, tmp_path / "ca" / "authority.pem")
    assert home.certificate_path.read_bytes() == again.read_bytes()
    examined = examine(home.audit_path, home.public_keys())
    assert (examined.findings, [entry["kind"] for entry in examined.entries]) == ([], ["began", "joined", "joined"])


def test_every_wrong_certificate_is_refused(home, tmp_path):
    stranger = new_key(tmp_path / "stranger.pem")
    own, authority = request_of(home), tmp_path / "ca" / "authority.pem"
    server = make_request(home.key, "freetown", "coordinator")
    make_authority(tmp_path / "other", "East")
    (tmp_path / "foreign.pem").write_bytes(pem(sign(tmp_path / "other", own)))
    (tmp_path / "broken.pem").write_text("no certificate")
    past = datetime.now(UTC) - timedelta(days=200)
    wrong = {
        "does not belong to this site's key": issued(tmp_path, make_request(stranger, "freetown"), "a.pem"),
        "for the site 'bo'": issued(tmp_path, make_request(home.key, "bo"), "b.pem"),
        "for the coordinator 'freetown'": issued(tmp_path, server, "c.pem", hosts=("localhost",)),
        "not signed by this consortium": tmp_path / "foreign.pem",
        "expired on": issued(tmp_path, own, "d.pem", now=past),
        "is not valid before": issued(tmp_path, own, "e.pem", now=datetime.now(UTC) + timedelta(days=30)),
        "is not a certificate": tmp_path / "broken.pem",
        "there is no certificate": tmp_path / "absent.pem",
    }
    for what, certificate in wrong.items():
        with pytest.raises(Refusal) as refused:
            join(home, certificate, authority)
        assert what in str(refused.value).lower() or what in str(refused.value), certificate
    assert not home.has_joined


def test_a_site_cannot_be_its_own_authority_nor_change_consortium(home, tmp_path):
    certificate = issued(tmp_path, request_of(home))
    with pytest.raises(Refusal, match="not an authority"):
        join(home, certificate, certificate)
    join(home, certificate, tmp_path / "ca" / "authority.pem")
    make_authority(tmp_path / "other", "East")
    (tmp_path / "east.pem").write_bytes(pem(sign(tmp_path / "other", request_of(home))))
    with pytest.raises(Refusal, match="already belongs to another consortium"):
        join(home, tmp_path / "east.pem", tmp_path / "other" / "authority.pem")
    assert home.certificate_path.read_bytes() == certificate.read_bytes()


def test_a_home_is_begun_once_and_an_interrupted_beginning_goes_on(home, tmp_path):
    with pytest.raises(Refusal, match="already holds a site"):
        begin_site(home.path, WORDS)
    key = home.key_path.read_bytes()
    for name in ("site.toml", "audit.jsonl", "audit.jsonl.head"):
        (home.path / name).unlink()
    assert begin_site(home.path, WORDS).key_path.read_bytes() == key
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(Refusal, match=r"it holds thesis\.txt"):
        begin_site(tmp_path / "full", WORDS)


@pytest.mark.parametrize("words", [("../x", "a:1", "hub"), ("a", "hub", "hub"), ("a", "hub:1", "se rver")])
def test_names_and_addresses_that_cannot_be(words):
    with pytest.raises(Refusal, match="wardround site init"):
        site_settings(*words)
