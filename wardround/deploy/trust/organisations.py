"""Who runs a second server: the organisation in its certificate, which must not be the coordinator's own."""

from cryptography import x509
from cryptography.x509.oid import NameOID

from wardround.core.errors import Refusal
from wardround.deploy.trust.certificates import name_attribute
from wardround.study.file import Study

TWO_SERVERS = "two_servers"


def has_two_servers(study: Study) -> bool:
    return bool(study.transforms) and study.transforms[-1].name == TWO_SERVERS


def load_certificate(text: str, name: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise Refusal(f"the certificate of {name} cannot be read", remedy="ask the coordinator to fix it") from None


def organisation_of(signed: x509.Certificate | x509.CertificateSigningRequest) -> str:
    return name_attribute(signed.subject, NameOID.ORGANIZATION_NAME)


def is_same_organisation(one: str, other: str) -> bool:
    """Whether two names are the same but for case, spaces and punctuation."""
    folded = ["".join(mark for mark in name.casefold() if mark.isalnum()) for name in (one, other)]
    return folded[0] == folded[1]
