"""The transport of our own processes: CellNet asks, the coordinator's home tells who belongs to the consortium."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from wardround.deploy.protocol.wire import LARGEST_MESSAGE
from wardround.deploy.transport.cellnet import Party
from wardround.deploy.transport.contract import Asked, Unanswered
from wardround.deploy.transport.site_register import REVOKED, SiteRegister


@dataclass(frozen=True)
class CellNetTransport:
    """Fulfils the contract for a coordinator that listens as `party`."""

    party: Party
    register: SiteRegister
    stopped: threading.Event = field(default_factory=threading.Event)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        return self.begin(site, topic, body, within).result()

    def begin(self, site: str, topic: str, body: bytes, within: float, most: int = LARGEST_MESSAGE) -> Asked:
        if self.register.is_revoked(site):
            gone = Asked()
            gone.set_exception(Unanswered(site, REVOKED, gone=True))
            return gone
        return self.party.begin(site, topic, body, within=within, most=most)

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        return self.register.announce(topic, bodies)

    def present(self) -> frozenset[str]:
        return self.party.present - self.register.revoked_names()

    def revoked(self) -> Mapping[str, str]:
        return self.register.revoked()

    def certificates(self) -> Mapping[str, str]:
        return self.register.certificates()
