"""Questions to many sites at once, and their answers as they come."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import NamedTuple

from wardround.deploy.protocol.wire import LARGEST_MESSAGE
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
class Mail:
    """Over one transport; no thread waits for an answer where the transport needs none."""

    transport: Transport
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_AT_ONCE))

    def ask_all(
        self, topic: str, bodies: Mapping[str, bytes], within: Callable[[], float], most: int = LARGEST_MESSAGE
    ) -> Iterator[tuple[str, Future[TimedReply]]]:
        """Ask all of them; gives each as soon as it has answered, or will not any more.

        `within` tells how long a site is given, at the moment at which it is asked, `most` how large an answer may be.
        """
        came: SimpleQueue[tuple[str, Future[TimedReply]]] = SimpleQueue()

        def hear(site: str) -> Callable[[Future[TimedReply]], None]:
            return lambda answer: came.put((site, answer))

        for site, body in bodies.items():
            self._ask(site, topic, body, within, most).add_done_callback(hear(site))
        for _ in bodies:
            yield self._next(came)

    def _ask(self, site: str, topic: str, body: bytes, within: Callable[[], float], most: int) -> Future[TimedReply]:
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

        self.transport.begin(site, topic, body, within(), most).add_done_callback(pass_on)
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
