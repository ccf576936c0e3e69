"""A second server as the coordinator sees it: who may be one, and what a study says of it.

A second server that the same people run would protect nobody. So its organisation stands in its certificate and in the
study that everybody approves, and one that is plainly the coordinator's own is refused. A coordinator that lies about
who runs it can only be found out by people: sites and the second server compare fingerprints by phone.
"""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from wardround.core.errors import Refusal
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.trust.certificates import name_attribute, read_certificate
from wardround.deploy.trust.party_pins import (
    fingerprint,
    has_two_servers,
    is_same_organisation,
    organisation_of,
)
from wardround.queries.columns import suggest_name
from wardround.study.file import Study

TESTING = "--same-organisation-for-testing"


# ---- who may be one ----


def is_second(request: x509.CertificateSigningRequest) -> bool:
    return name_attribute(request.subject, NameOID.ORGANIZATIONAL_UNIT_NAME) == "second"


def own_organisation(home: CoordinatorHome) -> str:
    return home.settings.organisation or home.settings.consortium


def refuse_same_organisation(
    home: CoordinatorHome, request: x509.CertificateSigningRequest, path: Path, *, testing: bool
) -> None:
    """Refuse to sign a second server that this coordinator's own people run, unless it is said to be a test."""
    organisation = name_attribute(request.subject, NameOID.ORGANIZATION_NAME)
    own = own_organisation(home)
    keys = [home.key.public_key(), read_certificate(home.authority_path).public_key()]
    keys += [key for found in home.other_keys().values() for key in found]
    same = next(
        (
            why
            for wrong, why in (
                (is_same_organisation(organisation, own), f"it is run by '{organisation}', as this coordinator is"),
                (request.public_key() in keys, "it has the key of another party of this consortium"),
                ((path.parent / "key.pem").exists(), "its folder, with its private key, lies on this machine"),
            )
            if wrong
        ),
        "",
    )
    # A renewed certificate of the same name is no other party's key.
    renewed = home.second_certificate(name_attribute(request.subject, NameOID.COMMON_NAME))
    if same.startswith("it has the key") and renewed.exists():
        same = "" if read_certificate(renewed).public_key() == request.public_key() else same
    if same and not testing:
        raise Refusal(
            f"a second server of the same organisation would hide nothing: {same}",
            where=str(path),
            remedy=f"let another organisation run it; to try it out, add {TESTING}",
        )


# ---- what a study says of it ----


def with_second(home: CoordinatorHome, study: Study) -> Study:
    """A study for two servers with its sites, all keys' fingerprints and who runs the second server filled in."""
    deploy = study.deploy
    if deploy.second is None or not has_two_servers(study):
        return study
    known = sorted(path.stem for path in (home.path / "seconds").glob("*.pem") if path.stem not in home.revoked())
    if deploy.second not in known:
        remedy = suggest_name(deploy.second, known) if known else "sign its request with `wardround coordinator sign`"
        raise Refusal(f"there is no second server called '{deploy.second}'", where="[deploy] second", remedy=remedy)
    here = sorted(path.stem for path in (home.path / "sites").glob("*.pem") if path.stem not in home.revoked())
    sites = sorted(deploy.sites or here)
    paths = {site: home.site_certificate(site) for site in sites if site in here}
    paths[deploy.second] = second = home.second_certificate(deploy.second)
    prints = {name: key_print(read_certificate(path)) for name, path in paths.items()}
    organisation = organisation_of(read_certificate(second))
    filled = {
        "sites": sites,
        "fingerprints": {**deploy.fingerprints, **prints},
        "second_organisation": organisation,
    }
    if is_same_organisation(organisation, own_organisation(home)) and not deploy.same_organisation_for_testing:
        raise Refusal(
            f"the second server {deploy.second} is run by '{organisation}', as this coordinator is, so it would hide "
            "nothing",
            where="[deploy] second",
            remedy="name one of another organisation; to try it out, write same_organisation_for_testing = true in "
            "[deploy]",
        )
    return study.model_copy(update={"deploy": deploy.model_copy(update=filled)})


def key_print(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return fingerprint(key)
