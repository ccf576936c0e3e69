"""A transport for one study among several: it stops when that study is ended, and counts what the study moves."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from wardround.deploy.coordinator.studies.traffic import Traffic
from wardround.deploy.transport.contract import Transport

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


@dataclass(frozen=True)
class StudyTransport:
    """The coordinator's transport for one study; `ended` stops whoever waits in it."""

    transport: Transport
    traffic: Traffic
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def stopped(self) -> threading.Event:
        return EitherEvent(self.transport.stopped, self.ended)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        reply = self.transport.ask(site, topic, body, within)
        self.traffic.add(up=len(reply))
        return reply

    def limit(self, topic: str, most: int) -> None:
        self.transport.limit(topic, most)

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> None:
        self.transport.announce(topic, bodies)
        self.traffic.add(down=sum(len(body) for body in bodies.values()))

    def present(self) -> frozenset[str]:
        return self.transport.present()

    def revoked(self) -> Mapping[str, str]:
        return self.transport.revoked()

    def certificates(self) -> Mapping[str, str]:
        return self.transport.certificates()
