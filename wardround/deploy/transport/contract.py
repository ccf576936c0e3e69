"""How a coordinator reaches its sites: the one seam to the network, in the manner of httpx's `handle_request`.

A transport carries bytes and knows who is there. What the bytes mean, for whom a round waits and what becomes of a
silent site is decided above it, so all transports give the same bits. There are three: `cellnet_transport` (processes
of our own over mutual TLS), `flare_job` (a job of NVIDIA FLARE) and `in_process` (no network at all).
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from wardround.deploy.protocol.wire import LARGEST_MESSAGE


class Unanswered(Exception):
    """A request that got no answer: `gone` when the site went away, else it was late or the line broke."""

    def __init__(self, target: str, why: str, *, gone: bool = False) -> None:
        super().__init__(why)
        self.target, self.why, self.gone = target, why, gone


class Asked(Future[bytes]):
    """An answer to come; `worked` are the seconds that the site took for it, and `moved` the bytes on the line."""

    worked = 0.0
    moved = 0


class Transport(Protocol):
    """All that conducting a study needs of the world. Every method may be called from several threads."""

    @property
    def stopped(self) -> threading.Event:
        """Set when the coordinator is to stop: whoever waits gives up at once, and goes on when started again."""
        ...

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        """The site's reply; raises Unanswered, with the reason, when there is none within so many seconds.

        Over a network the time that bytes take does not count, as long as they move.
        """
        ...

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        """Write down what is about to be sent to whom; all of it is on the disk when this returns.

        Gives the bytes as they were written down; what was the last word to a site before is not written again.
        """
        ...

    def present(self) -> frozenset[str]:
        """Sites that can be asked now."""
        ...

    def revoked(self) -> Mapping[str, str]:
        """Sites that were shut out for good, and why: nobody waits for them."""
        ...

    def certificates(self) -> Mapping[str, str]:
        """The sites' certificates in PEM: in a secure sum sites check each other by them."""
        ...


@runtime_checkable
class ManyAtOnce(Protocol):
    """A transport that needs no thread for each site that is asked."""

    def begin(self, site: str, topic: str, body: bytes, within: float, most: int = LARGEST_MESSAGE) -> Asked:
        """As `ask`, without waiting for the reply; one of more than `most` bytes need not be received."""
        ...


def ask_at_most(transport: Transport, site: str, topic: str, body: bytes, within: float, most: int) -> bytes:
    """As `ask`; where the transport can, a reply of more than `most` bytes is not received."""
    if isinstance(transport, ManyAtOnce):
        return transport.begin(site, topic, body, within, most).result()
    return transport.ask(site, topic, body, within)
