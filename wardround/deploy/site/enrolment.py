"""How a site begins, joins a consortium with the signed certificate, changes its key, and leaves."""

import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.files import sync_folder
from wardround.deploy.home import SiteHome, SiteSettings
from wardround.deploy.settings_files import toml_lines, validate
from wardround.deploy.site.policy_file import first_policy, policy_text
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import (
    CertificateSummary,
    check_issued,
    make_request,
    new_key,
    pem,
    read_certificate,
    read_key,
)
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.rotations import rotation_of
from wardround.runs.json_files import read_json, write_file, write_json


def begin_site(path: Path, words: SiteSettings, purposes: Sequence[str] = ()) -> SiteHome:
    """Make a site's home with a key of its own and a request to be signed; goes on where it was interrupted."""
    home = SiteHome(path)
    if (path / "site.toml").exists():
        raise Refusal("this folder already holds a site", where=str(path), remedy="use it, or choose another --home")
    # Only what an interrupted beginning leaves may be there.
    strange = sorted(set(os.listdir(path)) - {"key.pem", "request.csr", "policy.toml"}) if path.is_dir() else []
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
    key = home.key if home.key_path.exists() else new_key(home.key_path)
    write_file(home.request_path, pem(make_request(key, words.name)))
    write_file(home.policy_path, policy_text(first_policy(purposes)).encode())
    write_file(path / "site.toml", toml_lines(words.model_dump()).encode())  # last: now it is a site
    home.log().append(event_entry("began", site=words.name, coordinator=words.coordinator))
    return home


def site_settings(name: str, coordinator: str, server_name: str) -> SiteSettings:
    words = {"name": name, "coordinator": coordinator, "server_name": server_name}
    return validate(words, SiteSettings, "wardround site init")


def join(home: SiteHome, certificate: Path, authority: Path) -> CertificateSummary:
    """Take in what the coordinator signed, after checking that it is this site's and that consortium's."""
    own, root = read_certificate(certificate), read_certificate(authority)
    if not is_authority(root):
        raise Refusal("this is not an authority's certificate", where=str(authority), remedy="ask for authority.pem")
    issued = check_issued(own, root, where=str(certificate))
    if home.distrust_path.exists() and home.authority_path.exists():
        raise distrust_refusal(home, "leave the consortium with `wardround site leave` before you join one")
    rotated = home.new_key_path.exists() and own.public_key() == read_key(home.new_key_path).public_key()
    if own.public_key() != home.key.public_key() and not rotated:
        raise Refusal(
            "the certificate does not belong to this site's key",
            where=str(certificate),
            remedy=f"ask the coordinator to sign {home.request_path}",
        )
    if (issued.name, issued.role) != (home.settings.name, "site"):
        raise Refusal(
            f"the certificate is for the {issued.role} '{issued.name}', but this is the site '{home.settings.name}'",
            where=str(certificate),
            remedy=f"ask the coordinator to sign {home.request_path}",
        )
    if home.authority_path.exists() and read_certificate(home.authority_path) != root:
        raise Refusal(
            "this site already belongs to another consortium",
            where=str(home.authority_path),
            remedy="create a separate folder for this consortium with `wardround site init --home`",
        )
    if rotated:
        take_new_key(home)
    home.log().append(event_entry("joined", site=issued.name, serial=issued.serial, until=f"{issued.until:%Y-%m-%d}"))
    write_file(home.authority_path, pem(root))
    write_file(home.certificate_path, pem(own))
    home.distrust_path.unlink(missing_ok=True)
    return issued


# ---- another key, another consortium, no more answers ----


def rotate_key(home: SiteHome, *, by: str) -> Path:
    """Make a new key and a request for it that the present key signs too; the present one stays until then."""
    new = read_key(home.new_key_path) if home.new_key_path.exists() else new_key(home.new_key_path)
    home.log().append(event_entry("rotation", site=home.own_name, by=by, fingerprint=fingerprint(new.public_key())))
    write_file(home.rotation_path, rotation_of(home.own_name, home.key, new).to_bytes())
    return home.rotation_path


def take_new_key(home: SiteHome) -> None:
    """Replace the key by the one that was certified; the old public key is kept, since it signed the log so far."""
    old = home.key.public_key()
    name = f"{home.own_name}-{clock.timestamp().replace(':', '')}.pem"
    encoded = old.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_file(home.path / "former" / name, encoded)
    home.log().append(event_entry("rotated", site=home.own_name, former=fingerprint(old)))
    os.replace(home.new_key_path, home.key_path)
    sync_folder(home.path)
    home.__dict__.pop("key", None)
    home.rotation_path.unlink(missing_ok=True)


def leave(home: SiteHome, *, by: str, why: str = "") -> Path:
    """Leave the consortium at once: its certificates are put aside, and nothing is answered any more."""
    if not home.authority_path.exists():
        raise Refusal("this site belongs to no consortium", where=str(home.path), remedy="nothing more to do")
    aside = home.path / "left" / clock.timestamp().replace(":", "")
    write_distrust(home, "left", by, why)
    aside.mkdir(parents=True)
    for path in (
        *(home.certificate_path, home.authority_path, home.coordinator_path, home.witness_path),
        *(home.membership_path, home.membership_state_path),
    ):
        if path.exists():
            path.replace(aside / path.name)
    sync_folder(home.path)
    return aside


def distrust_coordinator(home: SiteHome, *, by: str, why: str = "") -> None:
    """Answer this coordinator no more, from this moment on."""
    write_distrust(home, "distrusted", by, why)


def write_distrust(home: SiteHome, state: str, by: str, why: str) -> None:
    """In the audit log first, then on file, where it counts for a running process too."""
    home.log().append(event_entry(state, coordinator=home.settings.server_name, by=by, why=why))
    write_json(home.distrust_path, {"state": state, "by": by, "why": why, "when": clock.timestamp()})


def refuse_distrusted(home: SiteHome) -> None:
    if home.distrust_path.exists():
        raise distrust_refusal(home, "ask the site's administrator")


def distrust_refusal(home: SiteHome, remedy: str) -> Refusal:
    words = read_json(home.distrust_path, "restore it from a backup")
    did = "has left the consortium" if words.get("state") == "left" else "no longer answers this coordinator"
    return Refusal(f"{home.own_name} {did} (since {str(words.get('when', ''))[:10]})", remedy=remedy)


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others, and signed itself."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(certificate)
    except Exception:  # any flaw, of which cryptography knows many kinds, means no
        return False
    return constraints.ca
