"""Two servers against parties that lie: a first server, a second server, and sites."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.in_process import die_at
from tests.support.second_server import BAD, FIVE, SECOND, PairedConsortium, Tapped
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import membership_of, renew_site
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.coordinator.two_servers.second_server import with_second
from wardround.deploy.party.decisions import decision_path, withdraw
from wardround.deploy.protocol import halves
from wardround.deploy.protocol.agreed_words import agreed_in
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.second.approvals import approve_as_second, reasons_against
from wardround.deploy.second.home import SecondHome
from wardround.deploy.second.request_handler import COORDINATOR, SecondHandler
from wardround.deploy.trust.certificates import certificate_summary, make_request, new_key, pem, sign
from wardround.deploy.trust.countersignatures import read_statement
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.pins import read_partners
from wardround.deploy.trust.rotations import SigningRequest
from wardround.privacy.secure_sum.session import model_hash


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tapped, Any]:
    """A study of one round that went well, and all that was said in it."""
    consortium = Tapped(tmp_path_factory.mktemp("pair"))
    study = consortium.study("tapped", 1)
    consortium.conduct(study)
    consortium.first_model = consortium.model(study)
    return consortium, study


def reopened(done: tuple[Tapped, Any], tmp_path: Path) -> tuple[Tapped, dict[str, Any], Message, Path]:
    """The honest request, and the second server as it was before it answered."""
    consortium, study = done
    header, message = decode(consortium.passed("open")[0][0])
    folder = consortium.second.folder(study_id(study))
    for name in ("closed", "attempts"):
        if (folder / name).exists():
            os.rename(folder / name, tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}")
    return consortium, header, message, folder


# ---- what the first server sees ----


def test_the_first_server_sees_no_seed_and_no_update(done) -> None:
    consortium, study = done
    said = b"".join(body + reply for _, _, _, body, reply in consortium.traffic)
    disk = b"".join(path.read_bytes() for path in consortium.home.path.rglob("*") if path.is_file())
    kept = [json.loads(path.read_bytes()) for name in FIVE for path in seeds_of(consortium, study, name)]
    assert len(kept) == len(FIVE)
    for one in kept:
        for text in (one["seed"].encode(), bytes.fromhex(one["seed"])):
            assert text not in said + disk
    # The masked halves are noise: bytes of all values, about equally often (chi-squared, 255 degrees of freedom).
    masked = np.concatenate([read_reply(reply).message.arrays["masked"] for _, reply in consortium.passed("halves")])
    counts = np.bincount(masked.view(np.uint8), minlength=256)
    assert np.sum((counts - counts.mean()) ** 2 / counts.mean()) < 400
    # No site is asked for a readable answer, and none would give one.
    assert not [topic for _, topic, *_ in consortium.traffic if topic == "round"]


def seeds_of(consortium: Tapped, study: Any, name: str) -> list[Path]:
    return sorted((consortium.homes[name].folder(study_id(study)) / "halves" / "00000001").glob("*.json"))


def test_a_site_gives_no_readable_answer(done) -> None:
    consortium, _ = done
    body, _ = consortium.passed("halves")[0]
    header, message = decode(body)
    for word in ("meeting", "row", "second"):
        del header[word]
    said = read_reply(consortium.handlers["bo"].answer("round", "server", encode(header, message)))
    assert (said.status, "a single one was requested" in said.why) == (Status.REFUSED, True)


def test_a_site_shares_its_answer_to_one_model_a_round_and_among_enough_sites(done) -> None:
    consortium, _ = done
    body, honest = consortium.passed("halves")[0]
    site = read_reply(honest).header["site"]

    def told(change: Any) -> Any:
        header, message = decode(body)
        message = change(header, message) or message
        return read_reply(consortium.handlers[site].answer("halves", "server", encode(header, message)))

    def other_model(header: dict[str, Any], message: Message) -> Message:
        moved = Message({"params": {key: value + 1 for key, value in message.arrays["params"].items()}})
        header["meeting"]["model"] = model_hash(moved, agreed_in(consortium.homes[site].folder(header["study"])))
        return moved

    def few(header: dict[str, Any], message: Message) -> None:
        header["meeting"]["sites"] = sorted([site, *[one for one in FIVE if one != site][:2]])

    def stranger(header: dict[str, Any], message: Message) -> None:
        header["meeting"]["sites"] = sorted([*FIVE, "zimmi"])

    def bound(header: dict[str, Any], message: Message) -> None:
        header["meeting"]["bound"] = 1e9

    def lie(header: dict[str, Any], message: Message) -> None:
        header["meeting"]["model"] = "0" * 64

    for change, why in (
        (other_model, "there is one answer, and no second"),
        (few, "needs 5"),
        (stranger, "zimmi"),
        (bound, "another bound"),
        (lie, "not the one that was announced"),
    ):
        said = told(change)
        assert said.status is Status.REFUSED, why
        assert why in said.why
    # The same request, also of a process that was started again, gets the same bytes.
    consortium.restart(site)
    assert consortium.handlers[site].answer("halves", "server", body) == honest


def test_a_site_seals_for_the_pinned_key_only(done, tmp_path) -> None:
    """The coordinator is the authority: it signs a key of its own in the second server's name."""
    consortium, _ = done
    request = make_request(new_key(tmp_path / "own.key"), SECOND, "second", "Ministry of Health")
    forged = pem(sign(consortium.home.path, request, second=True)).decode()
    header, message = decode(consortium.passed("halves")[0][0])
    said = read_reply(
        consortium.handlers["bo"].answer("halves", "server", encode({**header, "second": forged}, message))
    )
    assert (said.status, "not the pinned one" in said.why) == (Status.REFUSED, True)


# ---- a first server that lies to the second ----


def test_weights_cannot_be_asked_for(done, tmp_path) -> None:
    """There is no word for them, and one that is not known is refused before anything is looked at."""
    consortium, header, message, folder = reopened(done, tmp_path)
    for word, value in (("weights", {"bo": 1}), ("chosen", ["bo"]), ("more", 1)):
        said = consortium.tell_second({**header, word: value}, message)
        assert (said.status, said.message.arrays) == (Status.REFUSED, {})
        assert "words that are not known here" in said.why
    assert not (folder / "closed").exists()
    # Multi-Krum with one bad among five keeps four, and the bad one is not among them.
    said = consortium.tell_second(header, message)
    assert said.header["weights"] == dict.fromkeys(sorted(set(FIVE) - {BAD}), 1)


def test_a_round_is_opened_once(done, tmp_path) -> None:
    consortium, header, message, folder = reopened(done, tmp_path)
    first = consortium.tell_second(header, message)
    again = consortium.tell_second(header, message)
    assert (first.status, again.status) == (Status.OK, Status.OK)
    for name in ("gram", "half"):
        np.testing.assert_array_equal(first.message.arrays[name], again.message.arrays[name])
    # Whatever else is asked of this round: another version, another check, other arrays.
    for other in ({**header, "wardround": "0.0"}, {**header, "check": "00" * 32}, {**header, "quorum": 1}):
        assert consortium.tell_second(other, message).status is Status.CLOSED
    touched = Message({**message.arrays, "sums": message.arrays["sums"] + np.uint64(1)})
    assert consortium.tell_second(header, touched).status is Status.CLOSED
    assert "already opened" in consortium.tell_second({**header, "quorum": 1}, message).why
    assert [path.name for path in (folder / "closed").iterdir()] == ["00000001.json"]


def test_fewer_sites_or_another_roll_are_refused(done, tmp_path) -> None:
    consortium, header, message, folder = reopened(done, tmp_path)

    def without(*names: str) -> tuple[dict[str, Any], Message]:
        roll = [name for name in header["roll"] if name not in names]
        rows = [header["roll"].index(name) for name in roll]
        arrays = message.arrays
        kept = {"updates": arrays["updates"][rows], "check": arrays["check"], "sums": arrays["sums"][rows]}
        parcels = {name: header["parcels"][name] for name in roll}
        return {**header, "roll": roll, "parcels": parcels}, Message(
            {**kept, "gram": arrays["gram"][np.ix_(rows, rows)]}
        )

    turned = {**header, "roll": header["roll"][::-1]}
    strange = {**header, "roll": [*header["roll"][:-1], "zimmi"]}
    twice = {**header, "roll": [*header["roll"][:-1], header["roll"][0]]}
    lost = {**header, "parcels": {name: one for name, one in header["parcels"].items() if name != "bo"}}
    shrunk = {**header, "meeting": {**header["meeting"], "sites": header["meeting"]["sites"][:3]}}
    for words, arrays in (
        without("bo", "freetown", "kenema"),
        without("bo"),
        *((words, message) for words in (turned, strange, twice, lost, shrunk)),
        ({**header, "round": 2}, message),
        ({**header, "meeting": {**header["meeting"], "bound": 1e6}}, message),
    ):
        said = consortium.tell_second(words, arrays)
        assert said.status is Status.REFUSED, words
        assert "gram" not in said.message.arrays
    assert not (folder / "closed").exists()


def test_parcels_that_the_first_server_made_up_do_not_count(done, tmp_path) -> None:
    """It signs for a site with a key of its own: with a certificate for it (it is the authority), and without."""
    consortium, header, message, folder = reopened(done, tmp_path)
    meeting = halves.meeting_of(header["meeting"], header["study"], 1)
    own = new_key(tmp_path / "own.key")
    content = halves.ParcelContent(bytes(32), np.zeros(len(FIVE) + 1, np.uint64))
    second = consortium.second.key.public_key()
    forged = halves.make_parcel(meeting, "bo", 100.0, content, key=own, second=second, draw=os.urandom)
    parcels = {**header["parcels"], "bo": halves.parcel_words(forged)}
    said = consortium.tell_second({**header, "parcels": parcels}, message)
    assert (said.status, said.header["opened"]) == (Status.OK, False)
    assert "signature" in said.header["left_out"]["bo"]
    certificate = pem(sign(consortium.home.path, make_request(own, "bo"), name="bo")).decode()
    certificates = {**header["certificates"], "bo": certificate}
    said = consortium.tell_second({**header, "parcels": parcels, "certificates": certificates}, message)
    assert (said.status, "not the pinned one" in said.why) == (Status.REFUSED, True)
    # A true parcel of another attempt does not fit either: all of it is bound to the meeting.
    other = {**header, "meeting": {**header["meeting"], "nonce": "0" * 32}}
    said = consortium.tell_second(other, message)
    assert (said.header["opened"], set(said.header["left_out"])) == (False, set(FIVE))
    assert not (folder / "closed").exists()


def test_failed_attempts_are_counted(done, tmp_path) -> None:
    consortium, header, message, _ = reopened(done, tmp_path)
    parcels = {**header["parcels"], "bo": header["parcels"]["freetown"]}
    said = [
        consortium.tell_second({**header, "parcels": parcels, "wardround": f"0.{number}"}, message)
        for number in range(12)
    ]
    assert [one.status for one in said] == [Status.OK] * 10 + [Status.CLOSED] * 2
    assert not any(one.header.get("opened") for one in said)


def spoiled(reply: bytes, what: str) -> bytes:
    if what == "bytes":
        return b"nonsense"
    header, message = decode(reply)
    if what == "half":
        half = message.arrays["half"].copy()
        half[0] += np.uint64(1 << 40)
        return encode(header, Message({**message.arrays, "half": half}))
    if what == "weights":
        return encode({**header, "weights": {"bo": 1}}, message)
    if what == "shape":
        return encode(header, Message({**message.arrays, "half": message.arrays["half"][1:]}))
    return encode({**header, "sites": header["sites"][:3]}, message)


@pytest.mark.parametrize("what", ["bytes", "half", "weights", "shape", "sites"])
def test_nonsense_of_the_second_server_is_named(done, what, tmp_path) -> None:
    consortium, study = done
    reopened(done, tmp_path)
    for path in (consortium.run(study), consortium.run(study).parent / "state.json"):
        if path.exists():
            os.rename(path, tmp_path / path.name)
    consortium.change = lambda site, topic, header, reply: (
        spoiled(reply, what) if (site, topic) == (SECOND, "open") else reply
    )
    try:
        with pytest.raises(Refusal, match=f"second server {SECOND}"):
            consortium.conduct(study)
    finally:
        consortium.change = lambda site, topic, header, reply: reply


def test_a_second_server_is_in_the_membership_log_and_keeps_its_key_and_organisation(done, tmp_path) -> None:
    consortium, study = done
    hub, second = consortium.home, consortium.second
    log = membership_of(hub)
    (entry,) = [line.entry for line in log.chain().lines if line.entry.name == SECOND]
    assert (entry.kind, log.read().fingerprints(SECOND)) == (
        "admitted as second server",
        (fingerprint(second.key.public_key()),),
    )
    assert (SECOND in log.read().sites, log.read().seconds) == (False, frozenset({SECOND}))
    assert study.deploy.fingerprints[SECOND] == fingerprint(second.key.public_key())
    # Sites have pinned it with their approval, as they pin each other.
    assert read_partners(consortium.homes["bo"])[SECOND].fingerprint == study.deploy.fingerprints[SECOND]
    before = hub.second_certificate(SECOND).read_bytes()
    for key, role, organisation, why in (
        (new_key(tmp_path / "other.key"), "second", "Ministry of Health", "another key"),
        (second.key, "second", "Somebody Else", "run by 'Ministry of Health'"),
        (second.key, "site", "wardround", "already a second server"),
    ):
        request = SigningRequest(make_request(key, SECOND, role, organisation))
        with pytest.raises(Refusal, match=why):
            renew_site(hub, SECOND, request)
        assert hub.second_certificate(SECOND).read_bytes() == before
    # It witnesses the log, and gets its new certificate, as a site does.
    words: list[Any] = []
    carer = Maintenance(hub, consortium, lambda *told: words.append(told))

    def ask(site: str, topic: str, said: Any) -> Any:
        reply = read_reply(SecondHandler(second).answer(topic, "server", request_of_site(said)))
        assert reply.status is Status.OK, reply.why
        return reply.header

    carer.ask = ask  # type: ignore[method-assign]
    carer.maintain(SECOND)
    assert words == [(SECOND, "")]
    assert read_statement(hub, SECOND).entries == len(log.chain().lines)
    issued = renew_site(hub, SECOND, SigningRequest(make_request(second.key, SECOND, "second", "Ministry of Health")))
    assert issued is not None
    assert certificate_summary(issued).role == "second"


def test_a_study_that_does_not_fit_is_refused_by_whom_it_concerns(done) -> None:
    consortium, study = done
    deploy = study.deploy
    second = consortium.second
    assert reasons_against(second, study) == []
    for change, why in (
        ({"second": "other"}, "does not name"),
        ({"fingerprints": {**deploy.fingerprints, SECOND: "0000"}}, "not that of this server's key"),
        ({"fingerprints": {SECOND: deploy.fingerprints[SECOND]}}, "which keys its sites have"),
        ({"second_organisation": "Somebody"}, "run by 'Somebody'"),
        ({"fingerprints": {**deploy.fingerprints, "bo": deploy.fingerprints[SECOND]}}, "the same key"),
    ):
        other = study.model_copy(update={"deploy": deploy.model_copy(update=change)})
        assert why in "; ".join(reasons_against(second, other))
    with pytest.raises(Refusal, match="cannot approve it"):
        approve_as_second(second, study_id(study), by=" Researcher ")
    own = replace(consortium.home)
    bare = study.model_copy(update={"deploy": deploy.model_copy(update={"second": "nobody"})})
    with pytest.raises(Refusal, match="no second server called 'nobody'"):
        with_second(own, bare)


# ---- crashes ----


@pytest.mark.parametrize(
    "point",
    [
        "site.halves.kept",
        "coordinator.halves.saved",
        "second.sum.closed",
        "coordinator.halves.opened",
        "coordinator.round.concluded",
    ],
)
def test_a_crash_changes_nothing(done, tmp_path, monkeypatch, point) -> None:
    whole, _ = done
    consortium = PairedConsortium(tmp_path)
    again = consortium.study("tapped", 1)
    die_at(monkeypatch, point)
    consortium.until_done(again)
    assert consortium.deaths
    assert consortium.model(again) == whole.first_model
    (one,) = consortium.rounds(again)
    assert one["sites"] == list(FIVE)


def test_what_left_the_second_server_is_in_its_log(done) -> None:
    consortium, study = done
    entries = [json.loads(line)["entry"] for line in consortium.second.audit_path.read_bytes().splitlines()]
    kinds = [one["kind"] for one in entries if one.get("study") == study_id(study)]
    assert kinds.count("sent") >= 1
    assert "received" in str(entries)


def test_a_withdrawal_of_the_second_server_is_final(done, tmp_path) -> None:
    """An approval that is put back from a copy does not count: the audit log knows better."""
    consortium, study = done
    home = SecondHome(shutil.copytree(consortium.second.path, tmp_path / "second"))
    request = consortium.passed("open")[0][0]
    handler, path = SecondHandler(home), decision_path(home, study_id(study))
    assert handler.may_still_leave(request)
    shutil.copy2(path, tmp_path / "copy.json")
    withdraw(home, study_id(study), by="owner")
    shutil.copy2(tmp_path / "copy.json", path)
    assert not handler.may_still_leave(request)
    reply, _ = decode(handler.answer("open", COORDINATOR, request))
    assert (reply["status"], "audit log" in reply["why"]) == (Status.WITHDRAWN, True)
