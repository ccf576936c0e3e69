"""A coordinator that misuses messages in parts: memory and disk of a site, and bytes that change after they were read.

And a site that says of its answer something else each time it is asked.
"""

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wardround.core.contracts import Message
from wardround.deploy.protocol.outline import ENTRY, OUTLINE, OutlinedMessage, name_of, read_outline
from wardround.deploy.protocol.wire import Malformed, encode
from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.transport.transfers import shelf as shelf_module
from wardround.deploy.transport.transfers.exchange import Exchange, PeerLines
from wardround.deploy.transport.transfers.piece import PieceCode, PieceReply, PieceTopic, PieceWord
from wardround.deploy.transport.transfers.receiver import Receiver
from wardround.deploy.transport.transfers.shelf import MOST_TRANSFERS, Shelf, forget_abandoned, ranges_path

MODEL = np.random.default_rng(3).normal(size=40_000).astype(np.float32)
QUESTION = OutlinedMessage(encode({"topic": "round"}, Message({"params": {"kernel": MODEL}})))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transfer is a long one, so that it is written to the disk."""
    monkeypatch.setattr(shelf_module, "LONG", -1.0)


def outline_of(*segments: tuple[bytes, int]) -> bytes:
    """Of names and sizes that somebody made up."""
    return OUTLINE + struct.pack("<I", len(segments)) + b"".join(ENTRY.pack(*one) for one in segments)


def put(receiver: Receiver, name: bytes, begin: int, part: bytes) -> PieceReply:
    return receiver.topics[PieceTopic.PUT](part, {PieceWord.NAME: name, PieceWord.BEGIN: begin})


def test_a_question_does_not_change_under_whoever_reads_it() -> None:
    """A part that comes again, with other bytes, while the question is answered: gate and log know the first ones."""
    shelf, content = Shelf(), bytes(QUESTION.content)
    outline = read_outline(QUESTION.outline((), inline=False))
    assert shelf.expect(outline) == [(0, len(content))]
    assert shelf.take(outline.name, 0, content)
    late = shelf._coming[outline.name]  # a thread that had found the transfer before it was complete
    found = shelf.put_together(outline)
    assert isinstance(found, memoryview)
    late.take(len(content) - 64, b"x" * 64)
    assert found == content
    assert not shelf.take(outline.name, 0, b"x")


def test_what_came_first_stays() -> None:
    receiver, content = Receiver(), bytes(QUESTION.content)
    outline = QUESTION.outline((), inline=False)
    receiver.topics[PieceTopic.EXPECT](outline, {})
    put(receiver, QUESTION.name, 0, content[:1000])
    put(receiver, QUESTION.name, 0, b"x" * 1000)
    put(receiver, QUESTION.name, 1000, content[1000:])
    heard: list[bytes] = []
    receiver.respond(outline, {}, lambda question: heard.append(bytes(question)) or b"")
    assert heard == [content]


@pytest.mark.parametrize("where", [-1, len(QUESTION.content), 1 << 62], ids=["before", "after", "far after"])
def test_a_part_beyond_its_message_is_not_taken(where: int) -> None:
    receiver = Receiver()
    receiver.topics[PieceTopic.EXPECT](QUESTION.outline((), inline=False), {})
    assert put(receiver, QUESTION.name, where, b"x").code == PieceCode.MISSING
    assert put(receiver, b"?" * 16, 0, b"x").code == PieceCode.MISSING


def test_a_few_bytes_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 bytes name a segment that is there: 32,768 of them name a thousand times what was ever sent."""
    monkeypatch.setattr(shelf_module, "memory_room", lambda: 1 << 20)
    receiver = Receiver()
    known = os.urandom(1 << 16)
    name = name_of(known)
    first = outline_of((b"head", 16), (name, len(known)))
    receiver.topics[PieceTopic.EXPECT](first, {})
    put(receiver, read_outline(first).name, 0, b"h" * 16 + known)
    assert receiver.respond(first, {}, lambda question: b"").code == PieceCode.OK
    bomb = outline_of((b"head", 16), *[(name, len(known))] * 16)
    with pytest.raises(Malformed, match="there is room for 1048576 here"):
        receiver.respond(bomb, {}, lambda question: b"")
    with pytest.raises(Malformed, match="there is room"):
        receiver.topics[PieceTopic.EXPECT](bomb, {})
    # Nor several that each fit: the oldest is forgotten.
    for place in range(6):
        receiver.topics[PieceTopic.EXPECT](outline_of((bytes([place]), 16), *[(name, len(known))] * 6), {})
    assert sum(one.size for one in receiver._shelf._coming.values()) <= 1 << 20


@pytest.mark.usefixtures("at_once")
def test_transfers_that_never_end_do_not_fill_the_disk(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    for place in range(3 * MOST_TRANSFERS):
        outline = outline_of((bytes([place]) * 16, 1 << 20))
        receiver.topics[PieceTopic.EXPECT](outline, {})
        for _ in range(3):  # the same part again is not written again
            put(receiver, read_outline(outline).name, 0, b"x" * 1000)
    parts = list(tmp_path.glob("*.part"))
    assert len(parts) == MOST_TRANSFERS
    assert all(len(ranges_path(one).read_text().splitlines()) == 1 for one in parts)


def test_nor_do_those_of_earlier_processes(tmp_path: Path) -> None:
    for place in range(2 * MOST_TRANSFERS):
        for name in (f"{place:032x}.part", f"bo-{place:032x}.part", f"port-loko-{place:032x}.part"):
            (tmp_path / name).write_bytes(b"x")
            (tmp_path / f"{name}.ranges").write_text("[0, 1]\n")
            os.utime(tmp_path / name, (time.time() - place, time.time() - place))
    forget_abandoned(tmp_path)
    left = {one.name for one in tmp_path.glob("*.part")}
    expected = {f"{party}{place:032x}.part" for party in ("", "bo-", "port-loko-") for place in range(MOST_TRANSFERS)}
    assert left == expected
    assert {one.name for one in tmp_path.glob("*.ranges")} == {f"{name}.ranges" for name in left}


@pytest.mark.usefixtures("at_once")
def test_a_site_that_names_another_answer_each_time_leaves_one_file(tmp_path: Path) -> None:
    asked: list[str] = []
    waiting: list[Any] = []

    def send(topic: str, payload: Any, heard: Any, words: Any) -> Any:
        def reply() -> None:
            asked.append(topic)
            if topic != PieceTopic.FETCH:
                told = {"name": f"{len(asked):032x}", "size": 1 << 20}
                heard(PieceReply(PieceCode.HELD, json.dumps(told).encode()))
            elif words[PieceWord.BEGIN] == 0:
                heard(PieceReply(PieceCode.OK, b"x" * (words[PieceWord.END] - words[PieceWord.BEGIN])))
            else:
                heard(PieceReply(PieceCode.MISSING, None))

        waiting.append(reply)
        return lambda: None

    one = Exchange("bo", "round", OutlinedMessage(b"?"), 10.0, send=send, lines=PeerLines(tmp_path))
    one.begin()
    while waiting and len(asked) < 100 and not one.answer.done():
        waiting.pop(0)()
    assert len([topic for topic in asked if topic != PieceTopic.FETCH]) > 10
    assert len(list(tmp_path.glob("*.part"))) <= 1


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (PieceCode.HELD, b'{"name": "%s", "size": Infinity}' % (b"00" * 16)),
        (PieceCode.HELD, b'{"name": "%s", "size": 1e400}' % (b"00" * 16)),
        (PieceCode.HELD, b'{"name": "%s", "size": 12.5}' % (b"00" * 16)),
        (PieceCode.HELD, DEEP),
        (PieceCode.MISSING, DEEP),
        (PieceCode.MISSING, b"[[0, Infinity]]"),
    ],
    ids=["endless", "too large for a number", "half a byte", "nested", "lacks something nested", "lacks all and more"],
)
def test_an_exchange_ends_whatever_a_site_says_of_its_answer(code: PieceCode, said: bytes) -> None:
    """An endless answer was an error nobody caught, after the site's time had been stopped: the round never ended."""

    def send(topic: str, payload: Any, heard: Any, words: Any) -> Any:
        heard(PieceReply(code, said))
        return lambda: None

    one = Exchange("site", "round", OutlinedMessage(b"?"), 10.0, send=send, lines=PeerLines())
    one.begin()
    assert isinstance(one.answer.exception(0), Unanswered)
