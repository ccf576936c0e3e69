"""The coordinator's part in a round of which only the sum is opened: passes messages on, and never sees an answer.

An attempt that fails before anything is revealed is repeated with a new nonce. Before it asks the sites to reveal, the
coordinator writes down all it needs to open the sum (public keys, sealed shares, commitments, the sum of the masked
vectors: none of it tells an answer); if it dies then, it asks the same again and gets the same bytes. A round that
cannot be opened any more, since too many sites went away while they revealed, is given up: no site would open it twice.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from cryptography import x509

from wardround.core.components.recipes import recipe_of
from wardround.core.contracts import Algorithm, Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.journal import ROOT
from wardround.deploy.coordinator.events import AnswersGathered
from wardround.deploy.coordinator.gather import NOT_CONNECTED, Absences, GatheredAnswers, reasons_of
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import Absence
from wardround.deploy.protocol.requests import SecureStep, Topic, TrainRound
from wardround.deploy.protocol.secure_precision import precision_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed, decode, encode
from wardround.engine.checks import divergence
from wardround.privacy.secure_sum.fixed_point import FIXED
from wardround.privacy.secure_sum.masks import Ring
from wardround.privacy.secure_sum.messages import STEPS, BadMessage, SumMessage, VerifyingKey, from_json, to_json
from wardround.privacy.secure_sum.server import DealtShares, Server, advance, receive, start_sum, unmask_sum
from wardround.privacy.secure_sum.session import (
    FEWEST,
    Advert,
    Session,
    adverts_to_json,
    model_hash,
    session_from_json,
    session_to_json,
)

if TYPE_CHECKING:
    from wardround.deploy.coordinator.engine import Deployment

Steps = Callable[[str], SecureStep]
Gather = Callable[[Sequence[str], Steps, Message], GatheredAnswers]
"""(sites, a question for each, message) to the answers and, for the other sites, the reasons."""


class OpenedSum(NamedTuple):
    """The sum of those who took part (none: the round is lost), how many bytes each sent, and why others did not."""

    total: Ring | None
    bytes_up: dict[str, int]
    absent: Absences
    commitments: Mapping[str, str]
    """The hash of each masked answer that is in the sum."""


class TooFewSites(Exception):
    """An attempt that cannot be finished; nothing was opened."""


@dataclass
class SecureRound:
    """Attempts at one round. `certificates` in PEM and `keys` are the sites'; `folder` keeps what must not be lost."""

    study: str
    number: int
    method: TrainRound
    sent: Message
    entries: int
    precision: tuple[int, float]
    certificates: Mapping[str, str]
    keys: Mapping[str, VerifyingKey]
    gather: Gather
    folder: Path
    patience: float
    """Seconds for which sites that went away while they revealed are waited for."""
    rest: Callable[[], None]
    limit: str = ""
    """What an answer must keep to, in words."""
    bad: set[str] = field(default_factory=set)
    """Sites whose answer goes past it; asked again they would say the same."""
    sizes: dict[str, int] = field(default_factory=dict)
    reasons: Absences = field(default_factory=dict)
    commitments: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number:08d}.sum"

    def attempt(self, roster: Sequence[str], quorum: int) -> OpenedSum:
        """One attempt among these sites; raises TooFew where it failed before anything was revealed."""
        bits, bound = self.precision
        nonce = secrets.token_hex(16)
        names = tuple(sorted(roster))
        session = Session(self.study, self.number, model_hash(self.sent), nonce, names, self.entries, bits, bound)
        server = start_sum(session, {name: self.keys[name] for name in names})
        letters: Mapping[str, SumMessage | None] = dict.fromkeys(names)
        while True:
            server = self._collect(server, letters)
            fewest = max(session.threshold, quorum if server.step == "mask" else 0)
            if len(server.senders) < fewest:
                raise TooFewSites
            server, asked = advance(server)
            if server.step == STEPS[-1]:
                break
            letters = asked
        self._save(server, asked)
        point("coordinator.sum.saved")
        return self._open(server, asked)

    def resume(self) -> OpenedSum | None:
        """Open what was about to be opened when this process died; none where nothing was."""
        kept = self._load()
        return None if kept is None else self._open(*kept)

    def _open(self, server: Server, letters: Mapping[str, SumMessage]) -> OpenedSum:
        """Ask for the shares until there are enough; the same question, so whoever said them says the same."""
        end = time.monotonic() + self.patience
        while True:
            server = self._collect(
                server, {one: letter for one, letter in letters.items() if one not in server.revealed}
            )
            if len(server.revealed) >= server.session.threshold or time.monotonic() > end:
                break
            self.rest()
        took = {site: self.sizes.get(site, 0) for site in sorted(server.survivors)}
        try:
            total = unmask_sum(server)
        except Refusal as refusal:
            lost = dict.fromkeys(server.session.roster, f"the sum could not be opened: {refusal}")
            own = {site: Absence(f"{why} {self.reasons.get(site, '')}".strip()) for site, why in lost.items()}
            return OpenedSum(None, {}, {**self.reasons, **own}, {})
        point("coordinator.sum.opened")
        return OpenedSum(total, took, self.reasons, {site: self.commitments.get(site, "") for site in took})

    def _collect(self, server: Server, letters: Mapping[str, SumMessage | None]) -> Server:
        """Ask for a step and take what comes; whoever says nothing or nonsense is lost, with the reason."""
        session, step = server.session, server.step
        shown = session_to_json(session)

        first = step == "advertise"
        certificates = {name: self.certificates[name] for name in session.roster} if first else None

        def question(site: str) -> SecureStep:
            letter = letters[site]
            written = None if letter is None else to_json(letter)
            return SecureStep(self.method, step, shown, written, certificates)

        message = self.sent if step == "mask" else Message({})
        answers, absent = self.gather(sorted(letters), question, message)
        for site, one in sorted(answers.items()):
            try:
                if one.status is Status.DIVERGED:
                    self.bad.add(site)
                    raise BadMessage(
                        site, f"its training diverged: the answer is not finite or exceeds {self.limit}", step=step
                    )
                vector = one.message.arrays.get("vector")
                letter = from_json(one.header.get("letter"), None if vector is None else np.asarray(vector))
                if letter.sender != site:
                    raise BadMessage(site, f"it sent a message from {letter.sender}", step=step)
                server = receive(server, letter)
                self.sizes[site] = self.sizes.get(site, 0) + one.size
                if step == "mask":
                    self.commitments[site] = one.sha256
            except Refusal as refusal:
                absent[site] = Absence(str(refusal))
        self.reasons |= absent
        return server

    # ---- what the coordinator must not lose ----

    def _save(self, server: Server, letters: Mapping[str, SumMessage]) -> None:
        assert server.total is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("*.sum"):
            old.unlink()
        dealt = {
            site: {"sealed": one.sealed, "commitments": one.commitments, "seed": one.seed.hex()}
            for site, one in server.dealt.items()
        }
        words = {
            "session": session_to_json(server.session),
            "adverts": adverts_to_json(server.adverts),
            "dealt": dealt,
            "survivors": sorted(server.survivors),
            "commitments": {site: self.commitments[site] for site in sorted(server.survivors)},
            "signatures": dict(server.signatures),
            "letters": {site: to_json(letter) for site, letter in letters.items()},
        }
        write_whole(self.path, encode(words, Message({"total": server.total})))

    def _load(self) -> tuple[Server, dict[str, SumMessage]] | None:
        if not self.path.exists():
            return None
        try:
            words, message = decode(self.path.read_bytes())
        except Malformed:
            return None
        session = session_from_json(words["session"])
        if session.model != model_hash(self.sent):
            return None
        self.commitments = dict(words.get("commitments", dict.fromkeys(words["survivors"], ROOT)))
        adverts = {
            site: Advert(bytes.fromhex(one["sharing"]), bytes.fromhex(one["masking"]), one["signature"])
            for site, one in words["adverts"].items()
        }
        dealt = {
            site: DealtShares(
                one["sealed"],
                {holder: (pair[0], pair[1]) for holder, pair in one["commitments"].items()},
                bytes.fromhex(one["seed"]),
            )
            for site, one in words["dealt"].items()
        }
        server = replace(
            start_sum(session, {name: self.keys[name] for name in session.roster}),
            step=STEPS[-1],
            adverts=adverts,
            dealt=dealt,
            survivors=frozenset(words["survivors"]),
            total=np.asarray(message.arrays["total"], np.uint64),
            signatures=words["signatures"],
        )
        return server, {site: from_json(letter) for site, letter in words["letters"].items()}


def sum_answers(
    engine: "Deployment", algorithm: Algorithm, cohort: Sequence[str], number: int, sent: Message, shapes: Message
) -> OpenedSum:
    """The sum of a round's answers: goes on where a crash came, and repeats what failed before a reveal."""
    assert engine.sums is not None, "a secure sum needs a folder"
    gatherer = engine.gatherer
    certificates = dict(gatherer.transport.certificates())

    def gather(sites: Sequence[str], steps: Steps, message: Message) -> GatheredAnswers:
        return gatherer.ask_once(sites, steps, message, number)

    one = SecureRound(
        study=gatherer.study,
        number=number,
        method=engine.method(algorithm),
        sent=sent,
        entries=sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(shapes.arrays[FIXED])),
        precision=precision_of([recipe_of(transform) for transform in engine.transforms]),
        certificates=certificates,
        keys={site: public_key(text) for site, text in certificates.items()},
        gather=gather,
        folder=engine.sums,
        patience=gatherer.policy.deadline,
        rest=gatherer.rest,
        limit=engine.transform.limit,
    )
    resumed = one.resume()
    pause = 0.0
    while resumed is None:
        left = {**gatherer.departed_sites(), **gatherer.spent}
        staying = gatherer.policy.require_remaining(cohort, left, number)
        if len(staying) < FEWEST:
            raise Refusal(
                f"{len(staying)} sites are left, and a secure sum of fewer than {FEWEST} would reveal single answers",
                where=f"round {number}",
                remedy="offer the study again, to more sites or without the transform secure_sum",
            )
        quorum = max(FEWEST, min(gatherer.policy.quorum, len(staying)))
        if len(set(staying) - one.bad) < quorum:
            raise divergence(number, sorted(one.bad), one.limit)
        staying = [site for site in staying if site not in one.bad]
        pause = gatherer.pause_before_asking_again(pause)
        gatherer.wait_for(staying, quorum)
        here = [site for site in staying if site in gatherer.transport.present()]
        unready = engine.begin_at(algorithm, here)
        one.reasons = {
            **{site: NOT_CONNECTED for site in staying if site not in here},
            **unready,
            **dict.fromkeys(one.bad, Absence(f"its answer is not finite or exceeds {one.limit}")),
            **left,
        }
        roster = [site for site in here if site not in unready]
        if len(roster) >= quorum:
            try:
                return one.attempt(roster, quorum)
            except TooFewSites:
                pass
        gatherer.observer(AnswersGathered(Topic.ROUND, number, (), reasons_of(one.reasons)))
    return resumed


def refuse_strangers(sites: Sequence[str], certificates: Mapping[str, str]) -> None:
    """Refuse a secure sum among sites that could not check each other's keys."""
    strange = [site for site in sites if site not in certificates]
    if strange:
        raise Refusal(
            f"a secure sum needs every site's certificate, and these are missing: {', '.join(strange)}",
            where="[[transforms]] secure_sum",
            remedy="sign the site's request with `wardround coordinator sign`, and have the site join",
        )


def public_key(certificate: str) -> Any:
    return x509.load_pem_x509_certificate(certificate.encode()).public_key()
