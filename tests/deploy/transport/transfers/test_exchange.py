"""A question and its answer in parts, over a line that loses what we let it lose; the two sides without a network."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wardround.core.contracts import Message
from wardround.deploy.protocol.outline import OutlinedMessage
from wardround.deploy.protocol.wire import Malformed, encode
from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.transport.transfers import exchange as exchange_module
from wardround.deploy.transport.transfers import shelf as shelf_module
from wardround.deploy.transport.transfers.exchange import Exchange, PeerLines
from wardround.deploy.transport.transfers.piece import PieceReply, PieceTopic
from wardround.deploy.transport.transfers.receiver import Receiver

RNG = np.random.default_rng(3)
MODEL = {"kernel": RNG.normal(size=(300, 200)).astype(np.float32), "bias": RNG.normal(size=300).astype(np.float32)}
SIZE = sum(one.nbytes for one in MODEL.values())
BEGIN = encode({"topic": "begin"}, Message({"first": MODEL}))
ROUND = encode({"topic": "round", "round": 1}, Message({"params": MODEL}))
JUDGE = encode({"topic": "judge"}, Message({"sent": {"params": MODEL}, "params": MODEL}))
LARGE = RNG.bytes(200_000)


class Site:
    """The side that is asked, over a line that is cut after so many pieces, again and again."""

    def __init__(self, folder: Path | None = None, answer: Callable[[Any], bytes] = lambda question: b"done") -> None:
        self.folder, self.answer = folder, answer
        self.receiver = Receiver(folder)
        self.asked: list[bytes] = []
        self.pieces: list[tuple[str, int]] = []
        self.cut_every = 0
        self.lasts = True
        self.lost: list[Exchange] = []
        self.waiting: list[Callable[[], None]] = []

    def restart(self) -> None:
        self.receiver = Receiver(self.folder)

    def send(self, topic: str, payload: Any, heard: Callable[[PieceReply | None], None], words: Any) -> Any:
        self.pieces.append((topic, len(payload)))
        cut = self.cut_every and len(self.pieces) % self.cut_every == 0
        self.waiting.append(lambda: heard(None if cut else self.reply(topic, payload, words)))
        return lambda: None

    def reply(self, topic: str, payload: Any, words: Any) -> PieceReply:
        try:
            if topic in self.receiver.topics:
                return self.receiver.topics[topic](bytes(payload), words)
            return self.receiver.respond(bytes(payload), words, self.hear, lambda question: self.lasts)
        except Malformed as error:
            return PieceReply("invalid_request", None, str(error))

    def hear(self, question: Any) -> bytes:
        self.asked.append(bytes(question))
        return self.answer(question)

    def ask(self, body: bytes, lines: PeerLines, *, between: Callable[[], None] = lambda: None, **more: Any) -> Any:
        """The answer; whoever was cut off comes back, after `between`."""
        one = Exchange("site", "round", OutlinedMessage(body), 10.0, send=self.send, lines=lines, **more)
        one.begin()
        while not one.answer.done():
            while self.waiting and not one.answer.done():
                self.waiting.pop(0)()
            between()
            one.resume()
        return one.answer

    def moved(self, topic: str) -> int:
        return sum(size for name, size in self.pieces if name == topic)


def test_a_model_travels_once_whatever_is_asked_about_it() -> None:
    site, lines = Site(), PeerLines()
    for body in (BEGIN, ROUND, JUDGE, ROUND):
        assert site.ask(body, lines).result() == b"done"
    assert site.asked == [BEGIN, ROUND, JUDGE, ROUND]
    # In all: the model once, what stands before it in each message, outlines and few words more.
    before = sum(len(body) for body in (BEGIN, ROUND, JUDGE, ROUND)) - 5 * SIZE
    assert SIZE < sum(size for _, size in site.pieces) < SIZE + before + 2000


def test_a_process_that_is_told_to_end_in_the_middle_of_a_transfer_waits_for_nothing() -> None:
    """SIGTERM took 95 seconds while a model was on its way: the parts were waited for, each with its own time."""
    site, lines = Site(), PeerLines()
    one = Exchange("site", "begin", OutlinedMessage(BEGIN), 600.0, send=site.send, lines=lines)
    one.begin()
    while one.movement is None or not one.movement.moved:
        site.waiting.pop(0)()
    assert site.waiting  # parts are on their way
    one.cancel("the coordinator is stopping")
    problem = one.answer.exception(0)
    assert isinstance(problem, Unanswered)
    assert problem.gone
    assert lines.down.on_way == 0
    while site.waiting:  # what still comes disturbs nobody
        site.waiting.pop(0)()
    assert site.ask(BEGIN, lines).result() == b"done"


def test_one_that_was_started_again_is_sent_what_it_has_forgotten() -> None:
    site, lines = Site(), PeerLines()
    site.ask(BEGIN, lines).result()
    site.restart()
    assert site.ask(ROUND, lines).result() == b"done"
    assert site.asked[-1] == ROUND


@pytest.mark.parametrize("every", [3, 5, 11])
def test_a_transfer_goes_on_where_the_line_was_cut(every: int) -> None:
    """Both ways: what was acknowledged is not sent again."""
    site, lines = Site(answer=lambda question: LARGE), PeerLines()
    site.cut_every = every
    answer = site.ask(BEGIN, lines)
    while answer.exception() is not None:  # cut off while it answered: it is asked again, as a coordinator does
        answer = site.ask(BEGIN, lines)
    assert answer.result() == LARGE
    assert set(site.asked) == {BEGIN}
    # A cut loses what was on its way, at most: a part for each.
    cuts = len(site.pieces) // site.cut_every
    assert site.moved(PieceTopic.PUT) <= len(BEGIN) + cuts * lines.down.ahead


@pytest.mark.parametrize("when", [3, 8, 20])
def test_it_goes_on_after_a_restart_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int) -> None:
    monkeypatch.setattr(shelf_module, "LONG", 0.0)
    site, lines = Site(tmp_path), PeerLines()
    site.cut_every = when
    restarted = []

    def restart() -> None:
        if not restarted:
            restarted.append(site.moved(PieceTopic.PUT))
            site.restart()
            site.cut_every = 0

    assert site.ask(BEGIN, lines, between=restart).result() == b"done"
    assert site.asked == [BEGIN]
    lost = lines.down.ahead
    assert site.moved(PieceTopic.PUT) <= len(BEGIN) + lost
    # The model is on its disk now, so that the next process need not be sent it.
    site.restart()
    site.pieces.clear()
    site.ask(ROUND, PeerLines()).result()
    assert site.moved(PieceTopic.PUT) <= len(ROUND) - SIZE
    assert not list(tmp_path.glob("*.part*"))


def test_what_was_changed_on_the_disk_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "LONG", 0.0)
    site, lines = Site(tmp_path), PeerLines()
    site.cut_every = 9

    def spoil() -> None:
        site.cut_every = 0
        for path in tmp_path.glob("*.part"):
            content = bytearray(path.read_bytes())
            content[100] ^= 1
            path.write_bytes(content)
        site.restart()

    assert site.ask(BEGIN, lines, between=spoil).result() == b"done"
    assert site.asked == [BEGIN]


def test_a_large_answer_goes_on_after_a_restart_of_the_asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "LONG", 0.0)
    site = Site(answer=lambda question: LARGE)
    one = Exchange(
        "site", "round", OutlinedMessage(b"?"), 10.0, send=site.send, lines=PeerLines(tmp_path), most=len(LARGE)
    )
    one.begin()
    for _ in range(8):
        site.waiting.pop(0)()
    one.cancel("the coordinator is stopping")
    with pytest.raises(Unanswered, match="stopping"):
        one.answer.result()
    site.waiting.clear()
    before = len([topic for topic, _ in site.pieces if topic == PieceTopic.FETCH])
    assert site.ask(b"?", PeerLines(tmp_path)).result() == LARGE
    parts = len([topic for topic, _ in site.pieces if topic == PieceTopic.FETCH])
    whole = Site(answer=lambda question: LARGE)
    whole.ask(b"?", PeerLines()).result()
    assert parts - before < len([topic for topic, _ in whole.pieces if topic == PieceTopic.FETCH])


def test_nothing_leaves_any_more_when_the_site_has_withdrawn() -> None:
    site = Site(answer=lambda question: LARGE)
    one = Exchange("site", "round", OutlinedMessage(b"?"), 10.0, send=site.send, lines=PeerLines())
    one.begin()
    for _ in range(4):
        site.waiting.pop(0)()
    site.lasts = False
    site.answer = lambda question: b"withdrawn"
    while site.waiting:
        site.waiting.pop(0)()
    # Asked again, the site says what it says to everything from now on; nothing more of the answer has left.
    assert one.answer.result() == b"withdrawn"


def test_an_answer_that_is_too_large_is_not_fetched() -> None:
    noted: list[str] = []
    site = Site(answer=lambda question: LARGE)
    answer = site.ask(b"?", PeerLines(), most=1000, note=noted.append)
    with pytest.raises(Unanswered, match="larger than the question allows"):
        answer.result()
    assert noted == ["its answer is larger than the question allows"]
    assert PieceTopic.FETCH not in dict(site.pieces)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    fake = type("Clock", (), {"monotonic": staticmethod(lambda: now[0])})
    from wardround.deploy.transport.transfers import line as line_module

    for module in (exchange_module, line_module):
        monkeypatch.setattr(module, "time", fake)
    return now


def test_the_time_of_the_line_is_not_the_sites(clock: list[float]) -> None:
    """10 s to answer: 60 s of transfer do not count, 11 s of work do."""
    site = Site()
    one = Exchange("site", "round", OutlinedMessage(BEGIN), 10.0, send=site.send, lines=PeerLines())
    one.begin()
    while site.pieces[-1][0] != "round":
        clock[0] += 3.0
        site.waiting.pop(0)()
        one.check()
        assert not one.answer.done()
    clock[0] += 9.0
    one.check()
    assert not one.answer.done()
    clock[0] += 2.0
    one.check()
    with pytest.raises(Unanswered, match="did not answer within 10 s"):
        one.answer.result()
    assert one.answer.worked == pytest.approx(11.0)


def test_a_line_that_stands_still_is_given_up(clock: list[float]) -> None:
    site = Site()
    one = Exchange("site", "round", OutlinedMessage(BEGIN), 10.0, send=site.send, lines=PeerLines())
    one.begin()
    site.waiting.pop(0)()
    clock[0] += 46.0
    one.check()
    with pytest.raises(Unanswered, match="its line stands still: 0 of "):
        one.answer.result()


def test_a_line_that_trickles_is_given_up_in_bounded_time(clock: list[float]) -> None:
    """Shown once what it can, a site cannot hold up the others by a byte now and then: 3 times its time, and 45 s."""
    lines = PeerLines()
    lines.down.rate = 1e6
    site = Site()
    one = Exchange("site", "round", OutlinedMessage(BEGIN), 10.0, send=site.send, lines=lines)
    one.begin()
    began = clock[0]
    while not one.answer.done():
        clock[0] += 20.0
        if site.waiting:
            site.waiting.pop(0)()
        one.check()
    with pytest.raises(Unanswered, match="its line is too slow"):
        one.answer.result()
    assert clock[0] - began <= 45 + 3 * len(BEGIN) / 1e6 + 20


def test_one_who_is_cut_off_and_does_not_come_back_is_gone(clock: list[float]) -> None:
    site = Site()
    site.cut_every = 3
    one = Exchange("site", "round", OutlinedMessage(BEGIN), 10.0, send=site.send, lines=PeerLines())
    one.begin()
    while site.waiting:
        site.waiting.pop(0)()
    one.check()
    assert not one.answer.done()
    clock[0] += 21.0
    one.check()
    with pytest.raises(Unanswered, match="lost in the middle") as caught:
        one.answer.result()
    assert caught.value.gone


@pytest.mark.parametrize("told", [b"nonsense", b"[[0]]", b"[[5, 1]]", b"[[0, 99999999]]", b'[["a", "b"]]'], ids=repr)
def test_a_site_that_lies_about_what_it_lacks_is_not_asked_for_ever(told: bytes) -> None:
    site = Site()
    site.reply = lambda topic, payload, words: PieceReply("wr_missing", told)  # type: ignore[method-assign]
    started = time.monotonic()
    with pytest.raises(Unanswered):
        site.ask(BEGIN, PeerLines()).result()
    assert threading.active_count() < 100
    assert time.monotonic() - started < 10
