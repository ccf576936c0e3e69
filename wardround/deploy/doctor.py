"""What usually goes wrong between hospitals, looked for one by one at a site or a coordinator, each with its remedy.

Folder, key, certificate, clock, proxy, name, firewall, TLS, version, disk, data. Nothing is changed and nothing about
patients is told; reading the data costs what a study's first look costs.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from cryptography import x509

from wardround import __version__
from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.files import HAS_MODES
from wardround.deploy.home import CoordinatorHome, Home, SiteHome
from wardround.deploy.party.enrolment import read_revocation
from wardround.deploy.protocol.wire import PROTOCOL
from wardround.deploy.transport.connectivity import (
    Diagnosis,
    Files,
    check_free,
    diagnose_steps,
    host_and_port,
    own_host,
)
from wardround.deploy.trust.authority import can_sign
from wardround.deploy.trust.certificates import (
    PASSPHRASE,
    SKEW,
    certificate_summary,
    check_issued,
    is_due,
    is_encrypted,
    read_certificate,
    read_key,
)
from wardround.deploy.trust.membership import MembershipLog
from wardround.deploy.trust.membership_witness import GRACE, RESOLVE, read_state
from wardround.deploy.trust.pins import read_partners

NETWORK = "2.9.0"
"""The version of nvflare that pyproject.toml pins: other versions have other gaps."""
LITTLE, SCARCE = 2 << 30, 200 << 20
"""Bytes of disk below which to look, and below which to stop."""
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables that gRPC obeys, the first that is set."""
LOOPBACK = ("127.", "localhost")


def examine_home(path: Path) -> list[Diagnosis]:
    """Everything that there is to say about a home, whichever kind it is."""
    home: SiteHome | CoordinatorHome
    if (path / "site.toml").exists():
        home = SiteHome(path)
    elif (path / "coordinator.toml").exists():
        home = CoordinatorHome(path)
    else:
        raise Refusal(
            "this folder holds neither a site nor a coordinator",
            where=str(path),
            remedy="name its folder with --home, or create one with `wardround site init`",
        )
    found = [*check_versions(), check_disk(path)]
    try:
        _ = home.settings
    except Refusal as refusal:
        return [*found, failure("settings", refusal)]
    return [*found, *(check_site(home) if isinstance(home, SiteHome) else check_coordinator(home))]


def check_site(home: SiteHome) -> Iterator[Diagnosis]:
    words = home.settings
    yield Diagnosis("settings", "ok", f"site {words.name}; coordinator {words.server_name} at {words.coordinator}")
    yield check_key(home.key_path)
    found = check_certificate(home, words.name, "site")
    yield found
    yield from check_revocation(home)
    yield check_clock(home.certificate_path)
    yield from check_partners(home)
    yield check_membership(home)
    yield check_proxy(words.coordinator, os.environ)
    yield from (
        diagnose_steps(words.coordinator, files(home), server=words.server_name) if found.state != "wrong" else ()
    )
    yield from check_data(home)


def check_coordinator(home: CoordinatorHome) -> Iterator[Diagnosis]:
    words = home.settings
    yield Diagnosis("settings", "ok", f"{words.name}, coordinator of {words.consortium}")
    yield check_key(home.key_path)
    yield from check_authority(home)
    yield check_membership(home)
    yield check_certificate(home, words.name, "coordinator")
    yield check_clock(home.certificate_path)
    yield check_listening(home)
    yield from check_site_certificates(home)
    for name, why in dict(last_status(home).get("warnings", {})).items():
        yield Diagnosis(f"site {name}", "look", str(why))


def last_status(home: Home) -> Mapping[str, Any]:
    """What the running process last said of itself; nothing where that cannot be read."""
    try:
        return home.status()
    except Refusal:
        return {}


def files(home: Home) -> Files:
    return home.authority_path, home.certificate_path, home.key_path


def failure(name: str, refusal: Refusal) -> Diagnosis:
    where = f" ({refusal.where})" if refusal.where else ""
    return Diagnosis(name, "wrong", f"{refusal.what}{where}", refusal.remedy)


def check_versions() -> Iterator[Diagnosis]:
    """Ours, and whether the network's library is the one that we were tested with."""
    yield Diagnosis(
        "version", "ok", f"wardround {__version__} (protocol {PROTOCOL}) on Python {sys.version.split()[0]}"
    )
    try:
        found = metadata.version("nvflare")
    except metadata.PackageNotFoundError:
        found = "is missing"
    if found == NETWORK:
        yield Diagnosis("network", "ok", f"nvflare {found}")
    else:
        what = f"nvflare {found}, and {NETWORK} is needed"
        yield Diagnosis("network", "wrong", what, "install it with pip install 'wardround[deploy]'")


def check_disk(path: Path) -> Diagnosis:
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"wardround")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        remedy = "free some disk space, or give this user write permission"
        return Diagnosis("disk", "wrong", f"nothing can be written to {path}: {error.strerror}", remedy)
    free = shutil.disk_usage(path).free
    what = f"{free / 1e9:.1f} GB free"
    if free < SCARCE:
        return Diagnosis("disk", "wrong", what, "free some disk space: studies store their model and answers here")
    return Diagnosis(
        "disk", "look" if free < LITTLE else "ok", what, "free some disk space soon" if free < LITTLE else ""
    )


def check_key(path: Path, name: str = "key") -> Diagnosis:
    try:
        read_key(path)
        rights = path.stat()
    except PermissionError:
        return Diagnosis(name, "wrong", f"this user may not read {path}", "run as the user who owns it")
    except Refusal as refusal:
        return failure(name, refusal)
    if HAS_MODES and stat.S_IMODE(rights.st_mode) & 0o077:
        shown = f"{stat.S_IMODE(rights.st_mode):o}"
        return Diagnosis(name, "wrong", f"{path} can be read by others (mode {shown})", f"chmod 600 {path}")
    return Diagnosis(name, "ok", "only its owner can read it" if HAS_MODES else "it can be read")


def check_authority(home: CoordinatorHome) -> Iterator[Diagnosis]:
    """Whether the authority's key lies here, where sites connect, and whether it is encrypted."""
    name, path = "authority's key", home.path / "authority.key"
    if not path.exists() and not (home.path / "issued.json").exists():  # else it has signed from here
        yield Diagnosis(name, "ok", "it is kept elsewhere")
        return
    if not is_encrypted(path):
        found = check_key(path, name)
        yield found
        if found.state != "wrong":
            what = "its key is not encrypted, and lies on the machine that listens"
            remedy = "keep it elsewhere: wardround coordinator init --authority FOLDER"
            yield Diagnosis("authority", "look", what, remedy)
        return
    remedy = "" if can_sign(home.path) else f"set {PASSPHRASE} for the service, or sign requests by hand"
    yield Diagnosis(name, "look" if remedy else "ok", "it is encrypted, on the machine that listens", remedy)


def check_partners(home: SiteHome) -> Iterator[Diagnosis]:
    """Partners whose words nobody compared by phone yet."""
    try:
        known = read_partners(home)
    except Refusal as refusal:
        yield failure("partners", refusal)
        return
    missing = [one.name for one in known.values() if not one.is_compared]
    if missing:
        what = f"not compared yet: {', '.join(missing)}"
        yield Diagnosis("partners", "look", what, "call them, and run `wardround site trust NAME WORDS`")
    elif known:
        yield Diagnosis("partners", "ok", f"{len(known)} compared by phone")


def check_membership(home: Home) -> Diagnosis:
    """Whether the membership log, or the copy of it, is whole, and what other sites say of it."""
    try:
        state = read_state(home) if isinstance(home, SiteHome) else {}
        if state.get("trouble"):
            what = f"it cannot be believed: {state['trouble']['what']}"
            return Diagnosis("membership log", "wrong", what, RESOLVE)
        log = MembershipLog(home.membership_path)
        found, entries = log.read(), len(log.chain().lines)
    except Refusal as refusal:
        return failure("membership log", refusal)
    if not entries:
        late = isinstance(home, SiteHome) and clock.now() - home.begun_at() > GRACE
        remedy = "connect to the coordinator; without the log no secure sum is answered" if late else ""
        return Diagnosis("membership log", "look" if late else "ok", "nothing to see yet", remedy)
    return Diagnosis("membership log", "ok", f"{entries} entries verified, {len(found.sites)} sites")


def check_certificate(home: Home, name: str, role: str) -> Diagnosis:
    """Whether it is this party's, this key's and this consortium's, and for how long."""
    try:
        own, authority = read_certificate(home.certificate_path), read_certificate(home.authority_path)
        issued = check_issued(own, authority, where=str(home.certificate_path))
        if own.public_key() != read_key(home.key_path).public_key():
            raise Refusal(
                "the certificate belongs to another key", remedy="ask the coordinator to sign request.csr again"
            )
    except Refusal as refusal:
        return failure("certificate", refusal)
    except OSError as error:
        return Diagnosis("certificate", "wrong", f"it cannot be read: {error}", "run as the user who owns this folder")
    if (issued.name, issued.role) != (name, role):
        what = f"the certificate is for the {issued.role} '{issued.name}', but this is the {role} '{name}'"
        return Diagnosis("certificate", "wrong", what, "ask the coordinator to sign this party's own request")
    return check_expiry("certificate", own)


def check_expiry(name: str, own: x509.Certificate) -> Diagnosis:
    until = own.not_valid_after_utc
    days = (until - clock.now()).days
    if is_due(own):
        remedy = "it is renewed automatically: a site's when it connects, the coordinator's when it restarts"
        return Diagnosis(name, "look", f"expires in {days} days, on {until:%Y-%m-%d}", remedy)
    return Diagnosis(name, "ok", f"valid until {until:%Y-%m-%d}")


def check_revocation(home: SiteHome) -> Iterator[Diagnosis]:
    """Whether the coordinator told this site that it was shut out."""
    words = read_revocation(home)
    if words:
        why = f": {words['why']}" if words.get("why") else ""
        what = f"the coordinator revoked this site on {words.get('when', '')[:10]}{why}"
        remedy = "call the coordinator; a revoked name is not given again, so start over with `wardround site init`"
        yield Diagnosis("membership", "wrong", what, remedy)


def check_clock(path: Path) -> Diagnosis:
    """Whoever signed the certificate did so at a time that must be in the past."""
    now = clock.now()
    shown = f"{now:%Y-%m-%d %H:%M} UTC"
    try:
        signed = read_certificate(path).not_valid_before_utc + SKEW
    except Refusal:
        return Diagnosis("clock", "look", f"{shown}; there is no certificate to compare with")
    if now < signed - timedelta(minutes=5):
        behind = signed - now
        what = f"{shown}, but the certificate was signed {behind.days * 24 + behind.seconds // 3600} h later"
        return Diagnosis(
            "clock", "wrong", what, "correct this machine's clock (timedatectl set-ntp true), or the signer's"
        )
    return Diagnosis("clock", "ok", f"{shown}, after the certificate was signed")


def check_proxy(address: str, environment: Mapping[str, str]) -> Diagnosis:
    host = host_and_port(address)[0]
    found = next((name for name in PROXIES if environment.get(name)), None)
    if found is None:
        return Diagnosis("proxy", "ok", "none is set")
    excepted = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    names = [name.strip().lstrip(".") for name in excepted.split(",") if name.strip()]
    if any(host == name or host.endswith(f".{name}") for name in names):
        return Diagnosis("proxy", "ok", f"{found} is set, but not used for '{host}'")
    what = f"{found} is set, so the connection to {address} would use that proxy"
    return Diagnosis("proxy", "look", what, f"if the coordinator can be reached directly: export no_proxy={host}")


def check_listening(home: CoordinatorHome) -> Diagnosis:
    """Whether sites could connect: to the running process, or to one that would be started."""
    from wardround.deploy.coordinator.consortium import is_running

    address = home.settings.listen
    host, port = host_and_port(address)
    if is_running(home):
        *_, last = diagnose_steps(f"{own_host(host)}:{port}", files(home))
        # Its own certificate need not name the address under which it finds itself.
        if last.state == "wrong" and "not for the name" not in last.what:
            return last
    else:
        try:
            check_free(address)
        except Refusal as refusal:
            return failure("connection", refusal)
    others = [name for name in home.settings.hosts if not name.startswith(LOOPBACK)]
    if host.startswith(LOOPBACK) and others:
        what = f"it listens at {address}, which other machines cannot reach, but sites connect to {others[0]}"
        return Diagnosis("connection", "look", what, f'set listen = "0.0.0.0:{port}" in coordinator.toml')
    return Diagnosis("connection", "ok", f"sites can connect at {address}")


def check_site_certificates(home: CoordinatorHome) -> Iterator[Diagnosis]:
    """Sites whose certificates have ended or soon will."""
    for path in sorted((home.path / "sites").glob("*.pem")):
        try:
            own = read_certificate(path)
        except Refusal as refusal:
            yield failure(f"site {path.stem}", refusal)
            continue
        if own.not_valid_after_utc < clock.now():
            remedy = f"run `wardround coordinator renew {path.stem}`, and send it the new certificate"
            yield Diagnosis(f"site {certificate_summary(own).name}", "wrong", "its certificate has expired", remedy)
        elif is_due(own):
            yield check_expiry(f"site {certificate_summary(own).name}", own)


def check_data(home: SiteHome) -> Iterator[Diagnosis]:
    """Whether registered data can be read now."""
    from wardround.deploy.site.datasets import frame_of, read_datasets

    try:
        known = read_datasets(home)
    except Refusal as refusal:
        yield failure("data", refusal)
        return
    if not known:
        yield Diagnosis("data", "look", "no data registered", "register data with `wardround site data add`")
    for name, entry in known.items():
        try:
            frame = frame_of(name, entry)
        except Refusal as refusal:
            yield failure(f"data {name}", refusal)
        else:
            yield Diagnosis(f"data {name}", "ok", f"{len(frame):,} rows, {len(frame.columns)} columns")
