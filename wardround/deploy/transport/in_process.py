"""The transport without a network: requests are handed to the sites' handlers in the same process.

For tests, and for whoever wants to try a whole consortium, homes and approvals included, in one program.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.transport.site_register import REVOKED, SiteRegister

COORDINATOR = "server"
"""What a site calls its coordinator, as CellNet does."""
Respond = Callable[[str, str, bytes], bytes]
"""(topic, who asks, request) to the reply: a site's request handler."""


@dataclass
class InProcess:
    """Fulfils the contract; `sites` may be exchanged while it runs, as a process is by its successor."""

    sites: dict[str, Respond]
    register: SiteRegister
    stopped: threading.Event = field(default_factory=threading.Event)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:  # noqa: ARG002 - nobody is late here
        if self.register.is_revoked(site):
            raise Unanswered(site, REVOKED, gone=True)
        if site not in self.sites:
            raise Unanswered(site, "it is not connected", gone=True)
        return self.sites[site](topic, COORDINATOR, body)

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        return self.register.announce(topic, bodies)

    def present(self) -> frozenset[str]:
        return frozenset(self.sites) - self.register.revoked_names()

    def revoked(self) -> Mapping[str, str]:
        return self.register.revoked()

    def certificates(self) -> Mapping[str, str]:
        return self.register.certificates()
