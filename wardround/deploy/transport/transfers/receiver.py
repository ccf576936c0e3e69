"""The side that is asked: takes the parts of questions, and gives out answers that are too large for one piece."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wardround.deploy.protocol.compression import MOST_TIMES, Content, pack, unpack
from wardround.deploy.protocol.outline import is_outline, read_outline
from wardround.deploy.protocol.wire import Malformed
from wardround.deploy.transport.transfers.line import LARGEST_PART
from wardround.deploy.transport.transfers.piece import PieceCode, PieceReply, PieceTopic, PieceWord
from wardround.deploy.transport.transfers.shelf import Shelf

INVALID = "invalid_request"
"""CellNet's word for what it cannot read."""
NO_SUCH = "there is no such request"
Words = Mapping[str, Any]
"""Of the header of a piece."""


class Receiver:
    """Of one party; in `folder` transfers that take long are kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self._shelf = Shelf(folder)
        self.topics: Mapping[str, Callable[[Any, Words], PieceReply]] = {
            PieceTopic.EXPECT: self._expect,
            PieceTopic.PUT: self._take,
            PieceTopic.FETCH: self._give,
        }

    def respond(
        self,
        payload: Any,
        words: Words,
        answer: Callable[[Any], bytes],
        lasts: Callable[[Any], bool] = lambda question: True,
    ) -> PieceReply:
        """The reply to a question in one piece, or to one whose parts are here; raises what `answer` raises.

        `lasts` tells before each part of a large answer whether it may still leave.
        """
        found = self._shelf.put_together(read_outline(payload)) if is_outline(payload) else unpack(payload)
        if isinstance(found, list):
            return missing(found)
        reply = answer(found)
        told_room = words.get(PieceWord.ROOM)
        room = told_room if type(told_room) is int else LARGEST_PART
        body = pack(reply) if len(reply) <= MOST_TIMES * room else reply
        if len(body) <= room:
            return PieceReply(PieceCode.OK, body)
        told = {"name": self._shelf.hold(reply, lambda: lasts(found)).hex(), "size": len(reply)}
        return PieceReply(PieceCode.HELD, json.dumps(told).encode())

    def _expect(self, payload: Content, _: Words) -> PieceReply:
        try:
            return missing(self._shelf.expect(read_outline(payload)))
        except MemoryError:
            return PieceReply(INVALID, None, "the question is larger than the memory here")

    def _take(self, payload: Content, words: Words) -> PieceReply:
        name, begin = (words.get(word) for word in (PieceWord.NAME, PieceWord.BEGIN))
        content = unpack(payload, most=LARGEST_PART)
        taken = type(begin) is int and isinstance(name, bytes) and self._shelf.take(name, begin, content)
        return PieceReply(PieceCode.OK if taken else PieceCode.MISSING, None)

    def _give(self, _: Content, words: Words) -> PieceReply:
        name, begin, end = (words.get(word) for word in (PieceWord.NAME, PieceWord.BEGIN, PieceWord.END))
        if not (isinstance(name, bytes) and type(begin) is type(end) is int and end - begin <= LARGEST_PART):
            raise Malformed(NO_SUCH)
        part = self._shelf.fetch(name, begin, end)
        return PieceReply(PieceCode.MISSING, None) if part is None else PieceReply(PieceCode.OK, part)


def missing(ranges: list[tuple[int, int]]) -> PieceReply:
    return PieceReply(PieceCode.MISSING, json.dumps(ranges).encode())
