"""The keys with which sites sign: Ed25519, one a site, the private half in a file that only its owner may read.

Bernstein et al., "High-speed high-security signatures", 2012, as `cryptography` implements it. On
Windows a file has no mode, and its folder must be private. The private
key is not encrypted: whoever reads the file can sign in the site's name.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from wardround.core.errors import Refusal
from wardround.core.files import HAS_MODES


def make_key(path: Path) -> str:
    """Make a site's signing key in a new file that only its owner may read; gives the public key as PEM text."""
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        # O_EXCL: a key is never overwritten, for what it signed could not be continued.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as problem:
        remedy = "keep the key that is there, or name another file" if path.exists() else "choose a folder that exists"
        raise Refusal(f"no key can be made here: {problem.strerror}", where=str(path), remedy=remedy) from None
    with os.fdopen(handle, "wb") as file:
        path.chmod(0o600)  # whatever the umask says
        file.write(secret)
        file.flush()
        os.fsync(handle)
    return public_key(key)


def read_key(path: Path) -> Ed25519PrivateKey:
    """A site's signing key; refused where others than its owner may read the file."""
    try:
        mode, secret = stat.S_IMODE(path.stat().st_mode), path.read_bytes()
    except OSError as problem:
        remedy = "check the path, or make a key with `wardround ledger key SITE`"
        raise Refusal(f"the key cannot be read: {problem.strerror}", where=str(path), remedy=remedy) from None
    if HAS_MODES and mode & 0o077:
        raise Refusal(
            f"others may read this private key (mode {mode:04o})",
            where=str(path),
            remedy="make a new key, or chmod 600 if nobody can have read it",
        )
    try:
        key = serialization.load_pem_private_key(secret, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Refusal(
            "this is no Ed25519 private key", where=str(path), remedy="make one with `wardround ledger key SITE`"
        )
    return key


def public_key(key: Ed25519PrivateKey) -> str:
    """The public half as PEM text, to give to whoever verifies."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode("ascii")


def read_public_keys(public_keys: Mapping[str, str]) -> dict[str, Ed25519PublicKey]:
    read: dict[str, Ed25519PublicKey] = {}
    for site, pem in public_keys.items():
        try:
            key = serialization.load_pem_public_key(pem.encode())
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise Refusal(
                "this is no Ed25519 public key in PEM", where=f"site {site}", remedy="ask the site for its key"
            )
        read[site] = key
    return read


def signature_problem(keys: Mapping[str, Ed25519PublicKey] | None, who: str, signature: str, message: bytes) -> str:
    """What is wrong with a signature, or nothing; without any keys signatures are not looked at."""
    if keys is None:
        return ""
    if who not in keys:
        return f"signed in the name of {who!r}, whose public key was not given"
    try:
        keys[who].verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return f"the signature is not {who!r}'s"
    return ""
