"""A coordinator that holds the consortium's authority, and sites of its own making that go by the names of others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import in_process
from wardround.core import clock
from wardround.deploy.party.decisions import Decision, read_offer, record_decision
from wardround.deploy.party.enrolment import join
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import columns_read, derive_releases
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.enrolment import begin_site, site_settings
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release import release_list
from wardround.deploy.site.request_handler import RequestHandler
from wardround.deploy.trust.certificates import make_request, pem, read_certificate, sign
from wardround.deploy.trust.pins import certified_key


@dataclass(frozen=True)
class Puppet(HomeAccess):
    """A site that belongs to the coordinator: it takes part in anything, and checks nobody's key."""

    def state(self, study: str) -> tuple[Status, str]:  # noqa: ARG002
        return Status.OK, ""

    def _require_approval(self, study: str) -> None:
        pass

    def roster_keys(
        self,
        study: str,  # noqa: ARG002
        roster: Sequence[str],
        certificates: Mapping[str, str],
    ) -> dict[str, ec.EllipticCurvePublicKey]:
        authority = read_certificate(self.home.authority_path)
        return {name: certified_key(certificates, name, authority) for name in roster}


def certificate_for(folder: Path, name: str, key: ec.EllipticCurvePrivateKey | None = None) -> str:
    """A certificate for any name and key, in PEM, from whoever holds the authority's key in `folder`."""
    made = key or ec.generate_private_key(ec.SECP256R1())
    return pem(sign(folder, make_request(made, name))).decode()


def replace_with_puppet(consortium: in_process.Consortium, name: str, study: Any, data: str = "demo") -> RequestHandler:
    """Put a site of the coordinator's own into the place of a real one: same name, other key, same authority."""
    settings = consortium.home.settings
    home = begin_site(consortium.folder / f"puppet-{name}", site_settings(name, settings.listen, settings.name))
    certificate = consortium.home.site_certificate(name)
    certificate.write_text(certificate_for(consortium.home.path, name, home.key))
    join(home, certificate, consortium.home.authority_path)
    real = consortium.homes[name]
    for file in ("data.toml", "policy.toml"):
        (home.path / file).write_bytes((real.path / file).read_bytes())
    access = Puppet(home)
    identity = study_id(study)
    access.store_offer(identity, study.model_dump(mode="json"), "researcher")
    offer = read_offer(home, identity)
    policy = read_policy(home.policy_path)
    columns = columns_read(home, data, study, policy)
    listed = derive_releases(home, study, columns, policy)
    record_decision(
        home,
        Decision(
            identity,
            offer.hash,
            "approved",
            "x",
            clock.timestamp(),
            data=data,
            until="2999-01-01",
            columns=columns,
            releases=release_list.to_json(listed),
            releases_hash=release_list.hash_of(listed),
        ),
    )
    handler = consortium.handlers[name] = RequestHandler(access)
    consortium.transport.sites[name] = handler.answer
    return handler
