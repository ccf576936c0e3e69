"""The first server's part in a round for two servers: it sees masked halves, distances, and one chosen sum.

An attempt that fails before the second server was asked is repeated with a new nonce. Before it is asked, what the
attempt was made of (nonce, seeds, who answered) is on the disk; a process that dies then asks the sites the same again,
gets the same bytes, and so asks the second server the same, who gives the same answer. If one of these sites stays
away, the round is tried anew, and given up where the second server has opened it already.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.text import LONGEST, plain_line
from wardround.deploy.coordinator.events import AnswersMissing
from wardround.deploy.coordinator.gather import Absences, Gatherer, reasons_of
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.halves import (
    BadParcel,
    SealedParcel,
    meeting_words,
    parcel_of,
    parcel_words,
    second_reply_digest,
)
from wardround.deploy.protocol.replies import Absence, Reply
from wardround.deploy.protocol.reply_form import largest_reply
from wardround.deploy.protocol.requests import OpenSum, ShareHalves, Topic, TrainRound
from wardround.deploy.protocol.robust_choice import RobustRule
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import LARGEST_MESSAGE
from wardround.deploy.trust.organisations import load_certificate
from wardround.privacy.secure_sum.masks import KEY_BYTES, Ring
from wardround.privacy.secure_sum.session import model_hash
from wardround.privacy.two_servers.gram import Gram
from wardround.privacy.two_servers.own_products import blind, check_sums, coefficients_of, own_summands, summands_of
from wardround.privacy.two_servers.protocol import Meeting, Roll, half_of_a, open_gram, open_mean, share_of_a

FOR_A_SITE = 1 << 10
"""Bytes that each site adds to the words of the second server's answer: its weight, or why it was left out."""
NONSENSE = "find out what is wrong there, then continue with `wardround coordinator resume`"


class Attempt(NamedTuple):
    """What an attempt is made of: with it and the sites' answers the second server is asked the same again."""

    model: str
    nonce: str
    row: str
    check: str
    sites: list[str]
    roll: list[str]
    """Whose halves came; empty before."""


class Half(NamedTuple):
    """What the first server has of a site."""

    masked: Ring
    deal: Ring
    parcel: SealedParcel
    size: int
    sha256: str
    """Of the reply that it came in."""


class OpenedChoice(NamedTuple):
    """The products and, where something was chosen, the weights and the weighted mean."""

    gram: Gram
    weights: dict[str, int] | None
    mean: np.ndarray[Any, Any] | None
    commitments: dict[str, str]
    """The hash of the reply of each site that counts."""


class AttemptFailed(Exception):
    """Nothing was opened."""


class RoundLost(Exception):
    """The second server has opened this round already, for an attempt that cannot be finished any more."""


@dataclass
class TwoServerRound:
    """Attempts at one round."""

    gatherer: Gatherer
    number: int
    method: TrainRound
    sent: Message
    entries: int
    bound: float
    rule: RobustRule
    second: str
    folder: Path
    limit: str
    agreed: str
    """The hash of what the sites agreed on before the first round."""
    weight_problem: Callable[[str, float], str | None]
    """Why a site may not count for so much; none if it may."""
    bad: dict[str, Absence] = field(default_factory=dict)
    """Sites whose part does not fit; asked again they would say the same."""
    refusing: Absences = field(default_factory=dict)
    """Sites that refused the last attempt."""
    reasons: Absences = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    rows: dict[str, float] = field(default_factory=dict)

    def attempt(self, given: Attempt, quorum: int) -> OpenedChoice:
        """One attempt; raises AttemptFailed where nothing was opened."""
        meeting = Meeting(
            self.gatherer.study, self.number, given.nonce, tuple(given.sites), self.entries, self.bound, 1, given.model
        )
        certificates = dict(self.gatherer.transport.certificates())
        halves = self._ask_sites(meeting, given, certificates[self.second])
        if len(halves) < max(quorum, self.rule.fewest) or (given.roll and set(halves) != set(given.roll)):
            raise AttemptFailed
        self._save(given._replace(roll=sorted(halves)))
        point("coordinator.halves.saved")
        roll = Roll(tuple(sorted(halves)), {})
        question, message, of_a = self._question(meeting, given, halves, roll, certificates, quorum)
        reply = self._ask_second(question, message)
        opened = self._open(meeting, halves, roll, of_a, reply, certificates[self.second])
        point("coordinator.halves.opened")
        return opened

    def load(self) -> Attempt | None:
        """The attempt that was under way when this process died."""
        path = self._path
        if not path.exists():
            return None
        kept = Attempt(**json.loads(path.read_bytes()))
        return kept if kept.model == self.model else None

    @property
    def model(self) -> str:
        """The hash of what the sites are sent, and of what they agreed on before."""
        return model_hash(self.sent, self.agreed)

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.number:08d}.halves"

    def _save(self, given: Attempt) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("*.halves"):
            if old != self._path:
                old.unlink()
        write_whole(self._path, json.dumps(given._asdict()).encode())

    # ---- the sites ----

    def _ask_sites(self, meeting: Meeting, given: Attempt, second: str) -> dict[str, Half]:
        question = ShareHalves(self.method, meeting_words(meeting), given.row, second)
        most = largest_reply(Topic.HALVES, [8 * self.entries])
        answers, absent = self.gatherer.ask_once(given.roll or given.sites, question, self.sent, self.number, most=most)
        self.bad |= {site: one for site, one in absent.items() if one.unusable}
        self.refusing = {site: one for site, one in absent.items() if one.status is Status.REFUSED}
        halves: dict[str, Half] = {}
        for site, reply in answers.items():
            try:
                halves[site] = self._half(meeting, site, reply)
            except BadParcel as bad:
                absent[site] = self.bad[site] = Absence(str(bad), unusable=True)
        self.reasons |= absent
        return halves

    def _half(self, meeting: Meeting, site: str, reply: Reply) -> Half:
        if reply.status is Status.DIVERGED:
            raise BadParcel(f"its answer is not finite or goes past {self.limit}")
        masked = reply.message.arrays.get("masked")
        if not isinstance(masked, np.ndarray) or masked.shape != (self.entries,) or masked.dtype != np.uint64:
            raise BadParcel("its masked half does not have the shape of the model")
        parcel = parcel_of(reply.header.get("parcel"))
        if parcel.site != site:
            raise BadParcel("its parcel for the second server is in another's name")
        if not parcel.weight > 0:
            raise BadParcel("it has no patients to train on")
        too_much = self.weight_problem(site, parcel.weight)
        if too_much is not None:
            raise BadParcel(too_much)
        seed = reply.header.get("deal")
        if not isinstance(seed, str) or len(seed) != 2 * KEY_BYTES or not set(seed) <= set("0123456789abcdef"):
            raise BadParcel("what it dealt cannot be read")
        self.sizes[site], self.rows[site] = reply.size, parcel.weight
        deal = own_summands(meeting, site, bytes.fromhex(seed))
        return Half(masked, deal, parcel, reply.size, reply.sha256)

    # ---- the second server ----

    def _question(
        self,
        meeting: Meeting,
        given: Attempt,
        halves: Mapping[str, Half],
        roll: Roll,
        certificates: Mapping[str, str],
        quorum: int,
    ) -> tuple[OpenSum, Message, Ring]:
        if 8 * self.entries * (len(roll.sites) + 2) > LARGEST_MESSAGE:
            raise Refusal(
                f"{len(roll.sites)} updates of {self.entries:,} numbers do not fit into one message",
                where=f"round {self.number}",
                remedy="let fewer sites take part in a round ([participation]), or take a smaller model",
            )
        masked = {site: halves[site].masked for site in roll.sites}
        deals = {site: halves[site].deal for site in roll.sites}
        coefficients = coefficients_of(meeting, bytes.fromhex(given.check), roll)
        blinds = blind(meeting, masked, bytes.fromhex(given.row), coefficients, roll)
        of_a = share_of_a(meeting, masked, [], roll) + summands_of(meeting, deals, roll)
        sums = check_sums(meeting, deals, coefficients, roll, roll.sites)
        question = OpenSum(
            meeting_words(meeting),
            list(roll.sites),
            {site: parcel_words(halves[site].parcel) for site in roll.sites},
            {site: certificates[site] for site in roll.sites},
            given.check,
            quorum,
        )
        return question, Message({"updates": blinds.updates, "check": blinds.check, "gram": of_a, "sums": sums}), of_a

    def _ask_second(self, question: OpenSum, message: Message) -> Reply:
        """Until it answers; while it is away, or has not approved the study, the study waits and says so."""
        gatherer, pause, count = self.gatherer, 0.0, len(question.roll)
        most = largest_reply(Topic.OPEN, [8 * self.entries, 8 * count * count, FOR_A_SITE * count])
        while True:
            pause = gatherer.pause_before_asking_again(pause)
            gatherer.wait_for([self.second], 1)
            if self.second in gatherer.departed_sites():
                raise Refusal(
                    f"the second server has left: {gatherer.departed_sites()[self.second]}",
                    where=f"second server {self.second}",
                    remedy="offer the study again with another second server",
                )
            answers, absent = gatherer.ask_once([self.second], question, message, self.number, most=most)
            if answers:
                return answers[self.second]
            absence = absent[self.second]
            if absence.status is Status.CLOSED:
                raise RoundLost(absence.why)
            if absence.status is Status.REFUSED:
                raise Refusal(absence.why, where=f"second server {self.second}")
            if absence.unusable:
                raise Refusal(absence.why, where=f"second server {self.second}", remedy=NONSENSE)
            gatherer.observer(AnswersMissing(reasons_of(absent)))

    def _open(
        self, meeting: Meeting, halves: Mapping[str, Half], roll: Roll, of_a: Ring, reply: Reply, certificate: str
    ) -> OpenedChoice:
        """The sum, if what the second server says is signed by it, and fits."""
        words, left_out = reply.header, reply.header["left_out"]
        if not set(left_out) <= set(roll.sites):
            raise self.nonsense("it left out sites that it was not asked about")
        for site, why in left_out.items():
            told = f"the second server left it out: {plain_line(why, LONGEST)}"
            self.bad[site] = Absence(told, unusable=True)
        self.reasons |= {site: self.bad[site] for site in left_out}
        if words.get("opened") is not True:
            if not left_out:  # asked again it would say the same
                raise self.nonsense("it opened nothing, and names no site that it left out")
            raise AttemptFailed
        kept = [site for site in roll.sites if site not in left_out]
        gram_of_b, half = (reply.message.arrays.get(name) for name in ("gram", "half"))
        weights = words.get("weights")
        if (
            words.get("sites") != kept
            or not is_ring(gram_of_b, (len(kept), len(kept)))
            or not is_ring(half, (self.entries if weights else 0,))
            or not (weights is None or is_weights(weights, kept))
        ):
            raise self.nonsense("its numbers do not have the shape that they should have")
        assert gram_of_b is not None
        assert half is not None
        try:
            key, signature = load_certificate(certificate, self.second).public_key(), str(words.get("signature"))
            assert isinstance(key, ec.EllipticCurvePublicKey)
            signed = second_reply_digest(meeting, words, gram_of_b, hashlib.sha256(half.data).hexdigest())
            key.verify(bytes.fromhex(signature), signed, ec.ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            raise self.nonsense("its signature does not fit") from None
        rows = [roll.sites.index(site) for site in kept]
        gram = open_gram(meeting, of_a[np.ix_(rows, rows)], gram_of_b, Roll(tuple(kept), {}))
        commitments = {site: halves[site].sha256 for site in kept}
        if weights is None:
            return OpenedChoice(gram, None, None, commitments)
        masked = {site: halves[site].masked for site in kept}
        try:
            mean = open_mean(meeting, gram, weights, half_of_a(masked, weights), half)
        except Refusal as refusal:
            raise self.nonsense(f"either its half of the sum is wrong, or {refusal.what}") from None
        return OpenedChoice(gram, weights, mean, commitments)

    def nonsense(self, why: str) -> Refusal:
        return Refusal(
            f"the answer of the second server cannot be used: {why}",
            where=f"second server {self.second}, round {self.number}",
            remedy=NONSENSE,
        )


def is_ring(array: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(array, np.ndarray) and array.shape == shape and array.dtype == np.uint64


def is_weights(weights: Any, sites: Sequence[str]) -> bool:
    return (
        isinstance(weights, dict)
        and set(weights) <= set(sites)
        and all(type(one) is int and 0 <= one < 2**32 for one in weights.values())
        and any(weights.values())
    )
