"""A party's key by its certificate, if it is the one whose fingerprint stands in the approved study."""

import hashlib

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from wardround.core.errors import Refusal
from wardround.deploy.trust.certificates import check_issued, name_attribute
from wardround.study.file import Study

TWO_SERVERS = "two_servers"


def has_two_servers(study: Study) -> bool:
    return bool(study.transforms) and study.transforms[-1].name == TWO_SERVERS


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Half of the SHA-256 of a public key in groups of four, to be read out on the phone."""
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digits = hashlib.sha256(encoded).hexdigest()[:32]
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def load_certificate(text: str, name: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise Refusal(f"the certificate of {name} cannot be read", remedy="ask the coordinator to fix it") from None


def pinned_key(
    study: Study, name: str, role: str, certificate: str | None, authority: x509.Certificate
) -> ec.EllipticCurvePublicKey:
    """The key of a party of an approved study; refuses a missing pin, another key, another name or role."""
    if certificate is None:
        raise Refusal(f"the round came without the certificate of {name}", remedy="ask the coordinator to fix it")
    read = load_certificate(certificate, name)
    issued, key = check_issued(read, authority, where=f"{role} {name}"), read.public_key()
    if (issued.name, issued.role) != (name, role) or not isinstance(key, ec.EllipticCurvePublicKey):
        raise Refusal(f"the certificate sent for {name} belongs to someone else", remedy="find out who sent it")
    pinned = study.deploy.fingerprints.get(name)
    if pinned is None:
        raise Refusal(
            f"the approved study does not say which key {name} has",
            where="[deploy] fingerprints",
            remedy="ask the coordinator to submit the study again: it fills them in",
        )
    if pinned != fingerprint(key):
        raise Refusal(
            f"{name} has another key than the approved study says",
            where=f"[deploy] fingerprints, {name}",
            remedy="compare fingerprints with them by phone; one of you may be deceived",
        )
    return key


def organisation_of(certificate: x509.Certificate) -> str:
    return name_attribute(certificate.subject, NameOID.ORGANIZATION_NAME)


def is_same_organisation(one: str, other: str) -> bool:
    """Whether two names are the same but for case, spaces and punctuation."""
    folded = ["".join(mark for mark in name.casefold() if mark.isalnum()) for name in (one, other)]
    return folded[0] == folded[1]
