"""The coordinator's part in a round of which only the sum is opened: passes messages on, and never sees an answer.

An attempt that fails before anything is revealed is repeated with a new nonce. A site whose shares are not good is
named and left out before anybody masks; with too few others the study ends and says so. Before it asks the sites to
reveal, the coordinator writes down all it needs to open the sum (`sum_checkpoint`); if it dies then, it asks the same
again and gets the same bytes. It waits for sites that went away while they revealed. A round that cannot be opened any
more, since too many of them have lost their secrets, ends the study: no site would open it twice, nor answer the same
model in another round.

A sum beyond what so many answers within the bound can add up to is not used: a site sent something else than an
answer. Which one cannot be told from a sum; a proof by every site that its numbers are within the bound would cost
minutes a round with a million of them (docs/decisions/0018-verifiable-shares.md). Two servers see lengths, and can.
"""

import math
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
from wardround.deploy.coordinator.events import AnswersGathered
from wardround.deploy.coordinator.gather import NOT_CONNECTED, Absences, GatheredAnswers, reasons_of
from wardround.deploy.coordinator.sum_checkpoint import load_sum, save_sum
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.agreed_words import agreed_by
from wardround.deploy.protocol.replies import Absence
from wardround.deploy.protocol.requests import SecureStep, Topic, TrainRound
from wardround.deploy.protocol.ring_bytes import read_vector
from wardround.deploy.protocol.secure_precision import NOISE_ROOM, precision_of, ring_bits_of
from wardround.deploy.protocol.status import Status
from wardround.engine.checks import divergence
from wardround.privacy.secure_sum.fixed_point import FIXED
from wardround.privacy.secure_sum.masks import Ring
from wardround.privacy.secure_sum.messages import STEPS, BadMessage, SumMessage, VerifyingKey, from_json, to_json
from wardround.privacy.secure_sum.server import (
    Server,
    advance,
    receive,
    start_sum,
    unanswered_complaints,
    unmask_sum,
)
from wardround.privacy.secure_sum.session import (
    FEWEST,
    Session,
    model_hash,
    most_colluding,
    session_to_json,
    smallest_roster,
    threshold_of,
)
from wardround.study.assemble import participation_of
from wardround.study.file import Study

if TYPE_CHECKING:
    from wardround.deploy.coordinator.engine import Deployment

Steps = Callable[[str], SecureStep]
Gather = Callable[[Sequence[str], Steps, Message], GatheredAnswers]
"""(sites, a question for each, message) to the answers and, for the other sites, the reasons."""
MAY_RETURN = (None, Status.WAITING)
"""What sites say, or leave unsaid, that may still reveal their shares."""


class OpenedSum(NamedTuple):
    """The sum of those who took part, how many bytes each sent, and why others did not."""

    total: Ring
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
    approved: int
    """How many sites the study has."""
    agreed: str
    """The hash of what the sites agreed on before the first round."""
    departed: Callable[[], Absences]
    """Sites that have left for good."""
    rest: Callable[[], None]
    tell: Callable[[tuple[str, ...], Absences], None]
    """Who has revealed its shares, and why others have not, while these are waited for."""
    ring_bits: int = 64
    noise_room: int = 0
    """How far noise may take a site's whole numbers past the bound."""
    limit: str = ""
    """What an answer must keep to, in words."""
    bad: set[str] = field(default_factory=set)
    """Sites whose answer goes past it; asked again they would say the same."""
    faulty: Absences = field(default_factory=dict)
    """Sites that dealt shares which are not what they must be."""
    nonsense: set[str] = field(default_factory=set)
    """Sites that said something in the last attempt that cannot be right."""
    refusing: Absences = field(default_factory=dict)
    """Sites that would not even begin the last attempt."""
    refused: Absences = field(default_factory=dict)
    """Sites that began the last attempt, and refused a later step."""
    since: dict[str, float] = field(default_factory=dict)
    """Since when sites have refused later steps, attempt after attempt."""
    sizes: dict[str, int] = field(default_factory=dict)
    reasons: Absences = field(default_factory=dict)
    commitments: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number:08d}.sum"

    def attempt(self, roster: Sequence[str], quorum: int) -> OpenedSum:
        """One attempt among these sites; raises TooFew where it failed before anything was revealed."""
        bits, bound = self.precision
        nonce, names = secrets.token_hex(16), tuple(sorted(roster))
        model = model_hash(self.sent, self.agreed)
        session = Session(self.study, self.number, model, nonce, names, self.entries, bits, bound, self.approved)
        session = replace(session, ring_bits=self.ring_bits)
        server = start_sum(session, {name: self.keys[name] for name in names})
        letters: Mapping[str, SumMessage | None] = dict.fromkeys(names)
        self.refusing, self.refused, self.nonsense = {}, {}, set()
        while True:
            server = self._collect(server, letters)
            if server.step == "open":
                found = {site: Absence(why) for site, why in unanswered_complaints(server).items()}
                self.faulty |= found
                self.reasons |= found
            # With fewer than the quorum left before anybody masks, nobody needs to: it would be for nothing.
            fewest = max(server.fewest, quorum if STEPS.index(server.step) <= STEPS.index("mask") else 0)
            if len(server.remaining) < fewest:
                raise TooFewSites
            server, asked = advance(server)
            if server.step == STEPS[-1]:
                break
            letters = asked
        save_sum(self.path, server, asked, self.commitments)
        point("coordinator.sum.saved")
        return self._open(server, asked)

    def resume(self) -> OpenedSum | None:
        """Open what was about to be opened when this process died; none where nothing was."""
        kept = load_sum(self.path, self.keys, model_hash(self.sent, self.agreed))
        if kept is None:
            return None
        server, letters, self.commitments = kept
        return self._open(server, letters)

    def _open(self, server: Server, letters: Mapping[str, SumMessage]) -> OpenedSum:
        """Ask for the shares until there are enough; the same question, so whoever said them says the same."""
        waiting, threshold = dict(letters), server.session.threshold
        while True:
            server = self._collect(server, waiting)
            waiting = {site: letter for site, letter in waiting.items() if site not in server.revealed}
            if len(server.revealed) >= threshold:
                break
            # Who says something else than its shares has lost its secrets, and would say the same again.
            gone = {site for site in waiting if self.reasons[site].status not in MAY_RETURN}
            gone |= self.nonsense | self.departed().keys()
            waiting = {site: letter for site, letter in waiting.items() if site not in gone}
            if len(server.revealed) + len(waiting) < threshold:
                lost = "; ".join(f"{site}: {self.reasons[site]}" for site in sorted(letters) if site in self.reasons)
                raise Refusal(
                    f"the sum cannot be opened: {len(server.revealed)} sites revealed their shares, {threshold} are "
                    f"needed, and too many have lost theirs ({lost})",
                    where=f"round {self.number}",
                    remedy="offer the study again: no site answers the same model twice",
                )
            self.tell(tuple(sorted(server.revealed)), {site: self.reasons[site] for site in waiting})
            self.rest()
        took = {site: self.sizes.get(site, 0) for site in sorted(server.survivors)}
        total = unmask_sum(server)
        self._refuse_range(total, len(took))
        point("coordinator.sum.opened")
        return OpenedSum(total, took, self.reasons, {site: self.commitments[site] for site in took})

    def _refuse_range(self, total: Ring, answers: int) -> None:
        bits, bound = self.precision
        most = answers * (math.ceil(bound * 2.0**bits) + self.noise_room)
        signed = total.view(np.int64)
        if int(signed.max()) > most or int(signed.min()) < -most:
            raise Refusal(
                f"the sum has numbers beyond what {answers} answers of up to {bound:g} add up to: a site has sent "
                "something else than an answer, and the sum does not tell which",
                where=f"round {self.number}",
                remedy="find the site with the transform two_servers, which sees lengths, or offer the study to fewer",
            )

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
                letter = from_json(one.header.get("letter"), read_vector(one.message, session, site))
                if letter.sender != site:
                    raise BadMessage(site, f"it sent a message from {letter.sender}", step=step)
                server = receive(server, letter)
                self.sizes[site] = self.sizes.get(site, 0) + one.size
                if step == "mask":
                    self.commitments[site] = one.sha256
            except Refusal as refusal:
                absent[site] = Absence(str(refusal))
                self.nonsense.add(site)
                if step != STEPS[-1] and one.status is not Status.DIVERGED:  # asked again it would say the same
                    self.faulty[site] = absent[site]
        if first:
            self.refusing = {site: one for site, one in absent.items() if one.status is Status.REFUSED}
        else:
            self.refused |= {site: one for site, one in absent.items() if one.status is Status.REFUSED}
        unusable = {site: one for site, one in absent.items() if one.unusable}
        self.nonsense |= unusable.keys()
        if step != STEPS[-1]:
            self.faulty |= unusable
        self.reasons |= absent
        return server

    def leave_out_refusing(self, patience: float, *, all_there: bool) -> None:
        """After an attempt failed: who has refused a step in all of them for so long would refuse for ever.

        While somebody is away it may be for that: some sums are refused until more sites are there.
        """
        now = time.monotonic()
        self.since = {site: self.since.get(site, now) for site in self.refused} if all_there else {}
        self.faulty |= {site: self.refused[site] for site, at in self.since.items() if now - at > patience}


def sum_answers(
    engine: "Deployment", algorithm: Algorithm, cohort: Sequence[str], number: int, sent: Message, shapes: Message
) -> OpenedSum:
    """The sum of a round's answers."""
    entries = sum(int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(shapes.arrays[FIXED]))
    precision = precision_of([recipe_of(transform) for transform in engine.transforms])
    one = secure_round(engine, engine.method(algorithm), number, sent, entries, precision)
    one.ring_bits = ring_bits_of([recipe_of(transform) for transform in engine.transforms])
    one.noise_room = NOISE_ROOM if dict(recipe_of(algorithm).settings).get("whole_numbers") else 0
    return repeat_attempts(engine, one, cohort, lambda here: engine.begin_at(algorithm, here))


def secure_round(
    engine: "Deployment",
    method: TrainRound,
    number: int,
    sent: Message,
    entries: int,
    precision: tuple[int, float],
) -> SecureRound:
    """One round of which only the sum is opened, among the sites of this engine."""
    assert engine.sums is not None, "a secure sum needs a folder"
    gatherer = engine.gatherer
    certificates = dict(gatherer.transport.certificates())

    def gather(sites: Sequence[str], steps: Steps, message: Message) -> GatheredAnswers:
        return gatherer.ask_once(sites, steps, message, number)

    return SecureRound(
        study=gatherer.study,
        number=number,
        method=method,
        sent=sent,
        entries=entries,
        precision=precision,
        certificates=certificates,
        keys={site: public_key(text) for site, text in certificates.items()},
        gather=gather,
        folder=engine.sums,
        approved=len(engine.sites),
        agreed=agreed_by(engine.introductions),
        departed=gatherer.departed_sites,
        rest=gatherer.rest,
        tell=lambda here, away: gatherer.observer(AnswersGathered(Topic.ROUND, number, here, reasons_of(away))),
        limit=engine.transform.limit,
    )


def repeat_attempts(
    engine: "Deployment", one: SecureRound, cohort: Sequence[str], get_ready: Callable[[Sequence[str]], Absences]
) -> OpenedSum:
    """The sum of a round's answers: goes on where a crash came, and repeats what failed before a reveal."""
    gatherer, number = engine.gatherer, one.number
    resumed = one.resume()
    pause = 0.0
    while resumed is None:
        left = {**gatherer.departed_sites(), **gatherer.spent}
        staying = gatherer.policy.require_remaining(cohort, left, number)
        if len(staying) < smallest_roster(one.approved):
            raise Refusal(
                f"{len(staying)} sites are left, and a secure sum of fewer than {smallest_roster(one.approved)} would "
                "reveal single answers",
                where=f"round {number}",
                remedy="offer the study again, to more sites or without the transform secure_sum",
            )
        quorum = max(FEWEST, min(gatherer.policy.quorum, len(staying)))
        if len(set(staying) - one.bad) < quorum:
            raise divergence(number, sorted(one.bad), one.limit)
        refuse_unusable(one, staying, quorum)
        staying = [site for site in staying if site not in one.bad and site not in one.faulty]
        pause = gatherer.pause_before_asking_again(pause)
        gatherer.wait_for(staying, quorum)
        here = [site for site in staying if site in gatherer.transport.present()]
        unready = get_ready(here)
        one.reasons = {
            **{site: NOT_CONNECTED for site in staying if site not in here},
            **unready,
            **dict.fromkeys(one.bad, Absence(f"its answer is not finite or exceeds {one.limit}")),
            **one.faulty,
            **left,
        }
        roster = [site for site in here if site not in unready]
        if len(roster) >= max(quorum, smallest_roster(one.approved)):
            try:
                return one.attempt(roster, quorum)
            except TooFewSites:
                one.leave_out_refusing(gatherer.policy.deadline, all_there=len(roster) == len(staying))
        gatherer.observer(AnswersGathered(Topic.ROUND, number, (), reasons_of(one.reasons)))
        if len(roster) == len(staying) and len(set(roster) - one.refusing.keys()) < quorum:
            raise unusable("refuse this round", one.refusing, number)
    return resumed


def refuse_unusable(one: SecureRound, staying: Sequence[str], quorum: int) -> None:
    """With too few sites left that keep to the protocol, waiting does not help."""
    if len(set(staying) - one.bad - one.faulty.keys()) < quorum:
        raise unusable("do not keep to the protocol of secure sums", one.faulty, one.number)


def unusable(what: str, reasons: Absences, number: int) -> Refusal:
    told = "; ".join(f"{site}: {why}" for site, why in sorted(reasons.items()))
    return Refusal(
        f"so many sites {what} that too few are left ({told})",
        where=f"round {number}",
        remedy="find out what is wrong at these sites, lower [deploy] quorum, or leave them out with [deploy] sites",
    )


def refuse_changing_cohorts(study: Study, sites: Sequence[str]) -> None:
    """Refuse rounds by more different groups of sites than a site helps to open sums of."""
    participation = participation_of(study, sites, study.study.seed)
    groups = {tuple(sorted(map(int, participation.cohort(number)))) for number in range(1, study.study.rounds + 1)}
    most = threshold_of(len(sites), most_colluding(len(sites)))
    if len(groups) > most:
        raise Refusal(
            f"{len(groups)} different groups of sites would take part in the rounds, and the differences of more than "
            f"{most} such sums reveal single answers",
            where="[participation]",
            remedy="let all sites take part in every round, or leave out the transform secure_sum",
        )


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
