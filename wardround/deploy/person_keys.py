"""Keys of persons: who decides signs with an Ed25519 key that lies outside the home; a party knows the public halves.

Users of the operating system tell people apart where each has one. Where all are one user, as in a container, the file
that names the keys (roles.toml) is put where that user cannot write, and an approval counts only with a signature.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from wardround.core.errors import Refusal

CONTEXT = b"wardround decision\n"
"""Signed before the words, so that a signature under anything else is none under a decision."""


class PersonKey(NamedTuple):
    """Somebody's key: `public` is how roles.toml names it."""

    public: str
    sign: Callable[[bytes], str]


def make_person_key(path: Path, passphrase: bytes | None) -> PersonKey:
    """Write a new key, for its owner's eyes only; an existing file is not touched."""
    key = Ed25519PrivateKey.generate()
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
    except OSError as error:
        raise Refusal(
            f"the key cannot be written: {error.strerror}", where=str(path), remedy="choose another file"
        ) from None
    return person_key(key)


def read_person_key(path: Path, passphrase: Callable[[], bytes]) -> PersonKey:
    """A person's key; the passphrase is asked for where it has one."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Refusal(
            f"the key cannot be read: {error.strerror}", where=str(path), remedy="name your key with --key FILE"
        ) from None
    locked = b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in text
    try:
        key = serialization.load_pem_private_key(text, passphrase() if locked else None)
    except (ValueError, TypeError):
        remedy = "type it again" if locked else "make one with `wardround site person-key FILE`"
        what = "the passphrase is wrong, or the key is damaged" if locked else "this is no key of a person"
        raise Refusal(what, where=str(path), remedy=remedy) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Refusal(
            "this is no Ed25519 key", where=str(path), remedy="make one with `wardround site person-key FILE`"
        )
    return person_key(key)


def person_key(key: Ed25519PrivateKey) -> PersonKey:
    return PersonKey(key.public_key().public_bytes_raw().hex(), lambda words: key.sign(CONTEXT + words).hex())


def is_signed(public: str, signature: str, words: bytes) -> bool:
    """Whether these words were signed with the key of this public half."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), CONTEXT + words)
    except (InvalidSignature, ValueError):
        return False
    return True
