"""Sites that take their time: they stretch no deadline beyond what the study bounds, and keep no other site waiting."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import Consortium
from wardround.deploy.coordinator.gather import Gatherer, WaitPolicy
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.protocol.replies import reply_to
from wardround.deploy.protocol.requests import OfferStudy
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import decode
from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.transport.transfers import mail

FLOOR = 60.0


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return Consortium(tmp_path_factory.mktemp("slow"))


def deadlines_of(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch, answer: Callable[[bytes], bytes], rounds: int = 6
) -> list[float]:
    """The deadline after each of some rounds in which a site answers at the very last moment."""
    moment = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return moment

    def ask(site: str, topic: str, body: bytes, within: float) -> bytes:
        nonlocal moment
        moment += within
        return answer(body)

    monkeypatch.setattr(mail, "time", Clock)
    monkeypatch.setattr(consortium, "ask", ask)
    gatherer = Gatherer("slow", consortium, WaitPolicy(1, floor=FLOOR))
    found = []
    for _ in range(rounds):
        gatherer.ask_once(["bo"], OfferStudy({}, "", None))
        found.append(gatherer.policy.deadline)
    return found


def ok(body: bytes) -> bytes:
    return reply_to(decode(body)[0], "bo", {"status": Status.OK, "why": ""})


def replayed(body: bytes) -> bytes:
    return reply_to({**decode(body)[0], "nonce": "00" * 16}, "bo", {"status": Status.OK, "why": ""})


def waiting(body: bytes) -> bytes:
    return reply_to(decode(body)[0], "bo", {"status": Status.WAITING, "why": "not yet"})


def test_answers_at_the_last_moment_stretch_the_deadline_tenfold_at_most(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 60 s taken give 5 x 60 = 300 s; 300 s would give 1,500 s, and ten times the study's 60 s are the most.
    assert deadlines_of(consortium, monkeypatch, ok) == [300.0, *[10 * FLOOR] * 5]


@pytest.mark.parametrize("answer", [replayed, waiting, lambda body: b"nonsense"], ids=["replay", "waiting", "nonsense"])
def test_what_is_no_answer_stretches_nothing(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch, answer: Callable[[bytes], bytes]
) -> None:
    assert deadlines_of(consortium, monkeypatch, answer) == [FLOOR] * 6


# ---- maintenance ----


class Silence:
    """A consortium with a site that takes a request and says nothing until it is let go."""

    def __init__(self, consortium: Consortium, silent: str) -> None:
        self.consortium, self.silent = consortium, silent
        self.let_go = threading.Event()
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consortium, name)

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        if site != self.silent:
            return self.consortium.transport.ask(site, topic, body, within)
        self.asked.append(topic)
        self.let_go.wait(10)
        raise Unanswered(site, "it did not answer within 20 s")


def until(is_so: Callable[[], bool], within: float = 5.0) -> bool:
    end = time.monotonic() + within
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    return is_so()


def test_a_silent_site_is_visited_once_at_a_time_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path, ("bo", "kenema"))
    transport = Silence(consortium, "bo")
    told: dict[str, str] = {}
    carer = Maintenance(consortium.home, transport, told.__setitem__)
    before = threading.active_count()
    for _ in range(30):  # it connects and goes away again and again
        carer.maintain_soon("bo")
    assert until(lambda: transport.asked == ["hello"] and threading.active_count() <= before + 1)
    carer.maintain("kenema")
    assert told == {"kenema": ""}
    # All thirty together are one more visit.
    transport.let_go.set()
    assert until(lambda: threading.active_count() <= before)
    assert transport.asked == ["hello", "hello"]
    assert "did not answer" in told["bo"]
