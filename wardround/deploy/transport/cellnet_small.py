"""Small questions and answers, each in one piece: past CellNet's cutting, acknowledging and statistics.

They travel over the same connections and through the same gate as the parts of large ones, and take a third of the
time: for a few kilobytes CellNet's streams cost more than the bytes.
"""

import threading
import uuid
from collections.abc import Callable
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import Encoding, MessageHeaderKey, MessageType, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.endpoint import Endpoint

CHANNEL = "wardround"
SMALL = 1 << 20
"""Bytes of a question or an answer that travels in one piece."""
NO_SUCH = "there is no such request"


class PendingRequest:
    """One who has asked and waits."""

    def __init__(self, target: str, topic: str) -> None:
        self.target, self.topic = target, topic
        self.reply = make_reply(ReturnCode.TIMEOUT)
        self.done = threading.Event()


class SmallMessages:
    """Of one party, called `own` in CellNet; `responders` make the replies to requests, by topic."""

    def __init__(self, manager: Any, own: str) -> None:
        self._manager, self._own = manager, own
        self.responders: dict[str, Callable[[Any], Any]] = {}
        self._waiting: dict[str, PendingRequest] = {}

    def ask(self, target: str, topic: str, body: Any, within: float) -> Any:
        """CellNet's message with the reply; one that says so when there was none in time."""
        number, waiting = str(uuid.uuid4()), PendingRequest(target, topic)
        self._waiting[number] = waiting
        try:
            words = {MessageHeaderKey.MSG_TYPE: MessageType.REQ, MessageHeaderKey.REPLY_EXPECTED: True}
            self._send(target, topic, number, words, body)
            waiting.done.wait(within)
        finally:
            del self._waiting[number]
        return waiting.reply

    def is_awaited(self, name: str, topic: Any, number: str) -> bool:
        """Whether somebody waits for this answer of `name`, and has none yet."""
        waiting = self._waiting.get(number)
        return waiting is not None and (waiting.target, waiting.topic) == (name, topic) and not waiting.done.is_set()

    def take(self, name: str, message: Any) -> None:
        """A piece that has passed the gate: hand an answer to who waits for it, or answer a question."""
        number, topic = message.headers[MessageHeaderKey.REQ_ID], message.headers[MessageHeaderKey.TOPIC]
        if message.headers[MessageHeaderKey.MSG_TYPE] == MessageType.REPLY:
            waiting = self._waiting.get(number)
            if waiting is not None:
                waiting.reply = message
                waiting.done.set()
            return
        self._reply(name, topic, number, self.responders[topic](message))

    def refuse(self, name: str, topic: Any, number: str) -> None:
        """Say that nobody answers such a question."""
        self._reply(name, topic, number, make_reply(ReturnCode.INVALID_REQUEST, error=NO_SUCH))

    def release(self, name: str) -> None:
        """Let nobody wait for one who is gone."""
        for waiting in list(self._waiting.values()):
            if waiting.target == name:
                waiting.done.set()

    def _reply(self, name: str, topic: Any, number: str, reply: Any) -> None:
        self._send(name, topic, number, {**reply.headers, MessageHeaderKey.MSG_TYPE: MessageType.REPLY}, reply.payload)

    def _send(self, name: str, topic: Any, number: str, words: dict[str, Any], payload: Any) -> None:
        headers = {
            MessageHeaderKey.CHANNEL: CHANNEL,
            MessageHeaderKey.TOPIC: topic,
            MessageHeaderKey.REQ_ID: number,
            MessageHeaderKey.ORIGIN: self._own,
            MessageHeaderKey.FROM_CELL: self._own,
            MessageHeaderKey.TO_CELL: name,
            MessageHeaderKey.DESTINATION: name,
            MessageHeaderKey.PAYLOAD_ENCODING: Encoding.BYTES if payload else Encoding.NONE,
            **words,
        }
        self._manager.send_message(Endpoint(name), CoreCell.APP_ID, headers, payload)
