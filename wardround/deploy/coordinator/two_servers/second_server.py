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
from wardround.deploy.trust.certificates import Asking, name_attribute, read_certificate
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.organisations import has_two_servers, is_same_organisation, organisation_of
from wardround.queries.columns import suggest_name
from wardround.study.file import Study

TESTING = "--same-organisation-for-testing"


# ---- who may be one ----


def own_organisation(home: CoordinatorHome) -> str:
    return home.settings.organisation or home.settings.consortium


def refuse_same_organisation(home: CoordinatorHome, request: Asking, path: Path, *, testing: bool) -> None:
    """Refuse to sign a second server that this coordinator's own people run, unless it is said to be a test."""
    organisation = organisation_of(request)
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


def refuse_other_organisation(certificate: x509.Certificate, request: Asking, where: str) -> None:
    """A renewal says nothing new: who runs a second server stands in the studies that were approved."""
    before, now = organisation_of(certificate), organisation_of(request)
    if before != now:
        raise Refusal(
            f"the second server is run by '{before}', and the request says '{now}'",
            where=where,
            remedy="let the other organisation start over under another name",
        )


# ---- what a study says of it ----


def with_second(home: CoordinatorHome, study: Study) -> Study:
    """A study for two servers with the words of the second server's key and who runs it; sites are in it already."""
    deploy = study.deploy
    if deploy.second is None or not has_two_servers(study):
        return study
    known = home.second_names()
    if deploy.second not in known:
        remedy = suggest_name(deploy.second, known) if known else "sign its request with `wardround coordinator sign`"
        raise Refusal(f"there is no second server called '{deploy.second}'", where="[deploy] second", remedy=remedy)
    second = read_certificate(home.second_certificate(deploy.second))
    organisation = organisation_of(second)
    prints = {**deploy.fingerprints, deploy.second: deploy.fingerprints.get(deploy.second, key_print(second))}
    filled = {"fingerprints": prints, "second_organisation": organisation}
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
