"""How a site begins: its home, its key, its request to the coordinator; and how it takes the signed certificate in."""

import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from wardround.core.errors import Refusal
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
)
from wardround.runs.json_files import write_file


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
    if own.public_key() != home.key.public_key():
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
    home.log().append(event_entry("joined", site=issued.name, serial=issued.serial, until=f"{issued.until:%Y-%m-%d}"))
    write_file(home.authority_path, pem(root))
    write_file(home.certificate_path, pem(own))
    return issued


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others, and signed itself."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(certificate)
    except Exception:  # any flaw, of which cryptography knows many kinds, means no
        return False
    return constraints.ca
