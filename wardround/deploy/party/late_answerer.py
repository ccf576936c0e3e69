"""A party at rest: answers for itself, and loads what answers studies when the first is asked about.

All that trains a model takes two thirds of the memory and of the time to start; a site that waits for months needs none
of it.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from wardround.core.errors import Refusal
from wardround.deploy.home import PartyHome
from wardround.deploy.party.enrolment import refuse_distrusted
from wardround.deploy.party.own_questions import ITSELF, answer_about_itself
from wardround.deploy.party.service import Answerer
from wardround.deploy.protocol.replies import reply_to
from wardround.deploy.protocol.requests import require_small
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed, decode_header, require_spoken
from wardround.deploy.transport.cellnet_filter import SERVER


class LateAnswerer:
    """Stands for the request handler that `make` gives; `on_refusal` hears (topic, why)."""

    def __init__(self, home: PartyHome, make: Callable[[], Answerer]) -> None:
        self.home, self._make = home, make
        self.on_refusal: Callable[[str, str], None] = lambda topic, why: None
        self._made: Answerer | None = None
        self._lock, self._about = threading.Lock(), threading.Lock()

    def answer(self, topic: str, origin: str, content: bytes) -> bytes:
        if self._made is None and topic in ITSELF and origin == SERVER:
            with suppress(Refusal, Malformed):  # what is wrong is said by whom it is always said
                return self._answer_for_itself(topic, content)
        return self.made.answer(topic, origin, content)

    def may_still_leave(self, content: bytes) -> bool:
        return self.made.may_still_leave(content)

    @property
    def made(self) -> Answerer:
        with self._lock:
            if self._made is None:
                made = self._make()
                made.on_refusal = self.on_refusal
                self._made = made
            return self._made

    def _answer_for_itself(self, topic: str, content: bytes) -> bytes:
        require_small(content)
        header, rest = decode_header(content)
        if rest.nbytes or header.pop("arrays", None) is not None or header.pop("meta", None):
            raise Malformed("a question about a party itself has no arrays")
        refuse_distrusted(self.home)
        require_spoken(header, f"this {self.home.title}")
        with self._about:  # what it reads and writes of the home must not change in between
            words = answer_about_itself(self.home, topic, header)
        return reply_to(header, self.home.own_name, {"status": Status.OK, "why": "", **words})
