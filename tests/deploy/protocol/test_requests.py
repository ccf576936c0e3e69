"""Requests survive the wire as they were asked, and a word of the wrong type is named before anything is done."""

from typing import Any

import pytest

from wardround.core.contracts import Message
from wardround.deploy.protocol.requests import (
    QUESTIONS,
    AboutModel,
    AgreeColumns,
    AskAnalysis,
    AskQuery,
    BeginTraining,
    OfferStudy,
    OpenSum,
    PrepareRows,
    RequestBody,
    SecureStep,
    SettleSchema,
    ShareHalves,
    Topic,
    TrainRound,
    read_request,
    request_of,
)
from wardround.deploy.protocol.wire import Malformed, decode

METHOD = TrainRound({"kind": "algorithm", "name": "fed_avg"}, [{"kind": "transform", "name": "clip"}], 7)
ASKED: list[RequestBody] = [
    OfferStudy({"study": {"name": "triage"}}, "researcher", 120),
    OfferStudy({}, "researcher"),
    AskQuery({"kind": "query", "name": "moments"}, "training"),
    SettleSchema({"kinds": {"age": "number"}}, 7),
    PrepareRows("{}", 1, ["bo", "freetown"]),
    BeginTraining({"kind": "algorithm", "name": "fed_avg"}),
    METHOD,
    SecureStep(METHOD, "advertise", {"model": "ab"}, None, {"bo": "PEM"}),
    SecureStep(METHOD, "mask", {"model": "ab"}, {"step": "mask"}),
    ShareHalves(METHOD, {"nonce": "ab"}, "00", "PEM"),
    OpenSum({"nonce": "ab"}, ["bo"], {"bo": {"weight": 1.0}}, {"bo": "PEM"}, "00", 3),
    AboutModel(METHOD, Topic.JUDGE, "validation"),
    AboutModel(METHOD, Topic.FIGURES, "test"),
    AboutModel(METHOD, Topic.FINISH, "test"),
    AgreeColumns({"age": "number", "sex": "category"}, {"sex": ["f", "m"]}, ["bo", "freetown"]),
    AskAnalysis({"kind": "analysis", "name": "glm"}),
]


@pytest.mark.parametrize("question", ASKED, ids=lambda one: f"{type(one).__name__} {one.topic}")
def test_what_was_asked_is_what_is_read(question: RequestBody) -> None:
    sent = request_of(question, Message({}), study="triage-01", number=4, course=2)
    got = read_request(question.topic, decode(sent.body)[0], "hash")
    assert got.question == question
    assert (got.study, got.round, got.course, got.digest) == ("triage-01", 4, 2, "hash")


def test_every_topic_is_tried() -> None:
    assert {one.topic for one in ASKED} == set(Topic) == set(QUESTIONS)


@pytest.mark.parametrize(
    ("topic", "change", "word"),
    [
        (Topic.ROUND, {"seed": "7"}, "seed"),
        (Topic.ROUND, {"seed": True}, "seed"),
        (Topic.ROUND, {"algorithm": ["fed_avg"]}, "algorithm"),
        (Topic.ROUND, {"transforms": {"name": "clip"}}, "transforms"),
        (Topic.ROUND, {"round": 1.5}, "round"),
        (Topic.ROUND, {"course": "1"}, "course"),
        (Topic.SECURE, {"step": None}, "step"),
        (Topic.SECURE, {"certificates": {"bo": 1}}, "certificates.bo"),
        (Topic.HALVES, {"row": 1}, "row"),
        (Topic.OPEN, {"parcels": {"bo": 1}}, "parcels.bo"),
        (Topic.OPEN, {"quorum": "3"}, "quorum"),
        (Topic.JUDGE, {"part": ["test"]}, "part"),
        (Topic.PREPARE, {"numbers": [1]}, "numbers.0"),
    ],
)
def test_a_word_of_another_type_is_named(topic: Topic, change: dict[str, Any], word: str) -> None:
    question = next(one for one in ASKED if one.topic is topic)
    header = decode(request_of(question, study="s", number=1).body)[0]
    read_request(topic, header)
    with pytest.raises(Malformed, match=f"'{word}'"):
        read_request(topic, {**header, **change})


def test_a_missing_word_is_named() -> None:
    header = decode(request_of(METHOD, study="s", number=1).body)[0]
    with pytest.raises(Malformed, match="'seed' is missing"):
        read_request(Topic.ROUND, {key: value for key, value in header.items() if key != "seed"})
