"""How a site or second server begins, joins a consortium with the signed certificate, changes its key, and leaves."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.files import sync_folder, write_whole
from wardround.core.text import LONGEST, plain_line
from wardround.deploy.home import PartyHome, PartySettings
from wardround.deploy.home_folder import make_home_folder
from wardround.deploy.settings_files import toml_lines
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
from wardround.deploy.trust.fingerprints import fingerprint, parse_fingerprint
from wardround.deploy.trust.rotations import rotation_of
from wardround.runs.json_files import read_json, write_file, write_json


def begin(
    home: PartyHome,
    words: PartySettings,
    files: Mapping[str, bytes],
    facts: Mapping[str, Any],
    *,
    remedy: str = "choose a new folder with --home",
) -> None:
    """Make a home with a key of its own and a request to be signed; goes on where it was interrupted.

    `files` are written into it as well, and `facts` stand in the first entry of its audit log.
    """
    make_home_folder(home.path, home.title, {home.key_path.name, home.request_path.name, *files}, remedy=remedy)
    if not home.key_path.exists():
        new_key(home.key_path)
    write_file(home.request_path, certificate_request(home, words))
    for name, content in files.items():
        write_file(home.path / name, content)
    write_file(home.settings_path, toml_lines(words.model_dump()).encode())  # last: now it is a home
    home.log().append(event_entry("began", **{home.role: words.name}, **facts, coordinator=words.coordinator))


def certificate_request(home: PartyHome, words: PartySettings) -> bytes:
    """A request, in PEM, for a certificate of the present key."""
    return pem(make_request(home.key, words.name, home.role, words.certified_organisation))


def join(home: PartyHome, certificate: Path, authority: Path | None = None, words: str = "") -> CertificateSummary:
    """Take in what the coordinator signed, after checking that it is this party's and that consortium's.

    `words` are those of the authority's key as the coordinator read them out; without `authority` it is the one that
    this party knows.
    """
    authority = authority or known_authority(home)
    own, root = read_certificate(certificate), read_certificate(authority)
    if not is_authority(root):
        raise Refusal("this is not an authority's certificate", where=str(authority), remedy="ask for authority.pem")
    if words and parse_fingerprint(words, "--words") != authority_words(root):
        raise Refusal(
            f"the words of the authority's key are others: {authority_words(root)}",
            where=str(authority),
            remedy="call the coordinator at a number you know; if its words are not these, somebody changed the file",
        )
    issued = check_issued(own, root, where=str(certificate))
    if home.distrust_path.exists() and home.authority_path.exists():
        raise distrust_refusal(home, f"leave the consortium with `wardround {home.role} leave` before you join one")
    rotated = home.new_key_path.exists() and own.public_key() == read_key(home.new_key_path).public_key()
    if own.public_key() != home.key.public_key() and not rotated:
        raise Refusal(
            f"the certificate does not belong to this {home.title}'s key",
            where=str(certificate),
            remedy=f"ask the coordinator to sign {home.request_path}",
        )
    if (issued.name, issued.role) != (home.own_name, home.role):
        raise Refusal(
            f"the certificate is for the {issued.role} '{issued.name}', but this is the {home.title} '{home.own_name}'",
            where=str(certificate),
            remedy=f"ask the coordinator to sign {home.request_path}",
        )
    if home.authority_path.exists() and read_certificate(home.authority_path) != root:
        raise Refusal(
            f"this {home.title} already belongs to another consortium",
            where=str(home.authority_path),
            remedy=f"create a separate folder for this consortium with `wardround {home.role} init --home`",
        )
    if rotated:
        take_new_key(home)
    who, until = {home.role: issued.name}, f"{issued.until:%Y-%m-%d}"
    home.log().append(event_entry("joined", **who, serial=issued.serial, until=until))
    write_file(home.authority_path, pem(root))
    write_file(home.certificate_path, pem(own))
    home.distrust_path.unlink(missing_ok=True)
    return issued


def known_authority(home: PartyHome) -> Path:
    if not home.authority_path.exists():
        raise Refusal(
            f"this {home.title} knows no authority yet",
            where=str(home.path),
            remedy="name authority.pem, which came with the certificate, as the second file",
        )
    return home.authority_path


def authority_words(certificate: x509.Certificate) -> str:
    """Of the authority's key, to be compared by telephone."""
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return fingerprint(key)


# ---- shut out by the coordinator ----


def note_revocation(home: PartyHome, words: Mapping[str, Any]) -> None:
    """Keep that the coordinator says it shut this party out, and why; for good, so only the first time counts."""
    told = {key: plain_line(words.get(key, ""), LONGEST) for key in ("when", "why")}
    if not read_revocation(home):
        home.log().append(event_entry("told of revocation", **{home.role: home.own_name}, **told))
        write_json(home.revocation_path, told)


def read_revocation(home: PartyHome) -> dict[str, str]:
    """When and why the coordinator says it shut this party out; nothing where it did not."""
    return read_json(home.revocation_path, "delete it") if home.revocation_path.exists() else {}


def renew(home: PartyHome, certificate: str) -> None:
    """Take over a new certificate of the same key and name, signed by the same authority."""
    path = home.path / "renewed.pem"
    write_whole(path, certificate.encode())
    join(home, path, home.authority_path)
    path.unlink()


# ---- another key, another consortium, no more answers ----


def rotate_key(home: PartyHome, *, by: str) -> Path:
    """Make a new key and a request for it that the present key signs too; the present one stays until then."""
    new = read_key(home.new_key_path) if home.new_key_path.exists() else new_key(home.new_key_path)
    home.log().append(
        event_entry("rotation", **{home.role: home.own_name}, by=by, fingerprint=fingerprint(new.public_key()))
    )
    write_file(home.rotation_path, rotation_of(home.own_name, home.key, new).to_bytes())
    return home.rotation_path


def take_new_key(home: PartyHome) -> None:
    """Replace the key by the one that was certified; the old public key is kept, since it signed the log so far."""
    old = home.key.public_key()
    name = f"{home.own_name}-{clock.timestamp().replace(':', '')}.pem"
    encoded = old.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_file(home.path / "former" / name, encoded)
    home.log().append(event_entry("rotated", **{home.role: home.own_name}, former=fingerprint(old)))
    os.replace(home.new_key_path, home.key_path)
    sync_folder(home.path)
    home.__dict__.pop("key", None)
    home.rotation_path.unlink(missing_ok=True)


def leave(home: PartyHome, *, by: str, why: str = "") -> Path:
    """Leave the consortium at once: its certificates are put aside, and nothing is answered any more."""
    if not home.authority_path.exists():
        raise Refusal(f"this {home.title} belongs to no consortium", where=str(home.path), remedy="nothing more to do")
    aside = home.path / "left" / clock.timestamp().replace(":", "")
    write_distrust(home, "left", by, why)
    aside.mkdir(parents=True)
    for path in (
        *(home.certificate_path, home.authority_path, home.coordinator_path, home.witness_path),
        *(home.membership_path, home.membership_state_path, home.revocation_path),
    ):
        if path.exists():
            path.replace(aside / path.name)
    sync_folder(home.path)
    return aside


def distrust_coordinator(home: PartyHome, *, by: str, why: str = "") -> None:
    """Answer this coordinator no more, from this moment on."""
    write_distrust(home, "distrusted", by, why)


def write_distrust(home: PartyHome, state: str, by: str, why: str) -> None:
    """In the audit log first, then on file, where it counts for a running process too."""
    home.log().append(event_entry(state, coordinator=home.settings.server_name, by=by, why=why))
    write_json(home.distrust_path, {"state": state, "by": by, "why": why, "when": clock.timestamp()})


def refuse_distrusted(home: PartyHome) -> None:
    if home.distrust_path.exists():
        raise distrust_refusal(home, f"ask the {home.title}'s administrator")


def distrust_refusal(home: PartyHome, remedy: str) -> Refusal:
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
