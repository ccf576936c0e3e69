"""A first server that lies to the second, and a second server that lies to the first and to sites."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.adversary.actors import Enough
from tests.support.second_server import FIVE, SECOND, PairedConsortium
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol import requests
from wardround.deploy.protocol.halves import meeting_of, second_reply_digest
from wardround.deploy.protocol.replies import Reply, read_reply
from wardround.deploy.protocol.requests import OfferStudy, request_of, request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.second.approvals import approve_as_second
from wardround.deploy.second.request_handler import SecondHandler


class Begun(NamedTuple):
    """A study whose first round is as far as the second server; `header` and `message` are what it is asked."""

    consortium: PairedConsortium
    study: Any
    kept: Path
    header: dict[str, Any]
    message: Message

    @property
    def folder(self) -> Path:
        return self.consortium.second.folder(study_id(self.study))

    def tell(self, topic: str, header: dict[str, Any], message: Message | None = None) -> Reply:
        body = encode(header, self.message if message is None else message)
        return read_reply(SecondHandler(self.consortium.second).answer(topic, "server", body))

    def conduct(self, change: Callable[[str, str, dict[str, Any], bytes], bytes]) -> None:
        """From there on, as often as is wanted: neither coordinator nor second server knows of the last time."""
        run = self.consortium.run(self.study)
        shutil.rmtree(run)
        shutil.copytree(self.kept, run)
        self.forget()
        self.consortium.change = change
        try:
            self.consortium.conduct(self.study)
        finally:
            self.consortium.change = lambda site, topic, header, reply: reply

    def forget(self) -> None:
        for name in ("closed", "attempts"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    folder = tmp_path_factory.mktemp("parties")
    consortium = PairedConsortium(folder)
    study, heard = consortium.study("parties", 2, deploy={"deadline": 0.3}), list[bytes]()
    ask = consortium.ask

    def asking(site: str, topic: str, body: bytes, within: float) -> bytes:
        if topic == "open":
            heard.append(body)
            raise Enough
        return ask(site, topic, body, within)

    consortium.ask = asking  # type: ignore[method-assign]
    with pytest.raises(Enough):
        consortium.conduct(study)
    consortium.ask = ask  # type: ignore[method-assign]
    shutil.copytree(consortium.run(study), folder / "kept")
    return Begun(consortium, study, folder / "kept", *decode(heard[0]))


@pytest.fixture(autouse=True)
def nothing_is_known(begun: Begun) -> None:
    begun.forget()


# ---- a first server that lies to the second ----


def test_words_that_are_not_known_are_refused(begun: Begun) -> None:
    said = begun.tell("open", {**begun.header, "less": True})
    assert (said.status, said.message.arrays) == (Status.REFUSED, {})
    assert "words that are not known here" in said.why
    offer = OfferStudy(begun.study.model_dump(mode="json"), "researcher")
    words, _ = decode(request_of(offer, study=study_id(begun.study), number=0).body)
    assert begun.tell("offer", words, Message({})).status is Status.OK
    assert "not known here" in begun.tell("offer", {**words, "urgent": True}, Message({})).why
    assert not (begun.folder / "closed").exists()


def test_more_bytes_than_the_meeting_has_are_not_looked_at(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without a model is small, and one to open a round is as large as its own words say."""
    monkeypatch.setattr(requests, "SMALL", 1 << 12)
    monkeypatch.setattr("wardround.deploy.second.robust_sum.SMALL", 1 << 15)
    assert begun.tell("open", begun.header).status is Status.OK
    begun.forget()
    more = Message({**begun.message.arrays, "more": np.zeros(1 << 15, np.uint64)})
    said = begun.tell("open", begun.header, more)
    assert (said.status, "bytes, and" in said.why) == (Status.REFUSED, True)
    handler = SecondHandler(begun.consortium.second)
    for topic in ("hello", "heads", "renewal"):
        told = read_reply(handler.answer(topic, "server", request_of_site({"more": "x" * (1 << 13)})))
        assert (told.status, "bytes, and 4096 are allowed" in told.why) == (Status.REFUSED, True)
    said = begun.tell("offer", {**begun.header, "submitter": "x" * (1 << 13)}, Message({}))
    assert "bytes, and 4096 are allowed" in said.why
    assert not (begun.folder / "attempts").exists()


@pytest.mark.parametrize("topic", ["certificate", "heads", "countersigned", "membership", "round", "open", "nonsense"])
@pytest.mark.parametrize(
    "words",
    [{}, {"certificate": 3, "head": [], "lines": 4, "from": "x", "countersigned": {}, "statements": 1}],
    ids=str,
)
def test_no_request_ends_the_second_server(begun: Begun, topic: str, words: dict[str, Any]) -> None:
    heard: list[str] = []
    handler = SecondHandler(begun.consortium.second, lambda about, why: heard.append(why))
    bound = {"study": study_id(begun.study)} if topic in ("round", "open", "nonsense") else {}
    told = read_reply(handler.answer(topic, "server", request_of_site({**bound, **words})))
    assert told.status is Status.REFUSED
    assert len(heard) == 1
    assert str(begun.consortium.second.path) not in told.why


def test_parcels_of_another_study_open_nothing(begun: Begun) -> None:
    """The second server has approved both, and the sites and keys are the same."""
    other = begun.consortium.study("foreign", 2, deploy={"deadline": 0.3})
    words, _ = decode(request_of(OfferStudy(other.model_dump(mode="json"), "x"), study=study_id(other), number=0).body)
    begun.tell("offer", words, Message({}))
    approve_as_second(begun.consortium.second, study_id(other), by="officer")
    said = begun.tell("open", {**begun.header, "study": study_id(other)})
    assert (said.status, said.header["opened"], said.message.arrays) == (Status.OK, False, {})
    assert set(said.header["left_out"]) == set(FIVE)
    assert not (begun.consortium.second.folder(study_id(other)) / "closed").exists()
    # Nor does what was said in one round open another.
    said = begun.tell("open", {**begun.header, "round": 2})
    assert (said.header["opened"], set(said.header["left_out"])) == (False, set(FIVE))


def test_a_share_in_two_places_counts_in_none(begun: Begun) -> None:
    """One site's parcel and row in another's place: the sum would hold it twice, and the other not at all."""
    header, arrays = begun.header, begun.message.arrays
    bo, freetown = header["roll"].index("bo"), header["roll"].index("freetown")
    updates = np.array(arrays["updates"])
    updates[freetown] = updates[bo]
    for parcel in (header["parcels"]["bo"], {**header["parcels"]["bo"], "site": "freetown"}):
        parcels = {**header["parcels"], "freetown": parcel}
        said = begun.tell("open", {**header, "parcels": parcels}, Message({**arrays, "updates": updates}))
        assert (said.header["opened"], list(said.header["left_out"])) == (False, ["freetown"])
    # The row alone: its products are then not those that freetown dealt.
    said = begun.tell("open", header, Message({**arrays, "updates": updates}))
    assert said.status is not Status.OK or not said.header["opened"] or "freetown" not in said.header["weights"]


def test_false_products_never_open_a_sum_of_fewer_sites_than_the_rule_chooses(begun: Begun) -> None:
    """The first server moves its summand of the products as it likes, to be told one site's update by itself."""
    generator, arrays = np.random.default_rng(1), begun.message.arrays
    true = begun.tell("open", begun.header)
    assert len([one for one in true.header["weights"].values() if one]) == 4
    opened = 0
    for number in range(8):
        begun.forget()
        lie = generator.integers(0, 1 << (20 + 4 * number), (5, 5), np.uint64)
        if number % 2:  # all but bo are made long, so that only bo would be left
            lie = np.diag([0 if name == "bo" else 1 << (24 + 4 * number) for name in FIVE]).astype(np.uint64)
        said = begun.tell("open", begun.header, Message({**arrays, "gram": arrays["gram"] + lie + lie.T}))
        if said.status is Status.OK and said.header["opened"]:
            opened += 1
            assert len([one for one in said.header["weights"].values() if one]) == 4
    assert opened, "some lies are not noticed: they move who is chosen, not how many"


# ---- a second server that lies to the first ----


def signed(begun: Begun, reply: bytes, **words: Any) -> bytes:
    """Other words under the second server's own true key."""
    header, message = decode(reply)
    header |= words
    meeting = meeting_of(begun.header["meeting"], header["study"], header["round"])
    half = hashlib.sha256(message.arrays["half"].data).hexdigest()
    made = second_reply_digest(meeting, header, message.arrays["gram"], half)
    return encode({**header, "signature": begun.consortium.second.key.sign(made, ec.ECDSA(SHA256())).hex()}, message)


def nothing_opened(begun: Begun, reply: bytes) -> bytes:
    header, _ = decode(reply)
    return encode({**header, "opened": False, "left_out": {}, "sites": [], "weights": None}, Message({}))


def everybody_left_out(begun: Begun, reply: bytes) -> bytes:
    header, _ = decode(reply)
    out = dict.fromkeys(header["sites"], "it is not to my liking")
    return encode({**header, "opened": False, "left_out": out, "sites": [], "weights": None}, Message({}))


def too_large(begun: Begun, reply: bytes) -> bytes:
    header, message = decode(reply)
    return encode(header, Message({**message.arrays, "more": np.zeros(1 << 15, np.uint64)}))


def strangers_left_out(begun: Begun, reply: bytes) -> bytes:
    header, message = decode(reply)
    return encode({**header, "left_out": {"zimmi": "it is not there"}}, message)


def other_round(begun: Begun, reply: bytes) -> bytes:
    header, message = decode(reply)
    return encode({**header, "round": 2}, message)


LIES: dict[str, tuple[Callable[[Begun, bytes], bytes], str]] = {
    "nothing opened": (nothing_opened, "it opened nothing, and names no site that it left out"),
    "everybody left out": (everybody_left_out, "bo: the second server left it out: it is not to my liking"),
    "too large": (too_large, "are allowed"),
    "strangers": (strangers_left_out, "it left out sites that it was not asked about"),
    "another round": (other_round, "belongs to another request"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_of_the_second_server_ends_the_study_and_names_it(begun: Begun, name: str) -> None:
    lie, why = LIES[name]
    told: list[str] = []

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != (SECOND, "open"):
            return reply
        told.append(name)
        if len(told) > 4:
            raise Enough
        return lie(begun, reply)

    with pytest.raises(Refusal) as ended:
        begun.conduct(change)
    assert why in str(ended.value)
    assert "second server" in str(ended.value)
    assert not (begun.consortium.run(begun.study) / "model.safetensors").exists()
    assert not (begun.consortium.run(begun.study) / "rounds.jsonl").exists() or not begun.consortium.rounds(begun.study)


def test_another_choice_and_an_old_answer_are_not_taken_though_the_second_server_signed_them(begun: Begun) -> None:
    """In round 1 it signs for other sites than the rule chooses; in round 2 it gives what it signed in round 1."""
    honest: list[bytes] = []

    def choose(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != (SECOND, "open"):
            return reply
        meeting = begun.header["meeting"]
        begun.header["meeting"] = header["meeting"]
        try:
            return signed(begun, reply, weights={"bo": 1, "kenema": 1, "freetown": 1, "makeni": 1})
        finally:
            begun.header["meeting"] = meeting

    with pytest.raises(Refusal, match=r"either its half of the sum is wrong|another choice than its own"):
        begun.conduct(choose)

    def repeat(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != (SECOND, "open"):
            return reply
        if header["round"] == 1:
            honest.append(reply)
            return reply
        words, message = decode(honest[0])
        bound = {name: decode(reply)[0][name] for name in ("study", "round", "nonce", "site")}
        return encode({**words, **bound}, message)

    with pytest.raises(Refusal, match=r"its signature does not fit \(second server ministry, round 2\)"):
        begun.conduct(repeat)
    assert [one["round"] for one in begun.consortium.rounds(begun.study)] == [1]


# ---- a second server that lies to sites ----


def test_sites_answer_the_coordinator_and_not_the_second_server(begun: Begun) -> None:
    handler = begun.consortium.handlers["bo"]
    body = encode(begun.header, begun.message)
    for topic in ("halves", "round", "open", "finish"):
        told = read_reply(handler.answer(topic, SECOND, body))
        assert (told.status, told.message.arrays) == (Status.REFUSED, {})
        assert f"'{SECOND}' is not the coordinator" in told.why
    assert "no request called 'open'" in read_reply(handler.answer("open", "server", body)).why
