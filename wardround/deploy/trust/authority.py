"""The consortium's authority: a folder with a key that signs certificates, on another machine than the coordinator's.

FOLDER/authority.key (encrypted with a passphrase, or warned about), FOLDER/authority.pem, and FOLDER/issued.json: whom
it ever signed, with which key. A name belongs to one key for good; a new key needs the old key's signature.
"""

import os
from pathlib import Path
from typing import Any

from cryptography import x509

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.deploy.trust.certificates import (
    PASSPHRASE,
    certificate_summary,
    is_encrypted,
    make_authority,
    read_certificate,
    sign,
)
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.rotations import SigningRequest, key_from_hex, key_hex
from wardround.runs.json_files import read_json, write_json

UNLOCKED = (
    "the authority's key is not encrypted: whoever can read {path} can admit any site. Set a passphrase with"
    f" {PASSPHRASE} or --passphrase-file before it is created"
)
ONE_MACHINE = (
    "the authority's key lies on the machine that listens: whoever breaks in there can admit any site. Keep it"
    " elsewhere with `wardround coordinator init --authority FOLDER`"
)


def begin_authority(folder: Path, consortium: str, passphrase: str | None = None) -> x509.Certificate:
    """Make an authority in a folder of its own."""
    if (folder / "authority.pem").exists():
        raise Refusal("this folder already holds an authority", where=str(folder), remedy="use it, or choose another")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise Refusal(
            f"the folder cannot be created: {error.strerror}", where=str(folder), remedy="choose another"
        ) from None
    (folder / "authority.key").unlink(missing_ok=True)  # without its certificate it has never signed anything
    return make_authority(folder, consortium, passphrase=passphrase)


def can_sign(folder: Path) -> bool:
    """Whether a process without a person at the keyboard can use the authority's key in this folder."""
    key = folder / "authority.key"
    return key.exists() and (not is_encrypted(key) or bool(os.environ.get(PASSPHRASE)))


def key_warnings(folder: Path, *, listens: bool) -> list[str]:
    """What is unsafe about the authority's key in this folder; `listens` where sites connect to the same machine."""
    key = folder / "authority.key"
    if not key.exists():
        return []
    unlocked = [] if is_encrypted(key) else [UNLOCKED.format(path=key)]
    return [*unlocked, *([ONE_MACHINE] if listens else [])]


def issued_keys(folder: Path) -> dict[str, Any]:
    """Whom this authority has signed: role, key, fingerprint and time by name."""
    path = folder / "issued.json"
    return read_json(path, "restore it from a backup") if path.exists() else {}


def issue(folder: Path, asked: SigningRequest, *, passphrase: str | None = None) -> x509.Certificate:
    """Sign a request; a name that was given to one key is given to another only if the first one signed it."""
    name, issued = asked.name, issued_keys(folder)
    before = issued.get(name)
    if before is not None and before["role"] == "coordinator" and not asked.hosts:
        raise Refusal("this is the coordinator's own name", where=name, remedy="choose another name for the site")
    if before is not None and not asked.follows(key_from_hex(str(before["key"]))):
        raise other_key(name, asked.where)
    if before is not None and not asked.hosts and before["role"] != asked.role:
        raise Refusal(
            f"the name '{name}' belongs to a {before['role']}, and the request is for a {asked.role}",
            where=asked.where or name,
            remedy="choose another name",
        )
    alike = [one for one in issued if one.casefold() == name.casefold() and one != name]
    same = [one for one, words in issued.items() if words["key"] == key_hex(asked.key) and one != name]
    if alike or same:
        what = f"there is already a site called '{alike[0]}'" if alike else f"this key already belongs to '{same[0]}'"
        raise Refusal(what, where=asked.where or name, remedy="choose another name, and a key of its own for each site")
    coordinators = [one for one, words in issued.items() if words["role"] == "coordinator" and one != name]
    if asked.hosts and coordinators:
        raise Refusal(
            f"the consortium's coordinator is '{coordinators[0]}'", where=asked.where, remedy="sign no second one"
        )
    certificate = sign(
        folder, asked.request, hosts=asked.hosts, name=name, second=asked.is_second, passphrase=passphrase
    )
    words = {
        "role": certificate_summary(certificate).role,
        "key": key_hex(asked.key),
        "fingerprint": fingerprint(asked.key),
        "when": timestamp(),
    }
    write_json(folder / "issued.json", {**issued, name: words})
    return certificate


def other_key(name: str, where: str) -> Refusal:
    return Refusal(
        f"the name '{name}' belongs to a site with another key",
        where=where or name,
        remedy="ask the site to use its existing key, or to sign the new one with it (`wardround site rotate-key`); if"
        " the key is lost, it must start over under another name",
    )


def authority_name(folder: Path) -> str:
    return certificate_summary(read_certificate(folder / "authority.pem")).name
