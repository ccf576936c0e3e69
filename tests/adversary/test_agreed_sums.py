"""Masked answers are to one question: a coordinator that prepares the rows of the others away gets no sum of one site.

It tells all sites but one a preparation in which every column is constant. A sum, or a choice of two servers, would
then hold nothing but that one site's answer. Every site binds its masks to what it was told itself.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary.actors import Enough
from tests.support.adversary.sums import SumAttacker
from tests.support.second_server import FIVE, PairedConsortium
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol import agreed_words
from wardround.deploy.protocol.agreed_words import agreed_in
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.release import two_server_round
from wardround.privacy.secure_sum.session import model_hash

FOUR = ("bo", "freetown", "kenema", "makeni")
VICTIM = "kenema"
SUM = [{"name": "secure_sum"}]


def constant(text: str) -> str:
    """The preparation in which every patient is nothing but zeros; a site accepts it, since it drops no patient."""
    words = json.loads(text)
    for column in words["columns"]:
        if column["kind"] == "number":
            column["scale"] = 0.0
        else:
            column["categories"] = [f"nobody {number}" for number in range(len(column["categories"]))]
            column["fill"] = None
    return json.dumps(words)


def tell_others(consortium: Any, topic: str) -> list[tuple[dict[str, Any], Message]]:
    """All but the victim are told the constant preparation; `topic` is heard, and ends the honest part."""
    heard: list[tuple[dict[str, Any], Message]] = []
    ask = consortium.ask

    def asking(site: str, about: str, body: bytes, within: float) -> bytes:
        header, message = decode(body)
        if about == "prepare" and site != VICTIM:
            body = encode({**header, "preparation": constant(header["preparation"])}, message)
        if about == topic and (topic != "secure" or header["step"] == "mask"):
            heard.append((header, message))
            raise Enough
        reply: bytes = ask(site, about, body, within)
        return reply

    consortium.ask = asking
    return heard


@pytest.fixture(scope="module")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> SumAttacker:
    """A coordinator that has prepared the others' rows away, and now leads sums by itself."""
    consortium: Any = in_process.Consortium(tmp_path_factory.mktemp("prepared"), FOUR)
    ask = consortium.ask
    heard = tell_others(consortium, "secure")
    study = in_process.study_of("prepared", 4, transforms=SUM, deploy={"quorum": 3, "deadline": 0.3})
    with pytest.raises(Enough):
        consortium.conduct(study)
    consortium.ask = ask
    return SumAttacker(consortium, *heard[0])


def test_a_sum_among_sites_of_two_preparations_is_not_opened(attacker: SumAttacker) -> None:
    own = {site: agreed_in(attacker.consortium.homes[site].folder(attacker.header["study"])) for site in FOUR}
    assert len(set(own.values())) == 2
    for number, asked in ((1, VICTIM), (2, "bo")):
        session = attacker.session(number, attacker.sent, model=model_hash(attacker.sent, own[asked]))
        attempt = attacker.attempt(session, attacker.sent)
        # The victim is alone with its preparation; the three others may add up theirs, in which nothing is told.
        assert (attempt.total is None) == (asked == VICTIM)
        assert attempt.server.survivors == {site for site in FOUR if own[site] == own[asked]}
        strangers = {site for site in FOUR if own[site] != own[asked]}
        assert {site: step for site, (step, _) in attempt.refused.items()} == dict.fromkeys(strangers, "mask")
        assert all("the preparation of this site is not the one" in why for _, why in attempt.refused.values())


def test_each_told_of_its_own_preparation_they_are_in_two_sessions(attacker: SumAttacker) -> None:
    """The hash is in the session, so the keys that the others signed are not taken by the victim."""
    folders = {site: attacker.consortium.homes[site].folder(attacker.header["study"]) for site in FOUR}
    sent = Message({"params": {name: one + np.float32(0.01) for name, one in attacker.sent.arrays["params"].items()}})
    models = {site: model_hash(sent, agreed_in(folders[site])) for site in (VICTIM, "bo")}
    session = attacker.session(3, sent, model=models[VICTIM])
    other = attacker.session(3, sent, model=models["bo"], nonce=session.nonce)
    adverts = {}
    for site in FOUR:
        said, _ = attacker.ask(site, "advertise", session if site == VICTIM else other, None, sent)
        letter = said["letter"]
        adverts[site] = {**letter["content"], "signature": letter["signature"]}
    letter = {"step": "share", "session": session.hex, "sender": "coordinator", "signature": ""}
    said, _ = attacker.ask(VICTIM, "share", session, {**letter, "content": {"adverts": adverts}}, sent)
    assert said["status"] == "refused"
    assert "are not signed by" in said["why"]


def test_unbound_the_sum_would_be_the_victims_answer(attacker: SumAttacker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with masks that are bound to the model alone, the same attack reads the victim's update."""
    answers: dict[bool, list[np.ndarray[Any, Any]]] = {True: [], False: []}
    monkeypatch.setattr(in_process.site_sum, "agreed_in", lambda folder: "")
    masking = in_process.site_sum.mask

    def watching(state: Any, request: Any, vector: Any) -> Any:
        answers[state.name == VICTIM].append(np.asarray(vector).view(np.int64))
        return masking(state, request, vector)

    monkeypatch.setattr(in_process.site_sum, "mask", watching)
    opened = attacker.attempt(attacker.session(4, attacker.sent, model=model_hash(attacker.sent, "")), attacker.sent)
    assert opened.total is not None
    (victim,) = answers[True]
    # Bias and number of patients are in all answers; what is learned about a column, in the victim's alone.
    same = opened.total.view(np.int64) == victim
    assert same.sum() >= len(victim) - 3
    assert np.count_nonzero(victim[same]) > 20
    assert all(not one[same].any() for one in answers[False])


def test_two_servers_choose_among_answers_to_one_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consortium = PairedConsortium(tmp_path)
    ask = consortium.ask
    heard = tell_others(consortium, "halves")
    study = consortium.study("halves", 2)
    with pytest.raises(Enough):
        consortium.conduct(study)
    consortium.ask = ask  # type: ignore[method-assign]
    header, message = heard[0]
    folders = {site: consortium.homes[site].folder(header["study"]) for site in FIVE}

    def shares(site: str, agreed: str, nonce: str, number: int = 1) -> dict[str, Any]:
        meeting = {**header["meeting"], "nonce": nonce, "model": model_hash(message, agreed)}
        told, _ = decode(
            consortium.handlers[site].answer(
                "halves", "server", encode({**header, "round": number, "meeting": meeting}, message)
            )
        )
        return told

    for whose, nonce in ((VICTIM, "1" * 32), ("bo", "2" * 32)):
        told = {site: shares(site, agreed_in(folders[whose]), nonce) for site in FIVE}
        refused = {site for site, one in told.items() if one["status"] == "refused"}
        assert refused == (set(FIVE) - {VICTIM} if whose == VICTIM else {VICTIM})
        assert all("not the one that was announced" in told[site]["why"] for site in refused)
    # The honest coordinator's round ends by name, and the second server is never asked.
    with pytest.raises(Refusal, match=r"sites refuse this round.*bo: .*not the one that was announced"):
        consortium.conduct(study)
    assert not [one for one in consortium.asked if one[1] == "open"]
    # The control: unbound, all five answer the same request.
    monkeypatch.setattr(two_server_round, "agreed_in", lambda folder: "")
    assert {shares(site, "", "3" * 32, 2)["status"] for site in FIVE} == {"ok"}


def test_the_agreement_is_columns_outcomes_preparation_and_the_order_of_sites() -> None:
    settled = {"schema": {"kinds": {"age": "number"}}, "seed": 1}
    prepared = {"preparation": "{}", "positive": 1, "numbers": ["a", "b"], "nonce": "x"}
    same = agreed_words.agreed_hash(settled, prepared)
    assert agreed_words.agreed_hash({**settled, "nonce": "y"}, {**prepared, "nonce": "z"}) == same
    for other in (
        ({**settled, "schema": {"kinds": {"age": "text"}}}, prepared),
        (settled, {**prepared, "preparation": "{ }"}),
        (settled, {**prepared, "positive": 0}),
        (settled, {**prepared, "numbers": ["b", "a"]}),
    ):
        assert agreed_words.agreed_hash(*other) != same
