"""Questions and answers in single pieces: past CellNet's own cutting, acknowledging and statistics.

All that coordinator and sites say to each other is such a piece, a model's parts included (see `transfers`). No
thread waits for an answer: whoever asked is called when it comes, or when the other side is gone.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import Encoding, MessageHeaderKey, MessageType, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.endpoint import Endpoint

from wardround.deploy.transport.transfers.receiver import NO_SUCH

CHANNEL = "wardround"
LARGEST_PIECE = (1 << 20) + (1 << 16)
"""Bytes of a piece: the largest part of a message, or a small one, and the outline of a large one."""

Done = Callable[[Any], None]
"""Hears CellNet's message with the reply; none when the other side is gone."""


class PendingPiece(NamedTuple):
    """A question that was sent and has no answer yet."""

    target: str
    topic: str
    done: Done


class SmallMessages:
    """Of one party, called `own` in CellNet; `responders` make the replies to requests, by topic."""

    def __init__(self, manager: Any, own: str) -> None:
        self._manager, self._own = manager, own
        self.responders: dict[str, Callable[[Any], Any]] = {}
        self._waiting: dict[str, PendingPiece] = {}

    def ask(self, target: str, topic: str, body: Any, done: Done, **words: Any) -> str:
        """Send a question, with further words for its header; gives the number by which it is forgotten."""
        number = str(uuid.uuid4())
        self._waiting[number] = PendingPiece(target, topic, done)
        own = {MessageHeaderKey.MSG_TYPE: MessageType.REQ, MessageHeaderKey.REPLY_EXPECTED: True}
        try:
            self._send(target, topic, number, {**own, **words}, body)
        except Exception:  # of the network's many kinds: the connection is gone
            if self._waiting.pop(number, None) is not None:
                done(None)
        return number

    def forget(self, number: str) -> None:
        """Nobody waits for this answer any more."""
        self._waiting.pop(number, None)

    def is_awaited(self, name: str, topic: Any, number: str) -> bool:
        """Whether somebody waits for this answer of `name`, and has none yet."""
        waiting = self._waiting.get(number)
        return waiting is not None and (waiting.target, waiting.topic) == (name, topic)

    def take(self, name: str, message: Any) -> None:
        """A piece that has passed the gate: hand an answer to who waits for it, or answer a question."""
        number, topic = message.headers[MessageHeaderKey.REQ_ID], message.headers[MessageHeaderKey.TOPIC]
        if message.headers[MessageHeaderKey.MSG_TYPE] == MessageType.REPLY:
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                waiting.done(message)
            return
        self._reply(name, topic, number, self.responders[topic](message))

    def refuse(self, name: str, topic: Any, number: str) -> None:
        """Say that nobody answers such a question."""
        self._reply(name, topic, number, make_reply(ReturnCode.INVALID_REQUEST, error=NO_SUCH))

    def release(self, name: str) -> None:
        """Let nobody wait for one who is gone."""
        for number, waiting in list(self._waiting.items()):
            if waiting.target == name and self._waiting.pop(number, None) is not None:
                waiting.done(None)

    def _reply(self, name: str, topic: Any, number: str, reply: Any) -> None:
        self._send(name, topic, number, {**reply.headers, MessageHeaderKey.MSG_TYPE: MessageType.REPLY}, reply.payload)

    def _send(self, name: str, topic: Any, number: str, words: Mapping[str, Any], payload: Any) -> None:
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
