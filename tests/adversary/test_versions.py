"""Neighbouring releases talk to each other: what is compared is the protocol's number, never the package's version."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import in_process
from wardround import __version__
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.party import own_questions
from wardround.deploy.protocol import requests, wire
from wardround.deploy.protocol.replies import read_reply, reply_to
from wardround.deploy.protocol.requests import OfferStudy, request_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import PROTOCOL, decode, encode, is_spoken


@pytest.fixture
def consortium(tmp_path: Path) -> Any:
    return in_process.Consortium(tmp_path)


def greeting(consortium: Any, **words: Any) -> Any:
    return read_reply(consortium.handlers["bo"].answer("hello", "server", encode(words)))


@pytest.mark.parametrize("number", [PROTOCOL - 1, PROTOCOL, PROTOCOL + 1])
def test_a_neighbouring_protocol_is_understood(consortium: Any, number: int) -> None:
    told = greeting(consortium, protocol=number, wardround="7.7.7")
    assert told.status is Status.OK
    assert (told.header["wardround"], told.header["protocol"]) == (__version__, PROTOCOL)


@pytest.mark.parametrize(
    "number", [PROTOCOL - 2, PROTOCOL + 2, -PROTOCOL, 10**30, None, True, 2.0, "2", [2], {"2": 2}], ids=repr
)
def test_a_far_protocol_or_none_is_refused_in_one_paragraph(consortium: Any, number: Any) -> None:
    told = greeting(consortium, protocol=number, wardround="7.7.7\x1b[31m\n" + "x" * 10_000)
    assert told.status is Status.REFUSED
    assert f"this site speaks {PROTOCOL} (wardround {__version__})" in told.why
    assert "Fix: upgrade the older one" in told.why
    assert "7.7.7" in told.why
    assert "\n" not in told.why
    assert len(told.why) < 400
    assert not is_spoken(number)


def test_a_study_is_trained_with_a_site_of_another_version(
    consortium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as among equals; and a site that is one protocol ahead takes part too."""
    study = in_process.study_of("versions", 2)
    consortium.conduct(study)
    other = in_process.Consortium(tmp_path / "other")
    monkeypatch.setattr(own_questions, "__version__", "9.9.9")
    monkeypatch.setattr(wire, "PROTOCOL", PROTOCOL + 1)  # the sites'; requests keep the coordinator's
    other.conduct(study)
    assert other.model(study) == consortium.model(study)


def test_a_coordinator_that_is_upgraded_in_the_middle_of_a_round_asks_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A site answers a round once: a request that told the version would be another one after an upgrade."""
    question = OfferStudy({"study": {}}, "researcher", None)
    before = request_of(question, study="s", number=1)
    monkeypatch.setattr(requests, "__version__", "0.1.1")
    assert request_of(question, study="s", number=1) == before


def test_versions_are_learned_and_a_site_too_far_ahead_is_named_until_it_is_not(consortium: Any) -> None:
    warnings: dict[str, str] = {}
    one = Maintenance(consortium.home, consortium.transport, warnings.__setitem__)
    answer = consortium.transport.sites["bo"]
    one.maintain("bo")
    assert (one.versions, warnings) == ({"bo": __version__}, {"bo": ""})

    def ahead(topic: str, origin: str, body: bytes) -> bytes:
        if topic != "hello":
            return answer(topic, origin, body)
        words = {"status": Status.OK, "wardround": "12.0\x1b]52;c;aGk=\x07", "protocol": PROTOCOL + 5}
        return reply_to(decode(body)[0], "bo", words)

    consortium.transport.sites["bo"] = ahead
    one.maintain("bo")
    assert f"speaks protocol {PROTOCOL + 5} (wardround 12.0]52;c;aGk=)" in warnings["bo"]
    assert "site bo" in warnings["bo"]
    consortium.transport.sites["bo"] = answer
    one.maintain("bo")
    assert warnings["bo"] == ""


def test_a_site_that_goes_away_while_it_is_greeted_leaves_no_warning_behind(consortium: Any) -> None:
    warnings: list[tuple[str, str]] = []
    one = Maintenance(consortium.home, consortium.transport, lambda *told: warnings.append(told))
    answer = consortium.transport.sites.pop("bo")
    one.maintain("bo")
    assert warnings == []
    consortium.transport.sites["bo"] = answer
    one.maintain("bo")
    assert warnings == [("bo", "")]


@pytest.mark.parametrize(
    "header", [{}, {"status": "ok"}, {"status": "ok", "wardround": ["x"], "protocol": "2"}, {"status": 3}], ids=repr
)
def test_a_greeting_that_makes_no_sense_is_a_warning_and_nothing_else(consortium: Any, header: Any) -> None:
    warnings: dict[str, str] = {}
    one = Maintenance(consortium.home, consortium.transport, warnings.__setitem__)
    consortium.transport.sites["bo"] = lambda topic, origin, body: encode(header)
    one.maintain("bo")
    assert warnings["bo"]
    one.maintain("kenema")
    assert warnings["kenema"] == ""
