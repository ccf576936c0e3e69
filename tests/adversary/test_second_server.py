"""Two servers against parties that lie: a first server, a second server, and sites."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.in_process import Died, die_at
from tests.support.second_server import BAD, FIVE, SECOND, PairedConsortium, make_second
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.consortium import (
    admit,
    begin_consortium,
    coordinator_settings,
    membership_of,
    renew_site,
)
from wardround.deploy.coordinator.events import ApprovalPending, SitesAwaited
from wardround.deploy.coordinator.gather import Gatherer, WaitPolicy
from wardround.deploy.coordinator.maintenance import Maintenance
from wardround.deploy.coordinator.two_servers.attempt import Attempt, RoundLost, TwoServerRound
from wardround.deploy.coordinator.two_servers.second_server import with_second
from wardround.deploy.demo import make_site
from wardround.deploy.party.decisions import withdraw
from wardround.deploy.protocol import halves
from wardround.deploy.protocol.agreed_words import agreed_in
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import TrainRound, request_of_site
from wardround.deploy.protocol.robust_choice import rule_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.second.approvals import approve_as_second, reasons_against
from wardround.deploy.second.home import begin_second
from wardround.deploy.second.request_handler import SecondHandler
from wardround.deploy.site.release import two_server_round as at_site
from wardround.deploy.trust.certificates import certificate_summary, make_request, new_key, pem, sign
from wardround.deploy.trust.countersignatures import read_statement
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.pins import read_partners
from wardround.deploy.trust.rotations import SigningRequest
from wardround.privacy.secure_sum.session import model_hash

MILD = {"aggregator": {"name": "multi_krum", "bad": 0, "keep": 3}, "deploy": {"quorum": 4, "deadline": 2.0}}
"""A study that goes on without one of its five sites."""


class Tapped(PairedConsortium):
    """Keeps all that passes the first server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.traffic: list[tuple[str, str, int, bytes, bytes]] = []
        self.first_model: dict[str, bytes] = {}

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        reply = super().ask(site, topic, body, within)
        self.traffic.append((site, topic, decode(body)[0]["round"], bytes(body), bytes(reply)))
        return reply

    def passed(self, topic: str, number: int = 1) -> list[tuple[bytes, bytes]]:
        return [(body, reply) for _, about, at, body, reply in self.traffic if (about, at) == (topic, number)]

    def tell_second(self, header: dict[str, Any], message: Message) -> Any:
        """What the second server says to a request of the first server's own making."""
        return read_reply(SecondHandler(self.second).answer("open", "server", encode(header, message)))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tapped, Any]:
    """A study of one round that went well, and all that was said in it."""
    consortium = Tapped(tmp_path_factory.mktemp("pair"))
    study = consortium.study("tapped", 1)
    consortium.conduct(study)
    consortium.first_model = consortium.model(study)
    return consortium, study


@pytest.fixture
def consortium(tmp_path: Path) -> Tapped:
    return Tapped(tmp_path)


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


def test_the_same_model_in_a_later_round_is_not_opened_among_other_sites(consortium) -> None:
    """The difference of the two sums would be one site's answer."""
    study = consortium.study("again", 3, **MILD)
    consortium.change = lambda site, topic, header, reply: stop_before(2, header, reply)
    with pytest.raises(Died):
        consortium.conduct(study)
    header, sent = decode(consortium.passed("halves")[0][0])
    one = TwoServerRound(
        gatherer=Gatherer(study_id(study), consortium, WaitPolicy(3)),
        number=3,
        method=TrainRound(header["algorithm"], header["transforms"], header["seed"]),
        sent=sent,
        entries=header["meeting"]["entries"],
        bound=header["meeting"]["bound"],
        rule=rule_of(study, FIVE),
        second=SECOND,
        folder=consortium.folder / "lie",
        limit="",
        agreed=agreed_in(consortium.homes[FIVE[0]].folder(study_id(study))),
        weight_problem=lambda site, weight: None,
    )
    chosen = closed(consortium, study, 1)["chosen"]
    consortium.change = lambda site, topic, header, reply: reply
    others = sorted(set(FIVE) - {chosen[0]})
    attempt = Attempt(one.model, "1" * 32, "ab" * 32, "cd" * 32, others, [])
    with pytest.raises(RoundLost, match="difference of the two sums"):
        one.attempt(attempt, 3)
    assert not (consortium.second.folder(study_id(study)) / "closed" / "00000003.json").exists()


def stop_before(number: int, header: dict[str, Any], reply: bytes) -> bytes:
    if header["round"] == number:
        raise Died
    return reply


def closed(consortium: PairedConsortium, study: Any, number: int) -> dict[str, Any]:
    path = consortium.second.folder(study_id(study)) / "closed" / f"{number:08d}.json"
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


# ---- a second server that is away, has not decided, or answers nonsense ----


def test_a_second_server_that_is_away_is_waited_for(consortium) -> None:
    study = consortium.study("away", 1)
    consortium.away.add(SECOND)
    events: list[Any] = []

    def hear(event: Any) -> None:
        events.append(event)
        if isinstance(event, SitesAwaited) and event.sites == (SECOND,):
            consortium.away.discard(SECOND)

    consortium.conduct(study, hear)
    assert SitesAwaited((SECOND,), 1) in events


def test_a_study_waits_until_the_second_server_has_approved_it(consortium) -> None:
    study = consortium.study("undecided", 1)
    consortium.undecided = True
    heard: list[Any] = []

    def hear(event: Any) -> None:
        heard.append(event)
        consortium.undecided = not isinstance(event, ApprovalPending)

    consortium.conduct(study, hear)
    pending = [one for one in heard if isinstance(one, ApprovalPending) and one.sites == (SECOND,)]
    assert "has not decided yet" in pending[0].reasons[SECOND]


def test_a_withdrawal_of_the_second_server_ends_the_study(consortium) -> None:
    study = consortium.study("withdrawn", 2)

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic, header["round"]) == (SECOND, "open", 1):
            withdraw(consortium.second, study_id(study), by="officer")
        return reply

    consortium.change = change
    with pytest.raises(Refusal, match=f"(?s)has left.*{SECOND} withdrew from it"):
        consortium.conduct(study)


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


# ---- sites that lie ----


def lying_parcel(monkeypatch: Any, site: str, lie: Any) -> None:
    honest = halves.make_parcel

    def make_parcel(meeting: Any, name: str, weight: float, content: Any, **keys: Any) -> Any:
        return (
            honest(meeting, name, weight, content, **keys)
            if name != site
            else lie(honest, meeting, weight, content, keys)
        )

    monkeypatch.setattr(at_site, "make_parcel", make_parcel)


def another_seed(honest: Any, meeting: Any, weight: float, content: Any, keys: Any) -> Any:
    """Commits to one seed and seals another."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    from wardround.privacy.secure_sum.masks import digest
    from wardround.privacy.two_servers.envelope import seal_for

    true = honest(meeting, "bo", weight, content, **keys)
    about = halves.about_parcel(meeting, "bo", weight, true.commitment)
    sealed = seal_for(keys["second"], bytes(32) + content.deal.tobytes(), about)
    return true._replace(sealed=sealed, signature=keys["key"].sign(digest(about, sealed), ec.ECDSA(SHA256())))


def wrong_deal(honest: Any, meeting: Any, weight: float, content: Any, keys: Any) -> Any:
    """Moves its own distances, as one would who wants to pass as a good site."""
    deal = content.deal.copy()
    deal[: len(FIVE)] -= np.uint64(1 << 40)
    return honest(meeting, "bo", weight, content._replace(deal=deal), **keys)


@pytest.mark.parametrize(("lie", "why"), [(another_seed, "committed to"), (wrong_deal, "dealt wrong products")])
def test_a_site_whose_parts_do_not_fit_is_named_and_left_out(consortium, monkeypatch, lie, why) -> None:
    lying_parcel(monkeypatch, "bo", lie)
    study = consortium.study("lying", 1, **MILD)
    consortium.conduct(study)
    (one,) = consortium.rounds(study)
    assert (one["sites"], why in one["measures"]["absent"]["bo"]) == (sorted(set(FIVE) - {"bo"}), True)
    assert "bo" not in closed(consortium, study, 1)["chosen"]


def test_a_site_with_an_update_longer_than_the_bound_is_named_and_left_out(consortium) -> None:
    study = consortium.study("long", 1, **MILD)

    def longer(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != ("bo", "halves"):
            return reply
        words, message = decode(reply)
        masked = message.arrays["masked"].copy()
        masked[0] += np.uint64(1 << 31)  # twice the bound
        return encode(words, Message({"masked": masked}))

    consortium.change = longer
    consortium.conduct(study)
    (one,) = consortium.rounds(study)
    assert "longer than the bound" in one["measures"]["absent"]["bo"]
    assert "bo" not in one["sites"]


def test_an_honest_site_past_the_bound_says_so_before_anything_leaves(consortium) -> None:
    study = consortium.study("small-bound", 1, bound=1e-6, **MILD)
    with pytest.raises(Refusal, match="goes past 1e-06, the greatest length"):
        consortium.conduct(study)
    assert not consortium.passed("open")


# ---- who may be a second server ----


@pytest.fixture
def founded(tmp_path: Path) -> Any:
    words = coordinator_settings("Ebola Network", "coordinator", "localhost:9000", ["localhost"])
    return begin_consortium(tmp_path / "hub", words)


def carried(home: Any, path: Path) -> Path:
    path.write_bytes(home.request_path.read_bytes())
    return path


def test_a_second_server_of_the_same_organisation_is_refused_unless_it_is_a_test(founded, tmp_path) -> None:
    same = begin_second(tmp_path / "same", "own", "localhost:9000", "coordinator", "ebola  network")
    request = carried(same, tmp_path / "same.csr")
    with pytest.raises(Refusal, match=r"hide nothing: it is run by 'ebola  network', as this coordinator is"):
        admit(founded, request)
    assert admit(founded, request, testing=True).path == founded.path / "seconds" / "own.pem"
    # On the same machine, whatever it is called.
    near = begin_second(tmp_path / "near", "near", "localhost:9000", "coordinator", "Ministry")
    with pytest.raises(Refusal, match="lies on this machine"):
        admit(founded, near.request_path)
    # With the key of a site.
    table = tmp_path / "patients.csv"
    table.write_text("age,ebola\n1,no\n")
    site = make_site(tmp_path / "bo", "bo", founded, table)
    csr = tmp_path / "copied.csr"
    csr.write_bytes(pem(make_request(site.key, "copied", "second", "Ministry")))
    with pytest.raises(Refusal, match="the key of another party"):
        admit(founded, csr)


def test_a_second_server_has_a_home_of_its_own_and_is_no_site(founded, tmp_path) -> None:
    with pytest.raises(Refusal, match="already holds a coordinator"):
        begin_second(founded.path, "two", "localhost:9000", "coordinator", "Ministry")
    made = make_second(tmp_path / "two", founded)
    assert not list((founded.path / "sites").glob("*.pem"))
    other = begin_second(tmp_path / "three", SECOND.upper(), "localhost:9000", "coordinator", "Other")
    request = carried(other, tmp_path / "three.csr")
    with pytest.raises(Refusal, match="already a second server called"):
        admit(founded, request)
    assert made.settings.organisation == "Ministry of Health"


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
