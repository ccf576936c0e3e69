"""How a consortium begins, admits sites and shuts them out; all in its coordinator's home folder.

The authority that signs may lie in this folder or elsewhere; then requests wait in `requests` until its owner has
signed them. A certificate binds a name to a key: a name that was given to one key is given to another only if the old
key signed the new one, and a revoked name is not given again, since whoever holds the old key could still use it. Every
change is in the membership log, which all sites witness. Only one process at a time may be the coordinator of a home.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.core.files import lock_file
from wardround.deploy.coordinator.two_servers.second_server import refuse_other_organisation, refuse_same_organisation
from wardround.deploy.home import CoordinatorHome, CoordinatorSettings
from wardround.deploy.home_folder import make_home_folder
from wardround.deploy.settings_files import toml_lines, validate
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.authority import begin_authority, can_sign, issue, other_key
from wardround.deploy.trust.certificates import (
    certificate_summary,
    check_issued,
    check_title,
    make_request,
    new_key,
    pem,
    read_certificate,
)
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.membership import (
    ADMITTED,
    ADMITTED_SECOND,
    COORDINATOR,
    RENEWED,
    REVOKED,
    ROTATED,
    MembershipLog,
    change_of,
)
from wardround.deploy.trust.rotations import SigningRequest, key_hex, read_signing_request
from wardround.queries.columns import suggest_name
from wardround.runs.json_files import write_file

EVERYWHERE = ("0.0.0.0", "*")
BEGINNING = frozenset(
    {
        *("authority.key", "authority.pem", "issued.json", "key.pem", "certificate.pem", "membership.jsonl"),
        *("requests", "sites"),
    }
)
"""What an interrupted beginning leaves."""


class AdmittedSite(NamedTuple):
    """A signed request: whom it is for, how to tell the key by phone, until when, and where the certificate lies.

    Where the authority is elsewhere, `until` is none and `path` is the request that waits for it.
    """

    name: str
    fingerprint: str
    until: datetime | None
    path: Path
    renewed: bool
    rotated: bool = False
    second: bool = False
    """Whether it is a second server."""


def coordinator_settings(consortium: str, name: str, listen: str, hosts: list[str]) -> CoordinatorSettings:
    """coordinator.toml; sites find the coordinator under the names in `hosts`, or under where it listens."""
    check_title(consortium, "consortium", "wardround coordinator init")
    words = {"consortium": consortium, "name": name, "listen": listen, "hosts": hosts}
    settings = validate(words, CoordinatorSettings, "wardround coordinator init")
    host = settings.listen.rpartition(":")[0]
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
    return settings.model_copy(update={"hosts": found})


def begin_consortium(
    path: Path, words: CoordinatorSettings, authority: Path | None = None, passphrase: str | None = None
) -> CoordinatorHome:
    """Make a coordinator's home: authority, key, certificate; goes on where it was interrupted.

    With the folder of an `authority` of its own, the authority's key never lies in the home. Where that folder has no
    key either (it is on another machine), the coordinator's own request waits to be signed there.
    """
    home = CoordinatorHome(path)
    make_home_folder(path, "coordinator", BEGINNING)
    folder = authority or path
    if not (folder / "authority.pem").exists():
        begin_authority(folder, words.consortium, passphrase)
    if authority is not None:
        write_file(home.authority_path, pem(read_certificate(authority / "authority.pem")))
    key = home.key if home.key_path.exists() else new_key(home.key_path)
    asked = SigningRequest(make_request(key, words.name, "coordinator"), tuple(words.hosts))
    if (folder / "authority.key").exists():
        take_own(home, issue(folder, asked, passphrase=passphrase))
    else:
        write_file(home.request_path(words.name), asked.to_bytes())
    (path / "sites").mkdir(exist_ok=True)
    write_file(path / "coordinator.toml", toml_lines(words.model_dump()).encode())  # last: now it is a coordinator
    home.log().append(event_entry("began", consortium=words.consortium, coordinator=words.name))
    return home


def membership_of(home: CoordinatorHome) -> MembershipLog:
    """The log, after entries were added for certificates of a time when there was no such log."""
    log = MembershipLog(home.membership_path)
    known = log.read().keys
    for path in [one for one in (home.certificate_path, *home.party_certificates()) if one.exists()]:
        certificate = read_certificate(path)
        name = certificate_summary(certificate).name
        if name not in known:
            own = path == home.certificate_path
            log.append(change_of(COORDINATOR if own else admission_of(certificate), certificate))
            if name in home.revoked():
                log.append(change_of(REVOKED, certificate))
    return log


def admission_of(certificate: x509.Certificate) -> str:
    """How the membership log says that its owner was admitted."""
    return ADMITTED_SECOND if certificate_summary(certificate).role == "second" else ADMITTED


def take_own(home: CoordinatorHome, certificate: x509.Certificate) -> None:
    """The coordinator's own certificate: into the membership log, then into use."""
    MembershipLog(home.membership_path).append(change_of(COORDINATOR, certificate))
    write_file(home.certificate_path, pem(certificate))


def admit(
    home: CoordinatorHome,
    request: Path,
    authority: Path | None = None,
    passphrase: str | None = None,
    *,
    testing: bool = False,
) -> AdmittedSite:
    """Sign a site's request; the same key again gets a new certificate, another key only with the old one's signature.

    Where the authority's key is not at hand, the request is kept for it. A second server of the coordinator's own
    organisation is signed for `testing` only.
    """
    asked = replace(read_signing_request(request), hosts=())
    if asked.is_second:
        refuse_same_organisation(home, asked.request, request, testing=testing)
    renewed = check_request(home, asked)
    folder = authority or home.path
    if not (folder / "authority.key").exists():
        path = home.request_path(asked.name)
        write_file(path, asked.to_bytes())
        words = fingerprint(asked.key)
        return AdmittedSite(asked.name, words, None, path, renewed, asked.is_rotation, asked.is_second)
    certificate = issue(folder, asked, passphrase=passphrase)
    return take_site(home, certificate, asked)


def check_requests(home: CoordinatorHome, requests: Sequence[Path]) -> None:
    """Refuse all where one of them cannot be signed, or two are for the same name or key."""
    seen = set[str]()
    for path in requests:
        asked = read_signing_request(path)
        check_request(home, asked)
        own = {asked.name.casefold(), key_hex(asked.key)}
        if seen & own:
            raise Refusal("two requests are for the same name or key", where=str(path), remedy="sign each party's own")
        seen |= own


def check_request(home: CoordinatorHome, asked: SigningRequest) -> bool:
    """Refuse a request for a name that is revoked, taken or another key's; gives whether the name is known."""
    name, where = asked.name, asked.where
    gone = home.revoked().get(name)
    if gone is not None:
        raise Refusal(
            f"'{name}' was revoked on {str(gone.get('when', ''))[:10]}, and its old key could still use the name",
            where=where,
            remedy="ask the site to start over under another name",
        )
    path = home.second_certificate(name) if asked.is_second else home.site_certificate(name)
    for other in home.party_certificates():
        if other == path:
            continue
        kind = "second server" if other == home.second_certificate(other.stem) else "site"
        if other.stem.casefold() == name.casefold():
            raise Refusal(f"there is already a {kind} called '{other.stem}'", where=where, remedy="choose another name")
        if read_certificate(other).public_key() == asked.key:
            raise Refusal(
                f"this key already belongs to the {kind} '{other.stem}'",
                where=where,
                remedy="make a key of its own for every party, with `wardround site init`",
            )
    if path.exists() and not asked.follows(known_key(home, name)):
        raise other_key(name, where)
    if path.exists() and asked.is_second:
        refuse_other_organisation(read_certificate(path), asked.request, where)
    return path.exists()


def known_key(home: CoordinatorHome, name: str) -> ec.EllipticCurvePublicKey:
    """The key that a site or second server has, by its certificate."""
    key = read_certificate(home.party_certificate(name)).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def take_site(home: CoordinatorHome, certificate: x509.Certificate, asked: SigningRequest) -> AdmittedSite:
    """Write down that a site or second server was admitted, renewed or given a new key; keep its certificate."""
    issued, log = certificate_summary(certificate), membership_of(home)
    second = issued.role == "second"
    path = home.second_certificate(issued.name) if second else home.site_certificate(issued.name)
    renewed = path.exists()
    rotated = renewed and known_key(home, issued.name).public_numbers() != asked.key.public_numbers()
    kind = ROTATED if rotated else RENEWED if renewed else admission_of(certificate)
    log.append(change_of(kind, certificate, proof=asked.proof if rotated else ""))
    who = {"second" if second else "site": issued.name}
    home.log().append(event_entry("signed", **who, serial=issued.serial, until=f"{issued.until:%Y-%m-%d}"))
    if rotated:
        before = read_certificate(path)
        write_file(home.former_certificate(issued.name, certificate_summary(before).serial), pem(before))
    write_file(path, pem(certificate))
    home.request_path(issued.name).unlink(missing_ok=True)
    return AdmittedSite(issued.name, fingerprint(asked.key), issued.until, path, renewed, rotated, second)


def accept(home: CoordinatorHome, path: Path) -> AdmittedSite:
    """Take in a certificate that the authority signed elsewhere, for a request that was waiting for it."""
    certificate = read_certificate(path)
    issued = check_issued(certificate, read_certificate(home.authority_path), where=str(path))
    waiting = home.request_path(issued.name)
    if not waiting.exists():
        raise Refusal(
            f"no request of '{issued.name}' is waiting", where=str(path), remedy="see `wardround coordinator requests`"
        )
    asked = read_signing_request(waiting)
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or key_hex(key) != key_hex(asked.key):
        raise Refusal(
            "the certificate is for another key than the request",
            where=str(path),
            remedy=f"have the authority sign {waiting}",
        )
    if issued.role == "coordinator":
        if issued.name != home.own_name or key_hex(key) != key_hex(home.key.public_key()):
            raise Refusal("the certificate is another coordinator's", where=str(path), remedy="sign the own request")
        take_own(home, certificate)
        home.log().append(event_entry("renewed", site=home.own_name))
        waiting.unlink()
        return AdmittedSite(issued.name, fingerprint(key), issued.until, home.certificate_path, True)
    renewed = check_request(home, asked)
    made = take_site(home, certificate, asked)
    if renewed and not made.rotated:
        write_file(home.delivery_path(issued.name), b"")
    return made


def waiting_requests(home: CoordinatorHome) -> list[SigningRequest]:
    """Requests that the authority has yet to sign."""
    return [read_signing_request(path) for path in sorted((home.path / "requests").glob("*.json"))]


def renew_site(home: CoordinatorHome, site: str, request: SigningRequest) -> x509.Certificate | None:
    """A new certificate for the key that a site has; none where the request has to wait for the authority.

    Another key is refused here, whatever it comes with: a new key is a rotation, which an administrator signs.
    """
    if request.name != site:
        raise Refusal(
            f"the request is for '{request.name}'", where=site, remedy="each site can only renew its own certificate"
        )
    if request.key.public_numbers() != known_key(home, site).public_numbers():
        raise other_key(site, f"site {site}, renewal")
    check_request(home, request)
    if not can_sign(home.path):
        write_file(home.request_path(site), request.to_bytes())
        return None
    certificate = issue(home.path, request)
    membership_of(home).append(change_of(RENEWED, certificate))
    write_file(home.party_certificate(site), pem(certificate))
    return certificate


def sign_own(home: CoordinatorHome, authority: Path | None = None, passphrase: str | None = None) -> Path | None:
    """A new certificate for the coordinator itself; where the authority's key is not at hand, the request for it."""
    asked = SigningRequest(make_request(home.key, home.own_name, "coordinator"), tuple(home.settings.hosts))
    folder = authority or home.path
    if not (can_sign(folder) or passphrase):
        write_file(home.request_path(home.own_name), asked.to_bytes())
        return home.request_path(home.own_name)
    take_own(home, issue(folder, asked, passphrase=passphrase))
    home.request_path(home.own_name).unlink(missing_ok=True)
    home.log().append(event_entry("renewed", site=home.own_name))
    return None


def renew_absent(
    home: CoordinatorHome, name: str, authority: Path | None = None, passphrase: str | None = None
) -> AdmittedSite:
    """A new certificate for a party that cannot connect any more, from the one that it had: same name, same key."""
    path = home.party_certificate(name)
    if not path.exists():
        known = sorted(one.stem for one in home.party_certificates())
        raise Refusal(f"there is no site called '{name}'", where=str(home.path), remedy=suggest_name(name, known))
    asked, folder = SigningRequest(read_certificate(path)), authority or home.path
    check_request(home, asked)
    if not (can_sign(folder) or passphrase):
        raise Refusal(
            "the authority's key cannot be used from here",
            where=str(folder / "authority.key"),
            remedy="name its folder with --authority, or ask the site for its request.csr and sign that",
        )
    return take_site(home, issue(folder, asked, passphrase=passphrase), asked)


def revoke(home: CoordinatorHome, site: str, *, by: str, why: str = "") -> None:
    """Shut a site out, for good; a running coordinator heeds it within a second, also in the midst of a round."""
    known = sorted(path.stem for path in home.party_certificates())
    if site not in known:
        raise Refusal(f"there is no site called '{site}'", where=str(home.path), remedy=suggest_name(site, known))
    revoked = home.revoked()
    if site in revoked:
        raise Refusal(
            f"'{site}' was already revoked on {str(revoked[site].get('when', ''))[:10]}",
            where=str(home.path),
            remedy="nothing more to do",
        )
    certificate = read_certificate(home.party_certificate(site))
    serial = certificate_summary(certificate).serial
    membership_of(home).append(change_of(REVOKED, certificate))
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
        lock_file(file, wait=False)
    except OSError:
        return False
    return True
