"""What goes wrong between hospitals, one fault after the other, each with the message that a user would need.

Faults that need a network or a process (a site killed, silent, cut off, joining twice, a full disk) are in
test_real_processes.py; those of TLS in test_tls.py.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from wardround import __version__
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import ApprovalPending, Event, RoundDone, SiteJoined
from wardround.deploy.coordinator.studies.process_state import status_after
from wardround.deploy.protocol import wire
from wardround.deploy.protocol.wire import PROTOCOL, decode, encode
from wardround.deploy.transport.contract import Unanswered
from wardround.deploy.trust.certificates import LASTS, check_issued, is_due, make_authority, make_request, new_key, sign
from wardround.engine.checkpoint import read_header

QUORUM = {"quorum": 2, "deadline": 0.3}


@pytest.fixture
def consortium(tmp_path: Path) -> Any:
    return in_process.Consortium(tmp_path)


def spoiling(what: Any) -> Any:
    """Let bo's answers to a round be spoilt on their way out."""

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != ("bo", "round"):
            return reply
        return what(reply, header)

    return change


def with_arrays(change: Any) -> Any:
    def spoil(reply: bytes, _: Any) -> bytes:
        said, message = decode(reply)
        return encode(said, Message(change(message.arrays)))

    return spoil


FAULTS = {
    "nan": (with_arrays(lambda arrays: {**arrays, "weight": np.float32(np.nan)}), "not finite"),
    "huge": (with_arrays(lambda arrays: {**arrays, "weight": np.float32(3e30)}), "as large as 3e.30"),
    "shape": (with_arrays(lambda arrays: {**arrays, "weight": np.zeros(2, np.float32)}), r"shape \(2,\)"),
    "truncated": (lambda reply, _: reply[:-3], "cannot be read"),
    "garbage": (lambda reply, _: b"\x00" * len(reply), "cannot be read"),
    "oversized": (lambda reply, _: reply[:4] + b"\xff\xff\xff\x7f" + reply[8:], "longer than the message"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_answer_is_left_out_and_the_round_goes_on_with_the_quorum(consortium: Any, fault: str) -> None:
    spoil, words = FAULTS[fault]
    consortium.change = spoiling(spoil)
    study = in_process.study_of(fault, 2, deploy=QUORUM)
    consortium.conduct(study)
    records = consortium.rounds(study)
    assert [one["sites"] for one in records] == [["freetown", "kenema"]] * 2
    for one in records:
        assert re.search(words, one["measures"]["absent"]["bo"])


@pytest.mark.parametrize("fault", ["nan", "huge", "shape"])
def test_a_bad_answer_that_nobody_may_leave_out_ends_the_study_and_says_what_to_do(consortium: Any, fault: str) -> None:
    spoil, words = FAULTS[fault]
    consortium.change = spoiling(spoil)
    with pytest.raises(Refusal, match=rf"(?s)[Bb]o: .*{words}.*round 1.*quorum"):
        consortium.conduct(in_process.study_of(fault, 2))
    # Asked once: the same question would get the same answer.
    assert [one for one in consortium.asked if one[:2] == ("bo", "round")] == [("bo", "round", 1)]


def test_a_truncated_or_foreign_request_is_refused_by_the_site(consortium: Any) -> None:
    body = encode({"protocol": 1, "wardround": __version__, "study": "demo-0", "round": 1, "nonce": "0"})
    for content in (body[:-1], b"", b"GET / HTTP/1.1\r\n\r\n", body[:4] + b"\xff\xff\xff\x7f" + body[8:]):
        told, _ = decode(consortium.handlers["bo"].answer("round", "server", content))
        assert told["status"] == "refused"
        assert "cannot be read" in told["why"]
    told, _ = decode(consortium.handlers["bo"].answer("round", "kenema", body))
    assert told["status"] == "refused"
    assert "'kenema' is not the coordinator" in told["why"].lower().replace("’", "'")


def test_a_far_protocol_is_refused_with_both_numbers_and_before_anything_is_asked(
    consortium: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "PROTOCOL", PROTOCOL + 2)  # the sites'; requests have the coordinator's
    words = rf"coordinator speaks protocol {PROTOCOL}, but this site speaks {PROTOCOL + 2} .*{__version__}.*upgrade"
    with pytest.raises(Refusal, match=words):
        consortium.conduct(in_process.study_of("versions"))
    assert {topic for _, topic, _ in consortium.asked} == {"offer"}


def test_a_column_of_another_kind_is_named_with_its_site_before_the_first_round(consortium: Any) -> None:
    table = pd.read_csv(consortium.tables["kenema"])
    table["age"] = "about " + table["age"].astype(str)
    table.to_csv(consortium.tables["kenema"], index=False)
    with pytest.raises(Refusal, match=r"(?s)'age'.*kenema"):
        consortium.conduct(in_process.study_of("kinds"))
    assert not any(topic == "round" for _, topic, _ in consortium.asked)


def test_a_site_without_rows_is_named_before_the_first_round(consortium: Any) -> None:
    pd.read_csv(consortium.tables["freetown"]).head(0).to_csv(consortium.tables["freetown"], index=False)
    with pytest.raises(Refusal, match="freetown"):
        consortium.conduct(in_process.study_of("empty"))
    assert not any(topic == "round" for _, topic, _ in consortium.asked)


def test_a_site_with_one_class_takes_part_and_is_judged_by_what_can_be_told(consortium: Any) -> None:
    table = pd.read_csv(consortium.tables["bo"])
    table["ebola"] = "confirmed"
    table.to_csv(consortium.tables["bo"], index=False)
    study = in_process.study_of("one-class")
    result = consortium.conduct(study)
    assert all(one["sites"] == ["bo", "freetown", "kenema"] for one in consortium.rounds(study))
    told = result["methods"][0]["scores"]["sites"]["bo"]
    assert told["accuracy"]["value"] is not None
    assert (told.get("roc_auc") or {}).get("value") is None  # there is nobody to rank the patients against


def test_a_late_site_is_left_out_with_the_reason_and_takes_part_again(consortium: Any) -> None:
    """As the network tells it; with a real silent site it is in test_real_processes.py."""

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic, header["round"]) == ("kenema", "round", 2):
            raise Unanswered("", "it did not answer within 0 s")
        return reply

    consortium.change = change
    study = in_process.study_of("late", algorithm=in_process.KEPT, deploy=QUORUM)
    consortium.conduct(study)
    records = consortium.rounds(study)
    assert [len(one["sites"]) for one in records] == [3, 2, 3]
    assert records[1]["measures"]["absent"] == {"kenema": "it did not answer within 0 s"}


def test_a_newcomer_joins_a_running_study(consortium: Any) -> None:
    """It was away when the others approved and agreed; it is offered the study, prepares as they did, and trains."""
    study = in_process.study_of("newcomer", 4, algorithm=in_process.KEPT, deploy=QUORUM)
    consortium.away = {"kenema"}
    heard: list[Event] = []

    def observe(event: Event) -> None:
        heard.append(event)
        if isinstance(event, RoundDone) and event.round == 2:
            consortium.away = set()

    result = consortium.conduct(study, observe)
    assert [one["sites"] for one in consortium.rounds(study)] == [
        ["bo", "freetown"],
        ["bo", "freetown"],
        ["bo", "freetown", "kenema"],
        ["bo", "freetown", "kenema"],
    ]
    assert consortium.rounds(study)[0]["measures"]["absent"] == {"kenema": "it was not connected"}
    assert [event.site for event in heard if isinstance(event, SiteJoined)] == ["kenema"]
    assert {one["name"]: one["train"] > 0 for one in result["sites"]} == dict.fromkeys(consortium.names, True)
    assert [topic for site, topic, _ in consortium.asked if site == "kenema"][:5] == [
        "offer",
        "settle",
        "prepare",
        "begin",
        "round",
    ]


def test_a_study_that_was_begun_goes_on_without_a_site_that_stays_away(
    consortium: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is started again while one site is gone: with a quorum it must not wait for that site."""
    study = in_process.study_of("without", deploy=QUORUM)
    with monkeypatch.context() as armed:
        in_process.die_at(armed, "coordinator.round.recorded", 2)
        with pytest.raises(in_process.Died):
            consortium.conduct(study)
    consortium.away = {"bo"}
    consortium.conduct(study)
    records = consortium.rounds(study)
    # Round 2 was recorded with all three but never saved; done again without bo, it is recorded as it really was.
    assert [one["round"] for one in records] == [1, 2, 3]
    assert [len(one["sites"]) for one in records] == [3, 2, 2]


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(
    consortium: Any, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = in_process.study_of("whole", algorithm=in_process.KEPT)
    consortium.conduct(reference)
    study = in_process.study_of(f"damaged-{harm}", algorithm=in_process.KEPT)
    with monkeypatch.context() as armed:
        in_process.die_at(armed, "coordinator.round.before_asking", 3)
        with pytest.raises(in_process.Died):
            consortium.conduct(study)
    (path,) = (consortium.run(study) / "checkpoints").glob("*.safetensors")
    assert read_header(path)["round"] == 2
    content = bytearray(path.read_bytes())
    if harm == "flipped":
        content[-1] ^= 1
    path.unlink()  # a second name of the same bytes must not be harmed with it
    path.write_bytes({"cut": content[:-5], "flipped": content, "empty": b""}[harm])
    assert read_header(path)["round"] == 1
    consortium.conduct(study)
    assert consortium.model(study) == consortium.model(reference)
    assert [one["round"] for one in consortium.rounds(study)] == [1, 2, 3]
    rounds = [one["round"] for one in consortium.left("bo", study) if one["topic"] == "round"]
    assert rounds == [1, 2, 3]  # round 2 was asked for twice, and left once


@pytest.mark.parametrize("times", [1, 5])
def test_a_full_disk_at_a_site_is_told_and_waited_for(
    consortium: Any, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = in_process.study_of("roomy", algorithm=in_process.KEPT)
    consortium.conduct(reference)
    study = in_process.study_of("full", algorithm=in_process.KEPT)
    reasons: list[str] = []

    def observe(event: Event) -> None:
        reasons.extend(why for site, why in getattr(event, "missing", {}).items() if site == "bo")
        if isinstance(event, RoundDone) and event.round == 1:
            in_process.full_disk(monkeypatch, consortium.homes["bo"].path, times)

    consortium.conduct(study, observe)
    assert any("No space left on device" in why for why in reasons)
    assert consortium.model(study) == consortium.model(reference)
    hashes = [one["sha256"] for one in consortium.left("bo", study)]
    assert len(hashes) == len(set(hashes)) == len(consortium.left("bo", reference))


def test_a_full_disk_at_the_coordinator_loses_nothing(consortium: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = in_process.study_of("roomy", algorithm=in_process.KEPT)
    consortium.conduct(reference)
    study = in_process.study_of("full", algorithm=in_process.KEPT)

    def observe(event: Event) -> None:
        if isinstance(event, RoundDone) and event.round == 2:
            in_process.full_disk(monkeypatch, consortium.run(study), 1)

    with pytest.raises(OSError, match="No space"):  # the coordinator's process waits and tries again, see below
        consortium.conduct(study, observe)
    consortium.conduct(study)
    assert consortium.model(study) == consortium.model(reference)
    assert [one["round"] for one in consortium.rounds(study)] == [1, 2, 3]


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_is_a_day_off_does_no_harm(tmp_path: Path, hours: int) -> None:
    """Whoever signs may be a day ahead or behind: the certificate counts at once, and for at least 80 days."""
    wrong = datetime.now(UTC) + timedelta(hours=hours)
    authority = make_authority(tmp_path, "demo", now=wrong)
    certificate = sign(tmp_path, make_request(new_key(tmp_path / "key.pem"), "bo"), now=wrong)
    assert check_issued(certificate, authority, where="bo").name == "bo"
    assert not is_due(certificate)
    assert certificate.not_valid_before_utc <= datetime.now(UTC) - timedelta(hours=23)
    assert certificate.not_valid_after_utc >= datetime.now(UTC) + LASTS - timedelta(days=2)


def test_rounds_without_progress_are_told_to_whoever_looks(consortium: Any) -> None:
    """A site that waits for its administrator is named with its own words, and is not asked in a hurry."""
    study = in_process.study_of("slow", deploy={"deadline": 0.1})
    asked = in_process.Consortium.ask
    offers: list[float] = []
    heard: list[Event] = []

    def ask(site: str, topic: str, body: bytes, within: float) -> bytes:
        if site == "bo" and topic == "offer" and len(offers) < 3:
            offers.append(within)
            return consortium.handlers[site].answer(topic, "server", body)  # nobody approves yet
        return asked(consortium, site, topic, body, within)

    consortium.ask = ask
    consortium.conduct(study, heard.append)
    waits = [event for event in heard if isinstance(event, ApprovalPending)]
    assert [event.sites for event in waits] == [("bo",)] * 3
    assert json.loads(json.dumps([status_after(event) for event in waits]))  # it goes into status.json
