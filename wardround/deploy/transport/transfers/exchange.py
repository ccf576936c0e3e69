"""One question to a party and its answer, both of any size, over a line of any speed.

What fits travels in one piece. Else the other side is told the outline of the question, says what it lacks, and gets
that in parts; a large answer is fetched in parts. Each part is acknowledged, so a transfer goes on where it broke, and
only as much is on its way as the line moves in about a second. The time that a party has to answer counts while it
works and not while bytes move; those have a deadline of their own, by the speed of the line.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

from wardround.deploy.protocol.compression import Content, pack, unpack
from wardround.deploy.protocol.outline import NAME, OutlinedMessage, Range, Segment, size_of
from wardround.deploy.protocol.wire import LARGEST_MESSAGE, Malformed
from wardround.deploy.transport.contract import Asked, Unanswered
from wardround.deploy.transport.transfers.line import LARGEST_PART, PAUSE, OneWayLine, Stopwatch
from wardround.deploy.transport.transfers.piece import PieceCode, PieceReply, PieceTopic, PieceWord, SendPiece
from wardround.deploy.transport.transfers.shelf import SMALLEST_ON_DISK, IncomingMessage

RETURN = 20.0
"""Seconds that one whose line broke in the middle of a transfer has to come back."""
MOST_TURNS = 50
"""How often a transfer is begun again without getting on."""
TOO_LARGE = "its answer is larger than the question allows"
NONSENSE = "it does not say what it lacks of the question"
SHORT_ENOUGH = 1024
"""Bytes of a question that is sent as it is."""


class PeerLines:
    """What the asker knows of one party: its line in either direction, and which segments it has."""

    def __init__(self, folder: Path | None = None) -> None:
        self.down, self.up = OneWayLine(), OneWayLine()
        self.has: dict[bytes, None] = {}
        self.folder = folder
        """Where answers that take long are written as they come."""

    def learn(self, segments: Iterable[Segment]) -> None:
        for one in segments:
            self.has.pop(one.name, None)
            self.has[one.name] = None
        while len(self.has) > 4096:
            del self.has[next(iter(self.has))]


class Movement(NamedTuple):
    """A transfer under way: which way, bytes moved and in all, seconds on the line."""

    way: str
    moved: int
    of: int
    seconds: float

    def beside(self, other: "Movement") -> "Movement":
        """Two transfers of one party at the same time (of two studies, say) as one."""
        way = self.way if self.way == other.way else "both ways"
        return Movement(way, self.moved + other.moved, self.of + other.of, max(self.seconds, other.seconds))


class Exchange:
    """Every method may be called from several threads."""

    def __init__(
        self,
        target: str,
        topic: str,
        question: OutlinedMessage,
        within: float,
        *,
        send: SendPiece,
        lines: PeerLines,
        most: int = LARGEST_MESSAGE,
        note: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`most` are the bytes that the answer may have; `note` hears why one was not received."""
        self.target, self.topic, self.within, self.most = target, topic, within, most
        self.answer = Asked()
        self._question, self._send, self._lines, self._note = question, send, lines, note
        self._lock = threading.RLock()
        self._work, self._way = Stopwatch(), Stopwatch()
        self._step = "asking"
        self._todo: list[Range] = []
        self._pending: dict[int, tuple[Range, float, Callable[[], None]]] = {}
        self._count = 0
        self._total = self._moved = 0
        self._coming: IncomingMessage | None = None
        self._coming_name = b""
        self._progress = time.monotonic()
        self._lost_at = 0.0
        self._turns = 0
        self._forget: Callable[[], None] = lambda: None

    def begin(self) -> None:
        with self._lock:
            if len(self._question.content) <= SHORT_ENOUGH:
                self._ask(pack(self._question.content))
            elif self._question.unknown_bytes(self._lines.has) <= self._lines.down.piece:
                self._ask(self._question.outline(self._lines.has, inline=True))
            else:
                self._offer()

    # ---- the question ----

    def _ask(self, payload: Content) -> None:
        """The question itself; from here on the other side works."""
        self._step, self._progress = "asking", time.monotonic()
        self._way.stop()
        self._work.start()
        words: dict[str, Any] = {PieceWord.ROOM: self._lines.up.piece}
        self.answer.moved += len(payload)
        self._forget = self._send(self.topic, payload, self._answered, words)

    def _answered(self, reply: PieceReply | None) -> None:
        with self._lock:
            if self.answer.done() or self._step != "asking":
                return
            self._work.stop()
            self.answer.moved += len(reply.payload or b"") if reply is not None else 0
            if reply is None:
                self._fail("it disconnected before it answered", gone=True)
            elif reply.code == PieceCode.MISSING:
                self._lines.has.clear()
                self._move("putting", ranges_in(reply.payload, len(self._question.content)))
            elif reply.code == PieceCode.HELD:
                self._lines.learn(self._question.segments)
                self._expect_answer(reply)
            elif reply.code == PieceCode.OK:
                if len(self._question.content) > SHORT_ENOUGH:
                    self._lines.learn(self._question.segments)
                self._finish(b"" if reply.payload is None else reply.payload)
            else:
                self._fail(reply.error or reply.code)

    def _offer(self) -> None:
        """Tell the outline; the other side says what it lacks."""
        self._step, self._progress = "offering", time.monotonic()
        self._way.start()
        payload = self._question.outline(self._lines.has, inline=False)
        self.answer.moved += len(payload)
        self._forget = self._send(PieceTopic.EXPECT, payload, self._offered, {})

    def _offered(self, reply: PieceReply | None) -> None:
        with self._lock:
            if self.answer.done() or self._step != "offering":
                return
            if reply is None:
                self._lose()
            elif reply.code == PieceCode.MISSING:
                self._move("putting", ranges_in(reply.payload, len(self._question.content)))
            else:
                self._fail(reply.error or reply.code)

    # ---- the answer ----

    def _expect_answer(self, reply: PieceReply) -> None:
        try:
            words = words_in(reply.payload)
            name, size = bytes.fromhex(words["name"]), words["size"]
        except (ValueError, KeyError, TypeError):
            self._fail("its answer cannot be fetched: it does not say how large it is")
            return
        if len(name) != NAME or type(size) is not int or not 0 < size <= self.most:
            self._note(TOO_LARGE)
            self._fail(TOO_LARGE)
            return
        if self._coming is None or self._coming_name != name or self._coming.size != size:
            folder = self._lines.folder if size > SMALLEST_ON_DISK else None
            path = None if folder is None else folder / f"{self.target}-{name.hex()}.part"
            if self._coming is not None:  # one who says something else each time fills no disk
                self._coming.forget()
            self._coming, self._coming_name = IncomingMessage((Segment(name, 0, size),), path), name
        self._move("fetching", self._coming.gaps)

    # ---- parts ----

    def _move(self, step: str, ranges: list[Range] | None) -> None:
        """Begin, or go on, to move these ranges."""
        self._turns += 1
        if self._turns > MOST_TURNS or ranges is None:
            self._fail("a transfer was begun again and again, and never ended" if ranges else NONSENSE)
            return
        self._step, self._progress = step, time.monotonic()
        self._way.start()
        self._todo, self._pending = list(ranges), {}
        whole = len(self._question.content) if step == "putting" or self._coming is None else self._coming.size
        self._total, self._moved = whole, whole - size_of(ranges)
        self._pump()

    @property
    def _line(self) -> OneWayLine:
        return self._lines.up if self._step == "fetching" else self._lines.down

    def _pump(self) -> None:
        """Send parts, or ask for them, as many as may be on their way."""
        while self._todo and (not self._pending or self._line.on_way + self._line.part <= self._line.ahead):
            begin, end = self._todo.pop(0)
            if end - begin > self._line.part:
                self._todo.insert(0, (begin + self._line.part, end))
                end = begin + self._line.part
            self._send_part(begin, end)
            if self.answer.done() or self._step not in ("putting", "fetching"):
                return
        if not self._todo and not self._pending:
            self._moved_all()

    def _send_part(self, begin: int, end: int) -> None:
        self._count += 1
        number, line, step = self._count, self._line, self._step
        line.send(end - begin)
        self._pending[number] = (begin, end), time.monotonic(), lambda: None
        heard = lambda reply: self._acknowledged(number, line, step, reply)  # noqa: E731
        words: dict[str, Any] = {PieceWord.BEGIN: begin}
        if step == "putting":
            part = memoryview(self._question.content)[begin:end]
            payload = pack(part) if self._question.shrinks else part
            words |= {PieceWord.NAME: self._question.name}
            self.answer.moved += len(payload)
            forget = self._send(PieceTopic.PUT, payload, heard, words)
        else:
            words |= {PieceWord.NAME: self._coming_name, PieceWord.END: end}
            forget = self._send(PieceTopic.FETCH, b"", heard, words)
        if number in self._pending:
            self._pending[number] = (*self._pending[number][:2], forget)

    def _acknowledged(self, number: int, line: OneWayLine, step: str, reply: PieceReply | None) -> None:
        with self._lock:
            known = self._pending.pop(number, None)
            if known is None or self.answer.done() or self._step != step:
                if known is not None:
                    line.lose(known[0][1] - known[0][0])
                return
            (begin, end), since, _ = known
            if reply is None:
                line.lose(end - begin)
                self._lose()
                return
            line.arrive(end - begin, time.monotonic() - since)
            if reply.code != PieceCode.OK or (step == "fetching" and not self._take(begin, end, reply.payload)):
                self._drop_pending()
                self._again(reply)
                return
            self._progress, self._turns = time.monotonic(), 0
            self._moved += end - begin
            self._pump()

    def _take(self, begin: int, end: int, payload: Any) -> bool:
        """A part of the answer as it came; whether it is the one that was asked for."""
        assert self._coming is not None
        self.answer.moved += 0 if payload is None else len(payload)
        try:
            content = unpack(b"" if payload is None else payload, most=LARGEST_PART)
        except Malformed:
            return False
        return len(content) == end - begin and self._coming.take(begin, content)

    def _again(self, reply: PieceReply) -> None:
        """The other side has forgotten the transfer (it was started again, say): tell it anew what this is about."""
        self._turns += 1
        if self._turns > MOST_TURNS:
            self._fail(reply.error or "a transfer was begun again and again, and never ended")
        elif self._step == "putting":
            self._offer()
        elif reply.code == PieceCode.MISSING:
            # The same question gets the same answer, so what came of it is not lost.
            self._ask(self._question.outline(self._lines.has, inline=False))
        else:
            self._fail(reply.error or "its answer cannot be fetched: a part of it is not what was asked for")

    def _moved_all(self) -> None:
        if self._step == "putting":
            self._lines.down.learn(self._total, self._way.seconds)
            self._ask(self._question.outline((), inline=False))
            return
        assert self._coming is not None
        gaps = self._coming.complete()
        if gaps:
            self._move("fetching", gaps)
            return
        self._lines.up.learn(self._coming.size, self._way.seconds)
        coming, self._coming = self._coming, None
        self._finish(coming.buffer.toreadonly())
        coming.forget()

    # ---- the end, and what may come between ----

    def _lose(self) -> None:
        """The line broke in the middle of a transfer: the other side has some time to come back."""
        self._drop_pending()
        self._step, self._lost_at = f"lost while {self._step}", time.monotonic()
        self._way.stop()

    def _drop_pending(self) -> None:
        for (begin, end), _, forget in self._pending.values():
            self._line.lose(end - begin)
            forget()
        self._pending = {}

    def resume(self) -> None:
        """The other side is back."""
        with self._lock:
            if self.answer.done() or not self._step.startswith("lost"):
                return
            if self._step.endswith("fetching") and self._coming is not None:
                self._move("fetching", self._coming.gaps)
            else:
                self._offer()

    def check(self) -> None:
        """Give up what takes too long; called from time to time."""
        with self._lock:
            now = time.monotonic()
            if self.answer.done():
                return
            if self._step == "asking":
                if self._work.seconds > self.within:
                    self._fail(f"it did not answer within {self.within:.0f} s")
            elif self._step.startswith("lost"):
                if now - self._lost_at > RETURN:
                    self._fail("its connection was lost in the middle of a transfer", gone=True)
            elif now - self._progress > PAUSE:
                self._fail(f"its line stands still: {self._moved} of {self._total} bytes in {self._way.seconds:.0f} s")
            elif self._way.seconds > self._line.allowance(self._total):
                rate = self._moved / max(1.0, self._way.seconds)
                self._fail(f"its line is too slow: {self._moved} of {self._total} bytes, {rate:.0f} in a second")

    def cancel(self, why: str) -> None:
        with self._lock:
            if not self.answer.done():
                self._fail(why, gone=True)

    @property
    def movement(self) -> Movement | None:
        """What is being moved now."""
        with self._lock:
            if self._step not in ("putting", "fetching"):
                return None
            way = "down" if self._step == "putting" else "up"
            return Movement(way, self._moved, self._total, self._way.seconds)

    def _fail(self, why: str, *, gone: bool = False) -> None:
        self._forget()
        self._drop_pending()
        if self._coming is not None:
            self._coming.close()
        self._end(lambda: self.answer.set_exception(Unanswered(self.target, why, gone=gone)))

    def _finish(self, content: Content) -> None:
        try:
            plain = unpack(content, most=self.most)
        except Malformed as error:
            problem = error
            self._end(lambda: self.answer.set_exception(problem))
            return
        self._end(lambda: self.answer.set_result(cast(bytes, plain)))

    def _end(self, tell: Callable[[], None]) -> None:
        self._work.stop()
        self._way.stop()
        self.answer.worked = self._work.seconds
        self._step = "done"
        tell()


def words_in(payload: Any) -> Any:
    """What the other side says. Nested too deep is as if it could not be read: an exchange must end in any case."""
    try:
        return json.loads(bytes(payload))
    except RecursionError:
        raise ValueError("nested too deep") from None


def ranges_in(payload: Any, size: int) -> list[Range] | None:
    """The ranges that the other side lacks, as it says; none where that makes no sense."""
    try:
        found = [(begin, end) for begin, end in words_in(payload or b"[]")]
    except (ValueError, TypeError):
        return None
    sound = all(type(begin) is type(end) is int and 0 <= begin < end <= size for begin, end in found)
    return found if sound and size_of(found) <= size else None
