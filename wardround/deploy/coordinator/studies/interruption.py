"""One study among several can be ended while the coordinator goes on: a transport that stops for it alone."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from wardround.deploy.transport.contract import Asked, ManyAtOnce, Transport

SLICE = 0.2
"""Seconds after which both reasons to stop are looked at again."""


class EitherEvent(threading.Event):
    """Set when one of two events is."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        super().__init__()
        self._one, self._other = one, other

    def is_set(self) -> bool:
        return self._one.is_set() or self._other.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self.is_set() and (end is None or time.monotonic() < end):
            self._one.wait(SLICE if end is None else max(0.0, min(SLICE, end - time.monotonic())))
        return self.is_set()


class NetworkTransport(Transport, ManyAtOnce, Protocol):
    """The transport of a coordinator's process, which needs no thread for each site."""


@dataclass(frozen=True)
class StudyTransport:
    """The coordinator's transport for one study; `ended` stops whoever waits in it."""

    transport: NetworkTransport
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def stopped(self) -> threading.Event:
        return EitherEvent(self.transport.stopped, self.ended)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        return self.transport.ask(site, topic, body, within)

    def begin(self, site: str, topic: str, body: bytes, within: float) -> Asked:
        return self.transport.begin(site, topic, body, within)

    def limit(self, topic: str, most: int) -> None:
        self.transport.limit(topic, most)

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        return self.transport.announce(topic, bodies)

    def present(self) -> frozenset[str]:
        return self.transport.present()

    def revoked(self) -> Mapping[str, str]:
        return self.transport.revoked()

    def certificates(self) -> Mapping[str, str]:
        return self.transport.certificates()
