"""Questions to many sites at once, their answers as they come, and the bytes of both."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import NamedTuple

from wardround.deploy.protocol.replies import Reply
from wardround.deploy.transport.contract import Asked, ManyAtOnce, Transport

MOST_AT_ONCE = 64
"""Sites that are waited for at the same time, where the transport needs a thread for each."""
LOOK = 0.2
"""Seconds between two looks at whether we are to stop."""


class TimedReply(NamedTuple):
    """A reply as it came, how many seconds the site took for it, and the bytes that were moved."""

    content: bytes
    seconds: float
    moved: int = 0


@dataclass
class Traffic:
    """Bytes of a study since somebody asked: as the audit logs count them, and as the line moved them.

    Down is what the coordinator writes into its log; up is what the sites write into theirs, each answer once however
    often it was asked for. The line moves less where a site has a model already, and more where it broke.
    """

    down: int = 0
    up: int = 0
    line: int = 0
    _last: dict[tuple[str, str], str] = field(default_factory=dict)

    def count_answer(self, site: str, topic: str, reply: Reply) -> None:
        if self._last.get((site, topic)) != reply.sha256:
            self._last[site, topic] = reply.sha256
            self.up += reply.size

    def take(self) -> "Traffic":
        """What was counted since the last time."""
        found = Traffic(self.down, self.up, self.line)
        self.down = self.up = self.line = 0
        return found


@dataclass
class Mail:
    """Over one transport; no thread waits for an answer where the transport needs none."""

    transport: Transport
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_AT_ONCE))

    def ask_all(
        self, topic: str, bodies: Mapping[str, bytes], within: Callable[[], float]
    ) -> Iterator[tuple[str, Future[TimedReply]]]:
        """Ask all of them; gives each as soon as it has answered, or will not any more.

        `within` tells how long a site is given, at the moment at which it is asked.
        """
        came: SimpleQueue[tuple[str, Future[TimedReply]]] = SimpleQueue()

        def hear(site: str) -> Callable[[Future[TimedReply]], None]:
            return lambda answer: came.put((site, answer))

        for site, body in bodies.items():
            self._ask(site, topic, body, within).add_done_callback(hear(site))
        for _ in bodies:
            yield self._next(came)

    def _ask(self, site: str, topic: str, body: bytes, within: Callable[[], float]) -> Future[TimedReply]:
        if not isinstance(self.transport, ManyAtOnce):
            return self._threads.submit(self._ask_and_wait, site, topic, body, within)
        found: Future[TimedReply] = Future()

        def pass_on(asked: Future[bytes]) -> None:
            worked, moved = (asked.worked, asked.moved) if isinstance(asked, Asked) else (0.0, 0)
            problem = asked.exception()
            if problem is not None:
                found.set_exception(problem)
            else:
                found.set_result(TimedReply(asked.result(), worked, moved))

        self.transport.begin(site, topic, body, within()).add_done_callback(pass_on)
        return found

    def _ask_and_wait(self, site: str, topic: str, body: bytes, within: Callable[[], float]) -> TimedReply:
        started = time.monotonic()
        content = self.transport.ask(site, topic, body, within())
        return TimedReply(content, time.monotonic() - started)

    def _next(self, came: "SimpleQueue[tuple[str, Future[TimedReply]]]") -> tuple[str, Future[TimedReply]]:
        """Nobody is waited for when we are to stop."""
        while True:
            try:
                return came.get(timeout=LOOK)
            except Empty:
                if self.transport.stopped.is_set():
                    raise KeyboardInterrupt from None
