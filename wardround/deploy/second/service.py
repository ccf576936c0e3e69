"""The second server's long-lived process: connects out to the coordinator, as a site does, and answers what it asks."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.fault_points import arm
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.second.home import SecondHome
from wardround.deploy.second.request_handler import ITSELF, SecondHandler
from wardround.deploy.transport.cellnet import Credentials, Party
from wardround.deploy.transport.cellnet_filter import SERVER
from wardround.deploy.trust.audit_log import event_entry

LOOK = 0.5


class SecondService:
    """The second server at work. `tell` hears what its administrator would want to know."""

    def __init__(self, home: SecondHome, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        arm()
        self.home, self.tell = home, tell
        words = home.settings
        files = Credentials(home.authority_path, home.certificate_path, home.key_path)
        self.party = Party(words.name, words.coordinator, files, server_name=words.server_name)
        self.party.watch(self._on_connection)
        self.party.on_trouble(lambda why: self.tell("worried", {"why": why}))
        self.handler = SecondHandler(home, lambda topic, why: self.tell("refused", {"topic": topic, "why": why}))
        for topic in (*ITSELF, Topic.OFFER, Topic.OPEN):
            self.party.answer(str(topic), self._handler_for(str(topic)))
        self.stopped = threading.Event()
        self.state: dict[str, Any] = {"name": words.name, "coordinator": words.coordinator, "connected": False}

    def start(self) -> None:
        self.home.log().append(event_entry("started", version=__version__))
        self.party.start()

    def work(self) -> None:
        """Until told to stop."""
        while not self.stopped.wait(LOOK):
            with suppress(Refusal):
                self.home.write_status({**self.state, "at": time.time()})

    def stop(self) -> None:
        self.stopped.set()
        self.party.stop()

    def _handler_for(self, topic: str) -> Callable[[str, bytes], bytes]:
        def respond(origin: str, content: bytes) -> bytes:
            reply = self.handler.answer(topic, origin, content)
            with suppress(OSError):
                self.tell("answered", {"topic": topic, "bytes": len(reply)})
            return reply

        return respond

    def _on_connection(self, name: str, came: bool) -> None:
        if name == SERVER:
            self.state["connected"] = came
            self.tell("connected" if came else "lost", {"coordinator": self.home.settings.coordinator})
