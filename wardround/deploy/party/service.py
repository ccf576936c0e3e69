"""The long-lived process of a site or second server: connects out to the coordinator, and answers what it asks.

Nothing listens here. A coordinator that goes away is waited for; the connection comes back by itself.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.fault_points import arm
from wardround.deploy.home import PartyHome
from wardround.deploy.party.enrolment import refuse_distrusted
from wardround.deploy.party.own_questions import ITSELF
from wardround.deploy.transport.cellnet import Credentials, Party
from wardround.deploy.transport.cellnet_filter import SERVER
from wardround.deploy.transport.connectivity import refuse_other_server
from wardround.deploy.trust.audit_log import event_entry

Tell = Callable[[str, Mapping[str, Any]], None]
LOOK = 0.5


class Answerer(Protocol):
    """Who answers: the request handler of a site or a second server. `on_refusal` hears (topic, why)."""

    on_refusal: Callable[[str, str], None]

    def answer(self, topic: str, origin: str, content: bytes) -> bytes: ...

    def may_still_leave(self, content: bytes) -> bool:
        """Whether the answer to this request, or the rest of it, may be sent now."""
        ...


class PartyService:
    """One party at work: answers the topics of `ITSELF` and these. `tell` hears what its administrator would."""

    def __init__(
        self, home: PartyHome, handler: Answerer, topics: Iterable[str], tell: Tell = lambda word, facts: None
    ) -> None:
        arm()
        self.home, self.handler, self.tell = home, handler, tell
        words = home.settings
        files = Credentials(home.authority_path, home.certificate_path, home.key_path)
        self.party = Party(
            words.name, words.coordinator, files, server_name=words.server_name, folder=home.transfers_path
        )
        self.party.watch(self._on_connection)
        self.party.on_trouble(self._on_trouble)
        self._writing = threading.Lock()
        self._written: dict[str, Any] = {}
        handler.on_refusal = self._on_refusal
        for topic in (*ITSELF, *topics):
            self.party.answer(str(topic), self._handler_for(str(topic)), handler.may_still_leave)
        self.stopped = threading.Event()
        self.state: dict[str, Any] = {"name": words.name, "coordinator": words.coordinator, "connected": False}

    def start(self) -> None:
        refuse_distrusted(self.home)
        self._refuse_other_server()
        self.home.log().append(event_entry("started", version=__version__))
        self.party.start()
        self.write_status()

    def _refuse_other_server(self) -> None:
        words = self.home.settings
        refuse_other_server(words.coordinator, self.party.credentials, words.server_name)

    def work(self) -> None:
        """Until told to stop, or until this party no longer answers this coordinator."""
        while not self.stopped.wait(LOOK):
            self.write_status()
            if self.home.distrust_path.exists():
                self.tell("distrusted", {"coordinator": self.home.settings.coordinator})
                return

    def stop(self) -> None:
        self.stopped.set()
        self.party.stop()

    def write_status(self) -> None:
        """Two threads write it; a full disk must not end the process, which goes on when there is room again.

        Only what has changed is written, so that a party at rest leaves the disk alone.
        """
        with self._writing, suppress(Refusal):
            words = dict(self.state)
            if words != self._written:
                self.home.write_status({**words, "at": time.time()})
                self._written = words

    def _handler_for(self, topic: str) -> Callable[[str, bytes], bytes]:
        def respond(origin: str, content: bytes) -> bytes:
            reply = self.handler.answer(topic, origin, content)
            self.state |= {"last": topic, "last_at": time.time()}
            with suppress(OSError):  # nobody's screen or log file, full or closed, may keep an answer back
                self.tell("answered", {"topic": topic, "bytes": len(reply)})
            return reply

        return respond

    def _on_refusal(self, topic: str, why: str) -> None:
        self.state["refused"] = {"topic": topic, "why": why, "at": time.time()}
        with suppress(OSError):
            self.tell("refused", {"topic": topic, "why": why})

    def _on_connection(self, name: str, came: bool) -> None:
        if name == SERVER:
            self.state |= {"connected": came, "why": ""}
            self.tell("connected" if came else "lost", {"coordinator": self.home.settings.coordinator})
            self.write_status()
            try:
                if came:  # it may have been away when this process was started
                    self._refuse_other_server()
            except Refusal as refusal:
                self._on_trouble(str(refusal))
                self.stopped.set()

    def _on_trouble(self, why: str) -> None:
        self.state["why"] = why
        self.tell("worried", {"why": why})
        self.write_status()
