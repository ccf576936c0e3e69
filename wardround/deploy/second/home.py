"""The second server's home and how it begins: its own key, its own audit log, its own decisions."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from cryptography import x509

from wardround.core.errors import Refusal
from wardround.deploy.home import HOME, SiteHome, SiteSettings
from wardround.deploy.settings_files import read_toml, toml_lines, validate
from wardround.deploy.site.enrolment import is_authority
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import (
    CertificateSummary,
    check_issued,
    make_request,
    new_key,
    pem,
    read_certificate,
)
from wardround.runs.json_files import write_file

LONGEST_NAME = 64
"""Characters of an organisation's name: a certificate holds no more."""
BEGINNING = {"key.pem", "request.csr"}
"""What an interrupted beginning leaves."""


class SecondSettings(SiteSettings):
    """second.toml"""

    organisation: str
    """Who runs it; not who runs the coordinator."""


@dataclass(frozen=True)
class SecondHome(SiteHome):
    """A second server's home: like a site's it connects out and decides about studies, but it has no data."""

    @cached_property
    def settings(self) -> SecondSettings:
        return read_toml(
            self.path / "second.toml",
            SecondSettings,
            f"create one with `wardround second init`, or name another folder with --home or {HOME}",
        )

    def begun_at(self) -> datetime:
        return datetime.fromtimestamp((self.path / "second.toml").stat().st_mtime, UTC)


def begin_second(path: Path, name: str, coordinator: str, server_name: str, organisation: str) -> SecondHome:
    """Make a second server's home with a key of its own and a request to be signed."""
    if not organisation.strip() or len(organisation) > LONGEST_NAME or not organisation.isprintable():
        raise Refusal(
            "the organisation's name does not fit into a certificate",
            where="wardround second init",
            remedy=f"use 1 to {LONGEST_NAME} printable characters",
        )
    said = {"name": name, "coordinator": coordinator, "server_name": server_name, "organisation": organisation}
    words = validate(said, SecondSettings, "wardround second init")
    home = SecondHome(path)
    found = set(os.listdir(path)) if path.is_dir() else set()
    kinds = {"second.toml": "second server", "coordinator.toml": "coordinator", "site.toml": "site"}
    strange = sorted(found & set(kinds)) or sorted(found - BEGINNING)
    if strange:
        held = f"already holds a {kinds[strange[0]]}" if strange[0] in kinds else f"is not empty: it holds {strange[0]}"
        raise Refusal(
            f"this folder {held}",
            where=str(path),
            remedy="choose a new folder with --home, on a machine of the organisation that runs the second server",
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise Refusal(
            f"the folder cannot be created: {error.strerror}", where=str(path), remedy="choose another --home"
        ) from None
    key = home.key if home.key_path.exists() else new_key(home.key_path)
    write_file(home.request_path, pem(make_request(key, words.name, "second", organisation)))
    write_file(path / "second.toml", toml_lines(words.model_dump()).encode())  # last: now it is a second server
    home.log().append(event_entry("began", second=words.name, organisation=organisation, coordinator=coordinator))
    return home


def join_second(home: SecondHome, certificate: Path, authority: Path) -> CertificateSummary:
    """Take in what the consortium signed, after checking that it is this server's."""
    own, root = read_certificate(certificate), read_certificate(authority)
    if not is_authority(root):
        raise Refusal("this is not an authority's certificate", where=str(authority), remedy="ask for authority.pem")
    issued = check_issued(own, root, where=str(certificate))
    refuse_other(home, own, issued, certificate)
    if home.authority_path.exists() and read_certificate(home.authority_path) != root:
        raise Refusal(
            "this server already belongs to another consortium",
            where=str(home.authority_path),
            remedy="create a separate folder for this consortium with `wardround second init --home`",
        )
    home.log().append(event_entry("joined", second=issued.name, serial=issued.serial, until=f"{issued.until:%Y-%m-%d}"))
    write_file(home.authority_path, pem(root))
    write_file(home.certificate_path, pem(own))
    return issued


def refuse_other(home: SecondHome, own: x509.Certificate, issued: CertificateSummary, path: Path) -> None:
    again = f"ask the coordinator to sign {home.request_path}"
    if own.public_key() != home.key.public_key():
        raise Refusal("the certificate does not belong to this server's key", where=str(path), remedy=again)
    if (issued.name, issued.role) != (home.settings.name, "second"):
        raise Refusal(
            f"the certificate is for the {issued.role} '{issued.name}', but this is the second server "
            f"'{home.settings.name}'",
            where=str(path),
            remedy=again,
        )
