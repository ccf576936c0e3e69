"""What a coordinator does for its sites beside the studies: compare versions, renew certificates, countersign logs.

Done when a site connects, when a study ends, and every hour. Trouble is told and waits for the next time; it never
stops a study.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed
from wardround.deploy.transport.contract import Transport, Unanswered
from wardround.deploy.trust import countersignatures
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import is_due, make_request, pem, read_certificate, read_request, sign
from wardround.runs.json_files import write_file

PATIENCE = 20.0
"""Seconds that a site has to answer."""
HOURLY = 3600.0


@dataclass
class Maintenance:
    """The care of one coordinator's sites; `warn` hears (site, why), and (site, "") when all is well again."""

    home: CoordinatorHome
    transport: Transport
    warn: Callable[[str, str], None]
    _one: threading.Lock = field(default_factory=threading.Lock)
    """One site at a time, lest an older head of a log be shown after a newer one."""

    def maintain_soon(self, *sites: str) -> None:
        """Look after these without making anybody wait."""

        def work() -> None:
            for site in sites:
                self.maintain(site)

        threading.Thread(target=work, daemon=True).start()

    def maintain_hourly(self, present: Callable[[], frozenset[str]], stopped: threading.Event) -> None:
        """Until stopped."""

        def work() -> None:
            while not stopped.wait(HOURLY):
                if renew_own(self.home):
                    self.warn(self.home.own_name, "its certificate was renewed: restart it within 30 days")
                for site in sorted(present()):
                    self.maintain(site)

        threading.Thread(target=work, daemon=True).start()

    def maintain(self, site: str) -> None:
        try:
            with self._one:
                self.ask(site, "hello", {})
                self.renew(site)
                countersignatures.exchange(self.home, site, lambda topic, words: self.ask(site, topic, words))
        except (Unanswered, Malformed, Refusal, KeyError, OSError) as error:
            self.warn(site, str(error))
        else:
            self.warn(site, "")

    def renew(self, site: str) -> None:
        """A new certificate for the key that the site has, if the old one ends soon."""
        path = self.home.site_certificate(site)
        second = not path.exists()
        if second:
            path = self.home.second_certificate(site)
        if not path.exists() or not is_due(read_certificate(path)):
            return
        request = read_request(str(self.ask(site, "renewal", {})["request"]).encode(), where=f"site {site}")
        certificate = pem(sign(self.home.path, request, name=site, second=second))
        write_file(path, certificate)
        self.ask(site, "certificate", {"certificate": certificate.decode()})
        self.home.log().append(event_entry("renewed", site=site))

    def ask(self, site: str, topic: str, words: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = read_reply(self.transport.ask(site, topic, request_of_site(words), PATIENCE))
        if reply.status is not Status.OK:
            raise Refusal(reply.why, where=f"site {site}")
        return reply.header


def renew_own(home: CoordinatorHome) -> bool:
    """Renew the coordinator's own certificate if it ends soon; it counts from the next start on."""
    if not is_due(read_certificate(home.certificate_path)):
        return False
    request = make_request(home.key, home.own_name, "coordinator")
    write_file(home.certificate_path, pem(sign(home.path, request, hosts=tuple(home.settings.hosts))))
    home.log().append(event_entry("renewed", site=home.own_name))
    return True
