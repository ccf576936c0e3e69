"""The long-lived process of a site or second server: connects out to the coordinator, and answers what it asks.

Nothing listens here. A coordinator that goes away is waited for; the connection comes back by itself.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.fault_points import arm
from wardround.deploy.home import PartyHome
from wardround.deploy.operations.gauges import Gauge, PartyHealth
from wardround.deploy.party.enrolment import refuse_distrusted
from wardround.deploy.party.own_questions import ITSELF
from wardround.deploy.transport.cellnet import Credentials, Party
from wardround.deploy.transport.cellnet_filter import SERVER
from wardround.deploy.transport.connectivity import refuse_other_server
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import certificate_summary, read_certificate

Tell = Callable[[str, Mapping[str, Any]], None]
LOOK = 0.5
GRACE = 60.0
"""Seconds without a connection after which a monitor is told that something is wrong."""


class Answerer(Protocol):
    """Who answers: the request handler of a site or a second server. `on_refusal` hears (topic, why)."""

    on_refusal: Callable[[str, str], None]

    def answer(self, topic: str, origin: str, content: bytes) -> bytes: ...

    def may_still_leave(self, content: bytes) -> bool:
        """Whether the answer to this request, or the rest of it, may be sent now."""
        ...


@cache
def began() -> float:
    """When this process was started."""
    import psutil

    return psutil.Process().create_time()


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
        self._writing, self._counting = threading.Lock(), threading.Lock()
        self._written: dict[str, Any] = {}
        self._changed = time.time()
        self.answers = self.answer_bytes = self.refusals = 0
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
            words = {**self.state, "process": os.getpid(), "began": began()}
            if words != self._written:
                self.home.write_status({**words, "at": time.time()})
                self._written = words

    def look(self) -> tuple[PartyHealth, list[Gauge]]:
        """Health and figures for a monitor: it works while it is connected, or was a minute ago."""
        connected = bool(self.state["connected"])
        well = connected or time.time() - self._changed < GRACE
        health = PartyHealth(
            well, {"name": self.state["name"], "connected": connected, "why": self.state.get("why", "")}
        )
        until = certificate_summary(read_certificate(self.home.certificate_path)).until
        return health, [
            Gauge("connected", connected, "Whether there is a connection to the coordinator."),
            Gauge("answers_total", self.answers, "Requests that were answered since the process started."),
            Gauge("answer_bytes_total", self.answer_bytes, "Bytes of these answers."),
            Gauge("refusals_total", self.refusals, "Requests that were refused since the process started."),
            Gauge("last_answer_seconds", float(self.state.get("last_at", 0)), "When the last answer was given (Unix)."),
            Gauge("certificate_ends_seconds", until.timestamp(), "When the own certificate ends (Unix)."),
            Gauge("build_info", 1, "The version of wardround.", {"version": __version__}),
        ]

    def _handler_for(self, topic: str) -> Callable[[str, bytes], bytes]:
        def respond(origin: str, content: bytes) -> bytes:
            reply = self.handler.answer(topic, origin, content)
            self.state |= {"last": topic, "last_at": time.time()}
            with self._counting:  # several studies are answered at the same time
                self.answers, self.answer_bytes = self.answers + 1, self.answer_bytes + len(reply)
            with suppress(OSError):  # nobody's screen or log file, full or closed, may keep an answer back
                self.tell("answered", {"topic": topic, "bytes": len(reply)})
            return reply

        return respond

    def _on_refusal(self, topic: str, why: str) -> None:
        with self._counting:
            self.refusals += 1
        self.state["refused"] = {"topic": topic, "why": why, "at": time.time()}
        with suppress(OSError):
            self.tell("refused", {"topic": topic, "why": why})

    def _on_connection(self, name: str, came: bool) -> None:
        if name == SERVER:
            self.state |= {"connected": came, "why": ""}
            self._changed = time.time()
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
