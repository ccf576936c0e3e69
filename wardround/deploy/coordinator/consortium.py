"""How a consortium begins, admits sites and shuts them out; all in its coordinator's home folder.

The authority's key is made here and never leaves. A certificate binds a name to a key for good: a name that was given
to one key is not given to another, and a revoked name is not given again, since whoever holds the old key could still
use it. Only one process at a time may be the coordinator of a home.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.two_servers.second_server import is_second, refuse_same_organisation
from wardround.deploy.home import CoordinatorHome, CoordinatorSettings
from wardround.deploy.settings_files import toml_lines, validate
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import (
    certificate_summary,
    check_name,
    make_authority,
    make_request,
    name_attribute,
    new_key,
    pem,
    public_key_of,
    read_certificate,
    read_request,
    sign,
)
from wardround.queries.columns import suggest_name
from wardround.runs.json_files import write_file

LONGEST_NAME = 64
"""Characters of a consortium's name: a certificate holds no more."""
EVERYWHERE = ("0.0.0.0", "*")
BEGINNING = {"authority.key", "authority.pem", "key.pem", "certificate.pem"}
"""What an interrupted beginning leaves."""


class AdmittedSite(NamedTuple):
    """A signed request: whom it is for, how to tell the key by phone, until when, and where the certificate lies."""

    name: str
    fingerprint: str
    until: datetime
    path: Path
    renewed: bool


def coordinator_settings(consortium: str, name: str, listen: str, hosts: list[str]) -> CoordinatorSettings:
    """coordinator.toml; sites find the coordinator under the names in `hosts`, or under where it listens."""
    if not consortium.strip() or len(consortium) > LONGEST_NAME or not consortium.isprintable():
        raise Refusal(
            "the consortium's name does not fit into a certificate",
            where="wardround coordinator init",
            remedy=f"use 1 to {LONGEST_NAME} printable characters",
        )
    words = {"consortium": consortium, "name": name, "listen": listen, "hosts": hosts}
    said = validate(words, CoordinatorSettings, "wardround coordinator init")
    host = said.listen.rpartition(":")[0]
    found = list(dict.fromkeys([*hosts, *([] if host in EVERYWHERE else [host])]))
    if not found:
        raise Refusal(
            f"sites need a host name to connect to, and the listening address {listen} is not one",
            where="wardround coordinator init",
            remedy="name the host that sites connect to, such as --host hub.example.org",
        )
    for one in found:
        if not one.isascii() or not all(mark.isalnum() or mark in ".-_:" for mark in one):
            raise Refusal(
                f"'{one}' is not a host name", where="--host", remedy="write the name or address that sites connect to"
            )
    return said.model_copy(update={"hosts": found})


def begin_consortium(path: Path, words: CoordinatorSettings) -> CoordinatorHome:
    """Make a coordinator's home: authority, key, certificate; goes on where it was interrupted."""
    home = CoordinatorHome(path)
    if (path / "coordinator.toml").exists():
        raise Refusal(
            "this folder already holds a coordinator", where=str(path), remedy="use it, or choose another --home"
        )
    strange = sorted(set(os.listdir(path)) - BEGINNING) if path.is_dir() else []
    if strange:
        raise Refusal(
            f"the folder is not empty: it holds {strange[0]}", where=str(path), remedy="choose a new folder with --home"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise Refusal(
            f"the folder cannot be created: {error.strerror}", where=str(path), remedy="choose another --home"
        ) from None
    if not home.authority_path.exists():
        (path / "authority.key").unlink(missing_ok=True)  # without its certificate it has never signed anything
        make_authority(path, words.consortium)
    key = home.key if home.key_path.exists() else new_key(home.key_path)
    request = make_request(key, words.name, "coordinator")
    write_file(home.certificate_path, pem(sign(path, request, hosts=tuple(words.hosts))))
    (path / "sites").mkdir(exist_ok=True)
    write_file(path / "coordinator.toml", toml_lines(words.model_dump()).encode())  # last: now it is a coordinator
    home.log().append(event_entry("began", consortium=words.consortium, coordinator=words.name))
    return home


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Half of the SHA-256 of a public key in groups of four, to be read out on the phone."""
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digits = hashlib.sha256(encoded).hexdigest()[:32]
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def admit(home: CoordinatorHome, request: Path, *, testing: bool = False) -> AdmittedSite:
    """Sign a site's request; the same key again gets a new certificate, another key never gets a name that is taken."""
    try:
        content = request.read_bytes()
    except OSError as error:
        raise Refusal(
            f"the request cannot be read: {error.strerror}", where=str(request), remedy="check the path"
        ) from None
    asked = read_request(content, str(request))
    name = requested_name(asked, str(request))
    key = public_key_of(asked, name)
    second = is_second(asked)
    if second:
        refuse_same_organisation(home, asked, request, testing=testing)
    gone = home.revoked().get(name)
    if gone is not None:
        raise Refusal(
            f"'{name}' was revoked on {str(gone.get('when', ''))[:10]}, and its old key could still use the name",
            where=str(request),
            remedy="ask the site to start over under another name",
        )
    path = home.second_certificate(name) if second else home.site_certificate(name)
    others = [*(home.path / "sites").glob("*.pem"), *(home.path / "seconds").glob("*.pem")]
    alike = [other for other in others if other.stem.casefold() == name.casefold() and other != path]
    path.parent.mkdir(exist_ok=True)
    if alike:
        kind = "second server" if alike[0].parent.name == "seconds" else "site"
        raise Refusal(
            f"there is already a {kind} called '{alike[0].stem}'", where=str(request), remedy="choose another name"
        )
    renewed = path.exists()
    if renewed and read_certificate(path).public_key() != key:
        raise Refusal(
            f"the name '{name}' belongs to a site with another key",
            where=str(request),
            remedy="ask the site to use its existing key; if that is lost, it must start over under another name",
        )
    certificate = sign(home.path, asked, name=name, second=second)
    issued = certificate_summary(certificate)
    home.log().append(
        event_entry(
            "signed", **{"second" if second else "site": name}, serial=issued.serial, until=f"{issued.until:%Y-%m-%d}"
        )
    )
    write_file(path, pem(certificate))
    return AdmittedSite(name, fingerprint(key), issued.until, path, renewed)


def requested_name(request: Any, where: str) -> str:
    from cryptography.x509.oid import NameOID

    name = name_attribute(request.subject, NameOID.COMMON_NAME)
    try:
        return check_name(name)
    except Refusal as refusal:
        raise Refusal(refusal.what, where=where, remedy=refusal.remedy) from None


def revoke(home: CoordinatorHome, site: str, *, by: str, why: str = "") -> None:
    """Shut a site out, for good; a running coordinator heeds it within a second, also in the midst of a round."""
    known = sorted(path.stem for room in ("sites", "seconds") for path in (home.path / room).glob("*.pem"))
    if site not in known:
        raise Refusal(f"there is no site called '{site}'", where=str(home.path), remedy=suggest_name(site, known))
    revoked = home.revoked()
    if site in revoked:
        raise Refusal(
            f"'{site}' was already revoked on {str(revoked[site].get('when', ''))[:10]}",
            where=str(home.path),
            remedy="nothing more to do",
        )
    path = home.site_certificate(site)
    serial = certificate_summary(read_certificate(path if path.exists() else home.second_certificate(site))).serial
    entry = {"serial": serial, "when": timestamp(), "by": by, "why": why}
    home.log().append(event_entry("revoked", site=site, **{key: entry[key] for key in ("serial", "by", "why")}))
    home.write_revoked({**revoked, site: entry})


# ---- one process a home ----


@contextmanager
def lock_home(home: CoordinatorHome) -> Iterator[None]:
    """Be the coordinator of a home; refused while another process is. A killed process lets go by itself."""
    with open_lock_file(home) as file:
        # Whoever only looks (see `is_running`) holds the lock for an instant: try again before giving up.
        for _ in range(10):
            if try_lock(file):
                break
            time.sleep(0.1)
        else:
            raise Refusal(
                "a coordinator is already running in this folder",
                where=str(home.path),
                remedy="see `wardround coordinator status`",
            )
        yield


def is_running(home: CoordinatorHome) -> bool:
    with open_lock_file(home) as file:
        return not try_lock(file)


@contextmanager
def open_lock_file(home: CoordinatorHome) -> Iterator[int]:
    file = os.open(home.path / "coordinator.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def try_lock(file: int) -> bool:
    """Whether the lock is ours now; it is let go when the file is closed, or with the process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
