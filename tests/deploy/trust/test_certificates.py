"""Certificates of a consortium: who gets which, and who does not."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from wardround.core.errors import Refusal
from wardround.deploy.trust.certificates import (
    AUTHORITY_LASTS,
    LASTS,
    SKEW,
    certificate_summary,
    check_issued,
    check_name,
    distinguished_name,
    is_due,
    make_authority,
    make_request,
    new_key,
    pem,
    read_certificate,
    read_key,
    read_request,
    sign,
)

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_authority(tmp_path, "test")
    return tmp_path


def request_for(folder: Path, name: str, role: str = "site") -> x509.CertificateSigningRequest:
    return make_request(new_key(folder / f"{name}.key"), name, role)  # type: ignore[arg-type]


def usage(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_key_is_for_its_owner_only_and_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key.pem"
    key = new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path).private_numbers() == key.private_numbers()
    before = path.read_bytes()
    with pytest.raises(Refusal, match="already a private key"):
        new_key(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_key_that_a_crash_left_half_written_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "key.pem.partial").write_bytes(b"-----BEGIN")
    new_key(tmp_path / "key.pem")
    assert read_key(tmp_path / "key.pem")
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_a_request_does_not_hold_the_key(folder: Path) -> None:
    request = request_for(folder, "a")
    secret = read_key(folder / "a.key").private_numbers().private_value
    assert f"{secret:x}" not in pem(request).hex()
    assert b"PRIVATE" not in pem(request)


def test_a_site_is_a_client_and_never_a_server(folder: Path) -> None:
    certificate = sign(folder, request_for(folder, "localhost"), now=NOW)
    assert usage(certificate) == {ExtendedKeyUsageOID.CLIENT_AUTH}
    with pytest.raises(x509.ExtensionNotFound):  # so not even a site called localhost is found under a name
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert certificate_summary(certificate)[:2] == ("localhost", "site")


def test_dates_by_hand(folder: Path) -> None:
    """From two days before, since hospital clocks may be a day off, to ninety days after; due for the last thirty."""
    certificate = sign(folder, request_for(folder, "a"), now=NOW)
    assert certificate.not_valid_before_utc == datetime(2030, 4, 29, 12, tzinfo=UTC)
    assert certificate.not_valid_after_utc == datetime(2030, 7, 30, 12, tzinfo=UTC)
    assert not is_due(certificate, datetime(2030, 6, 30, 11, tzinfo=UTC))
    assert is_due(certificate, datetime(2030, 6, 30, 13, tzinfo=UTC))


def test_no_certificate_outlives_the_authority(tmp_path: Path) -> None:
    make_authority(tmp_path, "test", now=NOW - AUTHORITY_LASTS + timedelta(days=10))
    certificate = sign(tmp_path, request_for(tmp_path, "a"), now=NOW)
    assert certificate.not_valid_after_utc == NOW + timedelta(days=10)


def test_the_chain_holds_for_an_independent_verifier(folder: Path) -> None:
    """cryptography's X.509 verification accepts the coordinator under its hosts, and nobody else as a server."""
    hub = sign(folder, request_for(folder, "hub", "coordinator"), hosts=("hub.example.org",), now=NOW)
    site = sign(folder, request_for(folder, "a"), now=NOW)
    store = Store([read_certificate(folder / "authority.pem")])
    builder = PolicyBuilder().store(store).time(NOW)
    builder.build_server_verifier(x509.DNSName("hub.example.org")).verify(hub, [])
    for certificate, name in ((hub, "evil.example.org"), (site, "hub.example.org"), (site, "a")):
        with pytest.raises(VerificationError):
            builder.build_server_verifier(x509.DNSName(name)).verify(certificate, [])
    late = PolicyBuilder().store(store).time(NOW + LASTS + timedelta(days=1))
    with pytest.raises(VerificationError):
        late.build_server_verifier(x509.DNSName("hub.example.org")).verify(hub, [])


def test_a_site_that_asks_to_be_a_coordinator_is_refused(folder: Path) -> None:
    """The role in a request is its own word; with serverAuth a site could pose as the coordinator."""
    with pytest.raises(Refusal, match="role 'coordinator', but a site is to be signed"):
        sign(folder, request_for(folder, "a", "coordinator"))


def test_a_site_that_asks_for_another_name_is_refused(folder: Path) -> None:
    request = request_for(folder, "b")
    assert certificate_summary(sign(folder, request, name="b")).name == "b"
    with pytest.raises(Refusal, match="request is for 'b'"):
        sign(folder, request, name="a")


def test_a_site_cannot_have_the_coordinators_name(folder: Path) -> None:
    hub = sign(folder, request_for(folder, "hub", "coordinator"), hosts=("localhost",))
    (folder / "certificate.pem").write_bytes(pem(hub))
    key = new_key(folder / "other.key")
    with pytest.raises(Refusal, match="coordinator's own name"):
        sign(folder, make_request(key, "hub"))


@pytest.mark.parametrize("name", ["server", "", "a.b", "a b", "../a", "a/b", "-a", "ä", "a" * 64, "a\n"])
def test_names_that_could_be_something_else_are_refused(name: str) -> None:
    with pytest.raises(Refusal, match="cannot be the name"):
        check_name(name)


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP521R1()), rsa.generate_private_key(65537, 2048)])
def test_keys_of_another_kind_are_refused(folder: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(distinguished_name("a", "site"))
    with pytest.raises(Refusal, match="of an unsupported type"):
        sign(folder, builder.sign(key, hashes.SHA256()))


def test_extensions_that_a_request_asks_for_are_not_granted(folder: Path) -> None:
    """Only what we put in stands in a certificate: here a request to be an authority itself."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(distinguished_name("a", "site"))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = sign(folder, builder.sign(new_key(folder / "a.key"), hashes.SHA256()))
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert [one.value for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["a"]


def test_a_request_that_was_changed_on_its_way_is_refused(folder: Path) -> None:
    """One bit of the name in the signed part: a -> b would else be signed for b."""
    content = pem(request_for(folder, "aaaaaaaa"))
    assert read_request(content, "here")
    der = x509.load_pem_x509_csr(content).public_bytes(serialization.Encoding.DER)
    changed = x509.load_der_x509_csr(der.replace(b"aaaaaaaa", b"baaaaaaa"))
    with pytest.raises(Refusal, match="signature is invalid"):
        read_request(pem(changed), "here")
    with pytest.raises(Refusal, match="not a certificate request"):
        read_request(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "here")


def test_certificates_are_checked_against_consortium_and_clock(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    today, authority = datetime.now(UTC), read_certificate(folder / "authority.pem")
    request = request_for(folder, "a")
    assert check_issued(sign(folder, request), authority, where="here").name == "a"
    ended = sign(folder, request, now=today - timedelta(days=10), lasts=timedelta(days=9))
    with pytest.raises(Refusal, match="expired on"):
        check_issued(ended, authority, where="here")
    early = sign(folder, request, now=today + SKEW + timedelta(hours=1))
    with pytest.raises(Refusal, match="this machine's clock"):
        check_issued(early, authority, where="here")
    other = tmp_path_factory.mktemp("other")
    foreign = make_authority(other, "test")
    with pytest.raises(Refusal, match="not signed by this consortium"):
        check_issued(sign(folder, request), foreign, where="here")


def test_files_that_are_missing_or_broken_are_told(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no private key"):
        read_key(tmp_path / "key.pem")
    with pytest.raises(Refusal, match="no certificate"):
        read_certificate(tmp_path / "certificate.pem")
    (tmp_path / "key.pem").write_text("nonsense", encoding="utf-8")
    with pytest.raises(Refusal, match="cannot be read"):
        read_key(tmp_path / "key.pem")
    with pytest.raises(Refusal, match="is not a certificate"):
        read_certificate(tmp_path / "key.pem")
