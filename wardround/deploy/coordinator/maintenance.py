"""What a coordinator does for its sites beside the studies: compare versions, renew certificates, countersign logs.

Done when a site connects, when a study ends, and every hour. Trouble is told and waits for the next time; it never
stops a study.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from wardround import __version__
from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.text import LONGEST, plain_line
from wardround.deploy.coordinator.consortium import membership_of, renew_site, sign_own
from wardround.deploy.home import CoordinatorHome
from wardround.deploy.protocol import wire
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import is_spoken
from wardround.deploy.transport.contract import Transport, Unanswered
from wardround.deploy.trust import countersignatures
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import is_due, read_certificate, read_request
from wardround.deploy.trust.rotations import SigningRequest
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
    versions: dict[str, str] = field(default_factory=dict)
    """Which version of wardround each site told."""
    _one: threading.Lock = field(default_factory=threading.Lock)
    """One site at a time, lest an older head of a log be shown after a newer one."""
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _visits: dict[str, bool] = field(default_factory=dict)
    """Sites that are visited now, and whether each is to be visited once more: never two visits of one site at once."""

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
                renew_own(self.home)  # whoever listens sees the new file, and starts anew with it
                for site in sorted(present()):
                    self.maintain(site)

        threading.Thread(target=work, daemon=True).start()

    def maintain(self, site: str) -> None:
        """Visit a site; if it is being visited, then once more afterwards, however often that was asked for."""
        with self._guard:
            busy = site in self._visits
            self._visits[site] = busy
        while not busy:
            self.visit(site)
            with self._guard:
                busy = not self._visits.pop(site)
                if not busy:
                    self._visits[site] = False

    def visit(self, site: str) -> None:
        try:
            self.greet(site)  # a site that is silent keeps nobody else waiting
            with self._one:
                countersignatures.exchange(self.home, site, lambda topic, words: self.ask(site, topic, words))
                countersignatures.share_membership(
                    self.home, membership_of(self.home), site, lambda topic, words: self.ask(site, topic, words)
                )
                self.renew(site)
        except Unanswered as error:
            if not error.gone:  # else it is shown as not connected, and a warning would outlive its return
                self.warn(site, plain_line(error, LONGEST))
        except Exception as error:  # whatever a site's answer trips over, the others are looked after
            self.warn(site, plain_line(error, LONGEST) or type(error).__name__)
        else:
            self.warn(site, "")

    def tell_revoked(self, ask: Callable[[str, str, bytes], object], *sites: str) -> list[threading.Thread]:
        """Say to those who were shut out that they were, and why; whoever does not hear it is told the next time.

        Nobody waits for it; gives the threads that do it.
        """

        def work(site: str) -> None:
            words = self.home.revoked().get(site, {})
            with suppress(Unanswered):
                ask(site, "revoked", request_of_site({key: str(words.get(key, "")) for key in ("when", "why")}))

        threads = [threading.Thread(target=work, args=(site,), daemon=True) for site in sites]
        for thread in threads:
            thread.start()
        return threads

    def greet(self, site: str) -> None:
        """Learn which version the site runs; refused where it speaks a protocol that is not understood here."""
        reply = self.ask(site, "hello", {})
        version = plain_line(reply.get("wardround", "unknown"), 40)
        if not is_spoken(reply.get("protocol", 1)):  # the first one did not say so
            raise Refusal(
                f"the site speaks protocol {plain_line(reply['protocol'], 40)} (wardround {version}), but the "
                f"coordinator speaks {wire.PROTOCOL} (wardround {__version__})",
                where=f"site {site}",
                remedy="upgrade the older one; neighbouring protocols understand each other",
            )
        self.versions[site] = version

    def renew(self, site: str) -> None:
        """A new certificate for the key that the site has, if the old one ends soon; it may have to be waited for."""
        path = self.home.party_certificate(site)
        if not path.exists():
            return
        delivery = self.home.delivery_path(site)
        if is_due(read_certificate(path)) and not self.home.request_path(site).exists():
            request = read_request(str(self.ask(site, "renewal", {})["request"]).encode(), where=f"site {site}")
            if renew_site(self.home, site, SigningRequest(request)) is not None:
                write_file(delivery, b"")
                self.home.log().append(event_entry("renewed", site=site))
        if delivery.exists():
            self.ask(site, "certificate", {"certificate": path.read_text()})
            delivery.unlink()
        if self.home.request_path(site).exists():
            raise Refusal(
                "its new certificate waits for the authority",
                where=f"site {site}",
                remedy=f"have {self.home.request_path(site)} signed with `wardround authority sign`, and take it in"
                " with `wardround coordinator accept`",
            )

    def ask(self, site: str, topic: str, words: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = read_reply(self.transport.ask(site, topic, request_of_site(words), PATIENCE))
        if reply.status is not Status.OK:
            raise Refusal(reply.why, where=f"site {site}")
        return reply.header


def renew_own(home: CoordinatorHome) -> bool:
    """Renew the coordinator's own certificate if it ends soon or has ended; it counts from the next start on.

    Where the authority is elsewhere, the request waits for it in `requests`.
    """
    return is_due(read_certificate(home.certificate_path)) and sign_own(home) is None


def refuse_ended(home: CoordinatorHome) -> None:
    """Refuse to listen with a certificate that has ended and could not be renewed, with the way out."""
    until = read_certificate(home.certificate_path).not_valid_after_utc
    if clock.now() <= until:
        return
    waiting = home.request_path(home.own_name)
    raise Refusal(
        f"the coordinator's certificate expired on {until:%Y-%m-%d}, and the authority's key cannot be used from here",
        where=str(home.certificate_path),
        remedy="run `wardround coordinator renew` where the authority's key is (--authority FOLDER), or have"
        f" {waiting} signed with `wardround authority sign --coordinator` and take the certificate in with `wardround"
        " coordinator accept`",
    )
