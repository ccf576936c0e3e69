"""What is wrong with a study for two servers, told before it is offered."""

from collections.abc import Mapping, Sequence

from wardround.core.chain import identity
from wardround.core.contracts import Transform
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.two_servers.second_server import key_print
from wardround.deploy.trust.certificates import certificate_summary
from wardround.deploy.trust.organisations import load_certificate
from wardround.study.file import Study


def refuse_second(study: Study, sites: Sequence[str], certificates: Mapping[str, str]) -> None:
    """What is wrong with the second server or with the keys in the study, told before anything is offered."""
    name = str(study.deploy.second)
    if name in sites:
        raise Refusal(
            f"{name} is a site of this study and cannot be its second server",
            where="[deploy] second",
            remedy="name a server that is no site",
        )
    parties = [*sites, name]
    missing = [one for one in parties if one not in certificates]
    if missing:
        raise Refusal(
            f"two servers need every party's certificate, and these are missing: {', '.join(missing)}",
            where="[[transforms]] two_servers",
            remedy="sign the request with `wardround coordinator sign`",
        )
    if certificate_summary(load_certificate(certificates[name], name)).role != "second":
        raise Refusal(f"{name} is not a second server", where="[deploy] second", remedy="see `wardround second init`")
    deploy = study.deploy
    if sorted(deploy.sites) != sorted(sites):
        raise Refusal(
            "a study for two servers must name its sites",
            where="[deploy] sites",
            remedy="submit it with `wardround coordinator run`, which fills them in",
        )
    # A site may have replaced its key since: the others follow that, if the old key signed the new one.
    silent = [one for one in parties if one not in deploy.fingerprints]
    if deploy.fingerprints.get(name) != key_print(load_certificate(certificates[name], name)):
        silent = [*(one for one in silent if one != name), name]
    if silent:
        raise Refusal(
            f"the study does not say the keys that these parties have: {', '.join(silent)}",
            where="[deploy] fingerprints",
            remedy="submit it with `wardround coordinator run`, which fills them in",
        )


def refuse_unreadable(transforms: Sequence[Transform]) -> None:
    """Refuse what packs single answers before two servers: nobody could unpack them one by one."""
    if any(link.release is not identity().release for link in transforms):
        raise Refusal(
            "a transform before two_servers packs single answers, and over real sites nobody sees one to unpack it",
            where="[[transforms]]",
            remedy="put nothing but clip before two_servers",
        )
