"""Requests to the authority as files: for a new certificate, and for a new key that the old key vouches for.

A rotation is a request of the new key together with a signature of the old key under both, so that whoever knew the old
key can follow without believing the coordinator or the authority.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from wardround.core.errors import Refusal
from wardround.core.journals.journal import canonical_json
from wardround.deploy.trust.certificates import (
    Asking,
    Key,
    check_name,
    make_request,
    name_attribute,
    pem,
    public_key_of,
    read_request,
)

SEAL = b"wardround key rotation\n"
LONGEST = 1 << 16
PublicKey = ec.EllipticCurvePublicKey


def key_hex(key: PublicKey) -> str:
    """A public key as files hold it: DER in hexadecimal."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo).hex()


def key_from_hex(text: str) -> PublicKey:
    """What `key_hex` wrote; a ValueError says that it is none."""
    key = serialization.load_der_public_key(bytes.fromhex(text))
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the key is of an unsupported type")
    return key


def proof_bytes(name: str, old: str, new: str) -> bytes:
    return SEAL + canonical_json({"name": name, "new": new, "old": old})


def prove_rotation(name: str, old: Key, new: PublicKey) -> str:
    """The old key's signature under its successor."""
    message = proof_bytes(name, key_hex(old.public_key()), key_hex(new))
    return old.sign(message, ec.ECDSA(hashes.SHA256())).hex()


def is_proven(name: str, old: str, new: str, proof: str) -> bool:
    """Whether the owner of the old key signed that the new one takes its place."""
    try:
        message = proof_bytes(name, old, new)
        key_from_hex(old).verify(bytes.fromhex(proof), message, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class SigningRequest:
    """Who asks for a certificate, for which key; `hosts` for a coordinator, `old` and `proof` where the key is new."""

    request: Asking
    hosts: tuple[str, ...] = ()
    old: str = ""
    proof: str = ""
    where: str = ""

    @property
    def name(self) -> str:
        try:
            return check_name(name_attribute(self.request.subject, NameOID.COMMON_NAME))
        except Refusal as refusal:
            raise Refusal(refusal.what, where=self.where, remedy=refusal.remedy) from None

    @property
    def role(self) -> str:
        return name_attribute(self.request.subject, NameOID.ORGANIZATIONAL_UNIT_NAME)

    @property
    def is_second(self) -> bool:
        return self.role == "second"

    @property
    def key(self) -> PublicKey:
        return public_key_of(self.request, self.name)

    @property
    def is_rotation(self) -> bool:
        return bool(self.proof)

    def follows(self, known: PublicKey) -> bool:
        """Whether it is for the known key, or for one that the known key signed."""
        if self.key.public_numbers() == known.public_numbers():
            return True
        return self.old == key_hex(known) and is_proven(self.name, self.old, key_hex(self.key), self.proof)

    def to_bytes(self) -> bytes:
        words = {
            "request": pem(self.request).decode(),
            "hosts": list(self.hosts),
            "old": self.old,
            "proof": self.proof,
        }
        return (json.dumps(words, indent=1) + "\n").encode()


def rotation_of(name: str, old: Key, new: Key) -> SigningRequest:
    """A request for a new key, vouched for by the old one."""
    proof = prove_rotation(name, old, new.public_key())
    return SigningRequest(make_request(new, name), (), key_hex(old.public_key()), proof)


def read_signing_request(path: Path) -> SigningRequest:
    """A request from a file: as `wardround site init` writes it (request.csr), or one with a proof (rotation.json)."""
    where = str(path)
    try:
        with open(path, "rb") as file:
            content = file.read(LONGEST)
    except OSError as error:
        raise Refusal(f"the request cannot be read: {error.strerror}", where=where, remedy="check the path") from None
    if not content.lstrip().startswith(b"{"):
        return SigningRequest(read_request(content, where), where=where)
    try:
        words: Any = json.loads(content)
        request, hosts, old, proof = (words[key] for key in ("request", "hosts", "old", "proof"))
        whole = all(isinstance(one, str) for one in (request, old, proof, *hosts)) and isinstance(hosts, list)
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise Refusal("this is not a certificate request", where=where, remedy="ask the site to send it again")
    return SigningRequest(read_request(request.encode(), where), tuple(hosts), old, proof, where)
