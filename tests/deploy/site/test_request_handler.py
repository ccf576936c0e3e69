"""A request's way through a site: short, and nothing on it is done twice."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import wardround
from tests.support import in_process
from wardround.core.contracts import Message
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.study_worker import StudyWorker

MOST_MODULES = 23
"""Four of them are the gate, what it knows of the log, the request's name, and the check of the model that came."""
PACKAGE = str(Path(wardround.__file__).parent)
SUM = [{"name": "secure_sum"}]


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("consortium"))


@pytest.mark.parametrize("tables", [{}, {"transforms": SUM}], ids=["round", "secure"])
def test_a_site_looks_its_method_up_once_a_request(
    consortium: Any, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: Counter[str] = Counter()
    found: dict[str, set[int]] = {}
    look, ask = StudyWorker._method, consortium.ask

    def counted(self: StudyWorker, header: Any) -> Any:
        looked[self.site] += 1
        return look(self, header)

    def asked(site: str, topic: str, body: bytes, within: float) -> bytes:
        before = looked[site]
        reply: bytes = ask(site, topic, body, within)
        found.setdefault(topic, set()).add(looked[site] - before)
        return reply

    monkeypatch.setattr(StudyWorker, "_method", counted)
    monkeypatch.setattr(consortium, "ask", asked)
    consortium.conduct(in_process.study_of("once-" + "-".join(tables), 2, **tables))
    rounds = "secure" if tables else "round"
    assert {topic for topic, times in found.items() if times != {0}} == {rounds, "judge", "figures", "finish"}
    assert set.union(*found.values()) == {0, 1}


def test_an_answer_passes_few_modules(consortium: Any) -> None:
    """Counted by hand: a round's answer, once all is compiled; it was 20 before everything had to pass the gate."""
    passed: set[str] = set()
    ask = consortium.ask

    def hear(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            passed.add(frame.f_code.co_filename.removeprefix(PACKAGE))

    def watched(site: str, topic: str, body: bytes, within: float) -> bytes:
        if (site, topic, decode(body)[0]["round"]) != ("bo", "round", 3):
            return bytes(ask(site, topic, body, within))
        sys.setprofile(hear)
        try:
            return bytes(consortium.handlers[site].answer(topic, "server", body))
        finally:
            sys.setprofile(None)

    consortium.ask = watched
    try:
        consortium.conduct(in_process.study_of("short", 3))
    finally:
        consortium.ask = ask
    assert "/deploy/site/study_worker.py" in passed
    assert len(passed) <= MOST_MODULES, "\n".join(sorted(passed))


@pytest.mark.parametrize(
    ("topic", "origin", "body", "status", "why"),
    [
        ("hello", "server", request_of_site({}), Status.OK, ""),
        ("hello", "bo", request_of_site({}), Status.REFUSED, "not the coordinator"),
        ("round", "server", b"nonsense", Status.REFUSED, "cannot be read"),
        ("round", "server", request_of_site({}), Status.REFUSED, "names no study"),
        ("round", "server", encode({"protocol": 0}, Message({})), Status.REFUSED, "speaks protocol 0"),
        (
            "round",
            "server",
            request_of_site({"study": "x-0123456789abcdef0123456789abcdef"}),
            Status.WAITING,
            "does not know this study",
        ),
        ("round", "server", request_of_site({"study": "../../x"}), Status.REFUSED, "names no study"),
    ],
)
def test_what_a_site_says_to_those_it_does_not_answer(
    consortium: Any, topic: str, origin: str, body: bytes, status: Status, why: str
) -> None:
    reply = read_reply(consortium.handlers["bo"].answer(topic, origin, body))
    assert reply.status is status
    assert why in reply.why
    assert reply.header["site"] == "bo"
