"""A transport for one study among several: it stops when that study is ended, and brings the study's count of bytes."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from wardround.deploy.coordinator.studies.traffic import StudyTraffic
from wardround.deploy.protocol.wire import LARGEST_MESSAGE
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


@dataclass(frozen=True)
class StudyTransport:
    """The coordinator's transport for one study; `ended` stops whoever waits in it."""

    transport: Transport
    traffic: StudyTraffic
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def stopped(self) -> threading.Event:
        return EitherEvent(self.transport.stopped, self.ended)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        return self.begin(site, topic, body, within).result()

    def begin(self, site: str, topic: str, body: bytes, within: float, most: int = LARGEST_MESSAGE) -> Asked:
        if isinstance(self.transport, ManyAtOnce):
            return self.transport.begin(site, topic, body, within, most)
        return ask_in_thread(self.transport, site, topic, body, within)

    def announce(self, topic: str, bodies: Mapping[str, bytes]) -> int:
        return self.transport.announce(topic, bodies)

    def present(self) -> frozenset[str]:
        return self.transport.present()

    def revoked(self) -> Mapping[str, str]:
        return self.transport.revoked()

    def certificates(self) -> Mapping[str, str]:
        return self.transport.certificates()


def traffic_of(transport: Transport) -> StudyTraffic:
    """The count of the study that a transport serves; a new one where it serves no certain study."""
    return transport.traffic if isinstance(transport, StudyTransport) else StudyTraffic()


def ask_in_thread(transport: Transport, site: str, topic: str, body: bytes, within: float) -> Asked:
    """The same of a transport that waits for each reply."""
    asked = Asked()

    def work() -> None:
        started = time.monotonic()
        try:
            reply = transport.ask(site, topic, body, within)
        except BaseException as error:
            asked.set_exception(error)
        else:
            asked.worked = time.monotonic() - started
            asked.set_result(reply)

    threading.Thread(target=work, name="wardround question", daemon=True).start()
    return asked
