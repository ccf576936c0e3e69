"""Replies are bound to their request, and what is no reply of ours is told as such."""

import numpy as np
import pytest

from wardround.core.contracts import Message
from wardround.core.errors import Diverged, Refusal
from wardround.deploy.protocol.compression import pack
from wardround.deploy.protocol.replies import (
    Absence,
    answer_problem,
    is_reply_to,
    read_reply,
    refusal_to,
    reply_to,
    too_few_usable,
)
from wardround.deploy.protocol.requests import SettleSchema, request_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed, decode, encode

REQUEST = request_of(SettleSchema({"kinds": {}}, 7), study="s-1", number=3)


def replied(**words):
    header, _ = decode(REQUEST.body)
    return reply_to({**header, **words.pop("header", {})}, words.pop("site", "bo"), {"status": Status.OK, **words})


def test_a_reply_belongs_to_the_request_whose_study_round_and_nonce_it_repeats():
    assert is_reply_to(read_reply(replied()), REQUEST, "bo")
    for other in ({"study": "s-2"}, {"round": 4}, {"nonce": "00"}):
        assert not is_reply_to(read_reply(replied(header=other)), REQUEST, "bo")
    assert not is_reply_to(read_reply(replied(site="kenema")), REQUEST, "bo")


def test_a_refusal_of_what_could_not_be_read_is_believed():
    reply = read_reply(refusal_to(b"nonsense", "bo", "no"))
    assert (reply.status, reply.why) == (Status.REFUSED, "no")
    assert is_reply_to(reply, REQUEST, "bo")
    assert is_reply_to(read_reply(refusal_to(REQUEST.body, "bo", "no")), REQUEST, "bo")


@pytest.mark.parametrize("status", ["fine", None, 3])
def test_a_status_that_nobody_knows_is_malformed(status):
    with pytest.raises(Malformed, match="not a reply status"):
        read_reply(encode({"status": status}))


def test_the_same_question_has_the_same_nonce_and_no_other_has():
    again = request_of(SettleSchema({"kinds": {}}, 7), study="s-1", number=3)
    assert again == REQUEST
    others = [
        request_of(SettleSchema({"kinds": {}}, 8), study="s-1", number=3),
        request_of(SettleSchema({"kinds": {}}, 7), study="s-1", number=4),
        request_of(SettleSchema({"kinds": {}}, 7), study="s-1", number=3, course=1),
        request_of(SettleSchema({"kinds": {}}, 7), Message({"a": np.zeros(1)}), study="s-1", number=3),
    ]
    assert len({REQUEST.nonce, *(one.nonce for one in others)}) == 5


def test_the_words_of_a_status_are_those_on_the_wire():
    known = ["ok", "waiting", "denied", "withdrawn", "refused", "spent", "closed", "diverged"]
    assert [str(one) for one in Status] == known
    assert [one for one in Status if one.is_answer] == [Status.OK, Status.DIVERGED]
    assert [one for one in Status if one.is_departure] == [Status.DENIED, Status.WITHDRAWN]
    assert str(Absence("no budget", Status.SPENT)) == "spent: no budget"
    assert str(Absence("it was not connected")) == "it was not connected"


def test_answers_that_cannot_be_used_end_a_round_in_the_words_of_the_first_kind_of_trouble():
    shapes = Message({"weight": np.float32(0)})
    wrong = answer_problem(read_reply(replied(status=Status.DIVERGED)), shapes)
    diverged = Absence(str(wrong), Status.DIVERGED, unusable=True)
    empty = Absence(str(answer_problem(read_reply(replied()), shapes)), unusable=True)
    assert isinstance(too_few_usable({"bo": diverged}, 2), Diverged)
    mixed = too_few_usable({"bo": diverged, "kenema": empty}, 2)
    assert not isinstance(mixed, Diverged)
    assert isinstance(mixed, Refusal)
    assert "does not have the algorithm's arrays" in str(mixed)


def test_routing_words_that_the_algorithm_does_not_use_make_an_answer_unusable():
    """They are part of a program's type, so two answers that differ in them could not even be added."""
    shapes, header = Message({"weight": np.zeros((), np.float32)}), decode(REQUEST.body)[0]
    given = Message({"weight": np.ones((), np.float32)}, (("phase", "other"),))
    assert answer_problem(read_reply(reply_to(header, "bo", {"status": "ok"}, Message(given.arrays))), shapes) is None
    wrong = answer_problem(read_reply(reply_to(header, "bo", {"status": "ok"}, given)), shapes)
    assert "does not have the algorithm's arrays" in str(wrong)


def test_a_reply_is_unpacked_into_no_more_than_its_question_allows():
    filler = " ".join(str(one) for one in range(10_000))
    content = replied(filler=filler)
    travels = pack(content)
    assert len(travels) < len(content) / 2
    assert read_reply(travels, most=len(content)).header["filler"] == filler
    for one in (travels, content):
        with pytest.raises(Malformed, match="allowed"):
            read_reply(one, most=len(content) - 1)
