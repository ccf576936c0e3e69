"""The words of pieces that only move bytes, and how a piece is sent: see `exchange.py` for how they make a transfer."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from wardround.deploy.protocol.compression import Content


class PieceTopic(StrEnum):
    """What pieces are about that only move bytes."""

    EXPECT = "parts/expect"
    PUT = "parts/put"
    FETCH = "parts/fetch"


class PieceWord(StrEnum):
    """Words in the header of a piece."""

    NAME = "WR_NAME"
    BEGIN = "WR_BEGIN"
    END = "WR_END"
    ROOM = "WR_ROOM"
    """Bytes of an answer that may come in one piece."""


class PieceCode(StrEnum):
    """What a piece says of another; the last is CellNet's own word."""

    MISSING = "wr_missing"
    """Ranges of the question are not there."""
    HELD = "wr_held"
    """The answer is to be fetched."""
    OK = "ok"


class PieceReply(NamedTuple):
    """The answer to a piece."""

    code: str
    payload: Any
    error: str = ""


SendPiece = Callable[[str, Content, Callable[[PieceReply | None], None], dict[str, Any]], Callable[[], None]]
"""(topic, payload, who hears the reply, further words) to a way to hear it no more."""
