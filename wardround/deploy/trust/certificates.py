"""Who is who in a consortium: an authority that signs, and keys that never leave their site.

A site makes its own key and a request; the coordinator signs the request; the certificate binds the site's name, and
TLS on both sides checks it. Certificates last 90 days. Private keys are written readable by their owner only; the
authority's can be encrypted with a passphrase, which is asked for or found in the environment.
"""

import os
import re
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.files import sync_folder, write_whole

Role = Literal["coordinator", "site", "second"]
LONGEST_TITLE = 64
"""Characters of a consortium's or an organisation's name: a certificate holds no more."""
LASTS = timedelta(days=90)
AUTHORITY_LASTS = timedelta(days=3650)
RENEW_BEFORE = timedelta(days=30)
SKEW = timedelta(days=2)
"""Certificates are valid from two days ago: hospital clocks may be a day off."""
PASSPHRASE = "WARDROUND_PASSPHRASE"
"""The environment variable with the passphrase of the authority's key, for scripts and services."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
Key = ec.EllipticCurvePrivateKey


class CertificateSummary(NamedTuple):
    """A certificate in words."""

    name: str
    role: str
    serial: str
    until: datetime


def check_name(name: str, what: str = "site") -> str:
    """Names stand in certificates, addresses and file names, so only plain characters are allowed."""
    if not NAME.fullmatch(name) or name == "server":
        raise Refusal(
            f"'{name}' cannot be the name of a {what}",
            remedy="use letters, digits, - and _ only, at most 63, and not the word server",
        )
    return name


def check_title(title: str, whose: str, where: str) -> str:
    """The name of a consortium or an organisation, if a certificate can hold it."""
    if not title.strip() or len(title) > LONGEST_TITLE or not title.isprintable():
        raise Refusal(
            f"the {whose}'s name does not fit into a certificate",
            where=where,
            remedy=f"use 1 to {LONGEST_TITLE} printable characters",
        )
    return title


def new_key(path: Path, passphrase: str | None = None) -> Key:
    """A new private key, written readable by its owner only; one that is there already is never replaced."""
    if path.exists():
        raise Refusal("there is already a private key", where=str(path), remedy="keep it, or choose another folder")
    key = ec.generate_private_key(ec.SECP256R1())
    locked = serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(partial, path)  # unlike a rename, never replaces a key that somebody else has just made
    except FileExistsError:
        raise Refusal("there is already a private key", where=str(path), remedy="keep it") from None
    finally:
        partial.unlink()
    sync_folder(path.parent)
    return key


def is_encrypted(path: Path) -> bool:
    """Whether a passphrase is needed to use a private key."""
    try:
        return b"ENCRYPTED" in path.read_bytes()[:64]
    except OSError:
        return False


def read_key(path: Path, passphrase: str | None = None) -> Key:
    try:
        content = path.read_bytes()
        locked = b"ENCRYPTED" in content[:64]
        if locked and not passphrase:
            raise Refusal(
                "the private key is encrypted, and no passphrase was given",
                where=str(path),
                remedy=f"run the command in a terminal, or set {PASSPHRASE}",
            )
        key = serialization.load_pem_private_key(content, passphrase.encode() if locked and passphrase else None)
    except FileNotFoundError:
        raise Refusal("there is no private key", where=str(path), remedy="create one with init") from None
    except (ValueError, TypeError) as error:
        if locked:
            raise Refusal("the passphrase is wrong", where=str(path), remedy="enter it again") from None
        raise Refusal(f"the private key cannot be read: {error}", where=str(path), remedy="restore it") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Refusal("the private key is of an unsupported type", where=str(path), remedy="create one with init")
    return key


def read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise Refusal(
            "there is no certificate",
            where=str(path),
            remedy="have the request signed, and take the certificate in: a site with `wardround site join`, the"
            " coordinator with `wardround coordinator accept`",
        ) from None
    except ValueError as error:
        raise Refusal(f"this is not a certificate: {error}", where=str(path), remedy="ask for it again") from None


def pem(thing: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList) -> bytes:
    return thing.public_bytes(serialization.Encoding.PEM)


def distinguished_name(name: str, role: str, organisation: str = "wardround") -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
        ]
    )


def name_attribute(name: x509.Name, of: x509.ObjectIdentifier) -> str:
    found = name.get_attributes_for_oid(of)
    return str(found[0].value) if found else ""


def certificate_summary(certificate: x509.Certificate) -> CertificateSummary:
    subject = certificate.subject
    return CertificateSummary(
        name_attribute(subject, NameOID.COMMON_NAME),
        name_attribute(subject, NameOID.ORGANIZATIONAL_UNIT_NAME),
        f"{certificate.serial_number:x}",
        certificate.not_valid_after_utc,
    )


def make_authority(
    folder: Path, consortium: str, *, now: datetime | None = None, passphrase: str | None = None
) -> x509.Certificate:
    """The consortium's own certificate authority: FOLDER/authority.key and FOLDER/authority.pem."""
    key = new_key(folder / "authority.key", passphrase or os.environ.get(PASSPHRASE))
    name = distinguished_name(consortium, "authority")
    begin = now or clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - SKEW)
        .not_valid_after(begin + AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_whole(folder / "authority.pem", pem(certificate))
    return certificate


def make_request(
    key: Key, name: str, role: Role = "site", organisation: str = "wardround"
) -> x509.CertificateSigningRequest:
    """What a site sends to be signed; it proves that the site has the key, and does not contain it."""
    check_name(name, role)
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(distinguished_name(name, role, organisation))
        .sign(key, hashes.SHA256())
    )


def read_request(content: bytes, where: str) -> x509.CertificateSigningRequest:
    try:
        request = x509.load_pem_x509_csr(content)
        valid = request.is_signature_valid
    except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise Refusal(
            f"this is not a certificate request: {error}", where=where, remedy="ask the site to send it again"
        ) from None
    if not valid:
        raise Refusal("the request's signature is invalid", where=where, remedy="ask the site to send it again")
    return request


Asking = x509.CertificateSigningRequest | x509.Certificate
"""A request, or the certificate that is to be renewed: it names the same party and the same key."""


def sign(
    folder: Path,
    request: Asking,
    *,
    hosts: tuple[str, ...] = (),
    name: str | None = None,
    second: bool = False,
    now: datetime | None = None,
    lasts: timedelta = LASTS,
    passphrase: str | None = None,
) -> x509.Certificate:
    """A certificate for a site, or with `hosts` for the coordinator; the request's own word for its role is not enough.

    `name` is who must be asking: a site that renews its certificate could else take another's name.
    """
    asked, role = (
        name_attribute(request.subject, of) for of in (NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME)
    )
    wanted: Role = "coordinator" if hosts else "second" if second else "site"
    organisation = name_attribute(request.subject, NameOID.ORGANIZATION_NAME) if second else "wardround"
    check_name(asked, wanted)
    if name is not None and asked != name:
        raise Refusal(
            f"the request is for '{asked}'", where=name, remedy="each site can only renew its own certificate"
        )
    if role != wanted:
        raise Refusal(
            f"the request is for the role '{role}', but a {wanted} is to be signed",
            where=asked,
            remedy="make it with `wardround site init`",
        )
    if wanted != "coordinator" and asked == coordinator_in(folder):
        raise Refusal("this is the coordinator's own name", where=asked, remedy="choose another name for the site")
    authority = read_certificate(folder / "authority.pem")
    key = read_key(folder / "authority.key", passphrase or os.environ.get(PASSPHRASE))
    begin = now or clock.now()
    builder = (
        x509.CertificateBuilder()
        .subject_name(distinguished_name(asked, wanted, organisation))
        .issuer_name(authority.subject)
        .public_key(public_key_of(request, asked))
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - SKEW)
        .not_valid_after(min(begin + lasts, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        # Only the coordinator may be a server, and only its certificate says under which names it is found.
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = [general_name(host) for host in dict.fromkeys((asked, *hosts))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False).sign(key, hashes.SHA256())


def public_key_of(request: Asking, name: str) -> ec.EllipticCurvePublicKey:
    """The key in a request, if it is of the only kind that we make."""
    try:
        public = request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise Refusal(
            "the request's key is of an unsupported type", where=name, remedy="make it with `wardround site init`"
        )
    return public


def coordinator_in(folder: Path) -> str:
    """The name in the coordinator's own certificate, where there is one already."""
    path = folder / "certificate.pem"
    return certificate_summary(read_certificate(path)).name if path.exists() else ""


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def is_due(certificate: x509.Certificate, now: datetime | None = None) -> bool:
    """Whether it is time to renew."""
    return certificate.not_valid_after_utc - (now or clock.now()) < RENEW_BEFORE


def has_ended_by(content: bytes, moment: datetime) -> bool:
    """Whether a certificate, in PEM, is not valid any more at that time."""
    return x509.load_pem_x509_certificate(content).not_valid_after_utc < moment


def check_issued(certificate: x509.Certificate, authority: x509.Certificate, *, where: str) -> CertificateSummary:
    """Refuse a certificate of another consortium, or one that is no longer (or not yet) valid."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise Refusal(
            "the certificate was not signed by this consortium",
            where=where,
            remedy="ask this coordinator to sign the request",
        ) from None
    moment = clock.now()
    if moment > certificate.not_valid_after_utc:
        raise Refusal(
            f"the certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d}",
            where=where,
            remedy="a site asks its coordinator to run `wardround coordinator renew SITE`, or to sign a new request,"
            " and joins with what it is sent; the coordinator itself runs `wardround coordinator renew`",
        )
    if moment < certificate.not_valid_before_utc:
        raise Refusal(
            f"the certificate is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}",
            where=where,
            remedy="correct this machine's clock",
        )
    return certificate_summary(certificate)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
