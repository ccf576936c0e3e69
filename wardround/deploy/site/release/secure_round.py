"""A site's part in a round of which only the sum is opened: it masks one answer a round, and helps to open one sum.

The steps are those of `wardround.privacy.secure_sum.site`. Secrets are kept in memory only: a process that was started
again has lost them and stays out of that attempt, which the others bridge or repeat. What must never happen twice is on
the disk first (`sum_records`). Whatever the coordinator's messages say:

- A nonce is used once, so there is one session of each name, in which each step is done once.
- A round has one answer. Attempts that failed before an opening repeat it; under [privacy] the same noised numbers.
- A round is closed before anything of it is revealed: nothing but the same words, for the same question, leaves then.
- A site that masked in one attempt joins another of the same round only with so many of the same sites that the first
  can no longer be opened, even if those who may collude would help: each of the others has left it by joining.
- A model is answered in one round. Else the same question would be answered by two groups of sites, and the difference
  of two sums is one site's answer.
- In a study a site helps to open sums of at most so many different groups as the threshold of all its sites is. An
  opening takes a threshold of sites, so n sites open sums of at most n groups (of 4 n / 3 where a third collude, who do
  not count). k groups allow k - 1 independent differences, so no more single answers can come out (roughly: models
  differ from round to round) than if every site had been away once. With a further group one waits for a known one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.agreed_words import agreed_in
from wardround.deploy.protocol.requests import Received, SecureStep
from wardround.deploy.protocol.ring_bytes import arrays_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.release.privacy_guard import charged_request
from wardround.deploy.site.release.sum_records import MaskedAttempt, SumOpening, SumRecords
from wardround.deploy.trust.certificates import Key
from wardround.privacy.secure_sum.fixed_point import ring_vector
from wardround.privacy.secure_sum.masks import Ring
from wardround.privacy.secure_sum.messages import SumMessage, from_json, to_json
from wardround.privacy.secure_sum.session import FEWEST, RING_BITS, Session, model_hash, session_from_json, threshold_of
from wardround.privacy.secure_sum.site import (
    SumSite,
    advertise,
    agree,
    check,
    mask,
    open_shares,
    refuse_mask,
    reveal,
    share,
)
from wardround.study.file import Study

Header = dict[str, Any]
PublicKeys = dict[str, ec.EllipticCurvePublicKey]
ACTS = {"share": share, "check": check, "open": open_shares, "agree": agree}


@dataclass(frozen=True)
class SumTerms:
    """What the approved study says of its secure sums, and all that the answer at hand follows from (as a hash)."""

    precision: tuple[int, float]
    sites: tuple[str, ...]
    fewest: int
    """Answers in a sum, at least."""
    noised: bool
    request: str
    silent: bool = False
    """Whether answers tell nothing, so that a model may be asked about again."""
    ring_bits: int = RING_BITS


def sum_terms(
    study: Study,
    sites: tuple[str, ...],
    asked: Received[SecureStep],
    precision: tuple[int, float],
    *,
    smallest: int,
    silent: bool,
    ring_bits: int = RING_BITS,
) -> SumTerms:
    """`sites` are all of the study where it does not name them itself; `smallest` is the policy's smallest sum."""
    # Below the policy's smallest sum there must be noise; the study's own smallest number holds in any case.
    fewest = max(FEWEST, study.deploy.quorum or 0, 0 if study.privacy is not None else smallest)
    approved = tuple(sorted(study.deploy.sites)) or sites
    return SumTerms(precision, approved, fewest, study.privacy is not None, charged_request(asked), silent, ring_bits)


@dataclass
class SecureSite:
    """One study's secure sums at one site; `answer` trains and gives the fixed answer, none if it is not finite."""

    name: str
    folder: Path
    signing: Callable[[], tuple[Key, x509.Certificate]]
    """The site's own key, and the certificate of the consortium's authority."""
    roster_keys: Callable[[tuple[str, ...], Mapping[str, Any]], PublicKeys]
    """The keys of a roster with its certificates; refused unless they are the approved study's."""
    state: SumSite | None = None
    records: SumRecords = field(init=False)
    _answer: tuple[int, str, Ring] | None = None
    """The last answer: its round, what it follows from, its numbers."""

    def __post_init__(self) -> None:
        self.records = SumRecords(self.folder)

    def step(
        self, asked: Received[SecureStep], message: Message, terms: SumTerms, answer: Callable[[], Message | None]
    ) -> tuple[Header, Message]:
        """One step of the attempt that the header proposes; gives this site's letter."""
        session, step = session_from_json(asked.question.session), asked.question.step
        refuse_other(session, asked, terms)
        opening = self.records.of(session.round).opening
        if opening is not None:
            return repeat_opening(opening, session, step, asked.question.letter)
        if step == "advertise":
            return self._begin(session, terms, asked.question.certificates or {})
        state = self.state
        if state is None or state.session != session:
            raise Refusal(
                "this site no longer takes part in this attempt",
                where=f"secure sum of round {session.round}",
                remedy="start the round again",
            )
        request = from_json(asked.question.letter)
        if step == "mask":
            return self._mask(state, request, message, terms, answer)
        if step == "reveal":
            return self._reveal(state, request)
        if step not in ACTS:
            raise Refusal(f"a secure sum has no step called '{step}'", remedy="compare the versions of wardround")
        after, letter = ACTS[step](state, request)
        if step == "share":
            self._refuse_doubling(after)
        if step == "agree":
            self._refuse_survivors(after, terms)
        self.state = after
        return letter_reply(letter)

    def _begin(self, session: Session, terms: SumTerms, certificates: Mapping[str, Any]) -> tuple[Header, Message]:
        before = [number for number, one in self.records.rounds.items() if one.model == session.model]
        if any(number != session.round for number in before) and not terms.silent:
            raise Refusal(
                f"this model was answered in round {before[0]}: the same question to two groups of sites would "
                "reveal single answers",
                where=f"secure sum of round {session.round}",
                remedy="end the study where the model no longer changes, or offer it again",
            )
        key, _ = self.signing()
        keys = self.roster_keys(session.roster, certificates)
        self.records.use_nonce(session.nonce)
        self.state, letter = advertise(session, self.name, key, keys)
        return letter_reply(letter)

    def _mask(
        self,
        state: SumSite,
        request: SumMessage,
        message: Message,
        terms: SumTerms,
        answer: Callable[[], Message | None],
    ) -> tuple[Header, Message]:
        session = state.session
        # What the masks are bound to must be what this site got itself.
        if model_hash(message, agreed_in(self.folder)) != session.model:
            raise Refusal(
                "the model or the preparation of this site is not the one that was announced to all",
                remedy="start the round again",
            )
        made = self.records.of(session.round)
        if made.request and made.request != terms.request:
            raise Refusal(
                "this round was already asked something else: a round has one answer",
                where=f"secure sum of round {session.round}",
                remedy="ask again what was asked before, or go on with the next round",
            )
        refuse_mask(state, request)  # all that can be wrong, before anything is trained or debited
        vector = self._vector(session.round, terms, answer)
        if vector is None:
            self.state = None
            return {"status": Status.DIVERGED}, Message({})
        after, letter = mask(state, request, vector)
        attempt = MaskedAttempt(session.hex, session.roster, session.threshold, session.colluding)
        self.records.masked(session.round, terms.request, session.model, attempt)
        point("site.mask.recorded")
        self.state = after
        return letter_reply(letter, session.ring_bits)

    def _vector(self, number: int, terms: SumTerms, answer: Callable[[], Message | None]) -> Ring | None:
        """The round's answer: made once, however many attempts there are; none where it is not finite."""
        if self._answer is not None and self._answer[:2] == (number, terms.request):
            return self._answer[2]
        vector = self.records.kept_answer(number, terms.request) if terms.noised else None
        if vector is None:
            made = answer()
            if made is None:
                return None
            vector = ring_vector(made)
            if terms.noised:
                self.records.keep_answer(number, terms.request, vector)
        self._answer = number, terms.request, vector
        return vector

    def _reveal(self, state: SumSite, request: SumMessage) -> tuple[Header, Message]:
        after, letter = reveal(state, request)
        opening = SumOpening(state.session.hex, state.survivors, letter_hash(to_json(request)), to_json(letter))
        self.records.close(state.session.round, opening)
        point("site.reveal.recorded")
        self.state, self._answer = after, None
        return letter_reply(letter)

    def _refuse_doubling(self, after: SumSite) -> None:
        """Refuse an attempt while an earlier one, in which this site masked, could still be opened."""
        there = set(after.adverts)
        for one in self.records.of(after.session.round).attempts:
            # Each honest site that is there has left the earlier attempt for good; those who collude may have not.
            if len(there & set(one.roster)) <= len(one.roster) - one.threshold + one.colluding:
                raise Refusal(
                    f"{self.name} has masked its answer in an earlier attempt, which could still be opened: too few "
                    "of its sites are in this one",
                    where=f"secure sum of round {after.session.round}",
                    remedy="repeat the round when more of the same sites are there",
                )

    def _refuse_survivors(self, after: SumSite, terms: SumTerms) -> None:
        names = after.survivors
        if len(names) < terms.fewest:
            raise too_few(len(names), terms.fewest, after.session)
        known = {one.opening.survivors for one in self.records.rounds.values() if one.opening is not None}
        approved = after.session.approved
        if names not in known and len(known) >= threshold_of(approved, after.session.colluding):
            raise Refusal(
                f"sums of {len(known)} different groups of sites were opened in this study, and each further one "
                "would reveal more of single answers",
                where=f"secure sum of round {after.session.round}",
                remedy="repeat the round when the sites of one of these groups are there",
            )


def refuse_other(session: Session, asked: Received[SecureStep], terms: SumTerms) -> None:
    """Refuse a session that is not one of the approved study."""
    if (session.study, session.round) != (asked.study, asked.round):
        raise Refusal("the secure sum belongs to another study or round", remedy="start the round again")
    if (session.fraction_bits, session.bound) != terms.precision or session.ring_bits != terms.ring_bits:
        raise Refusal("the approved study has another precision", remedy="ask for what was approved")
    strange = [site for site in session.roster if site not in terms.sites]
    if strange or session.approved != len(terms.sites):
        raise Refusal(
            f"{strange[0]} takes no part in the approved study"
            if strange
            else f"the approved study has {len(terms.sites)} sites, not {session.approved}",
            where=f"secure sum of round {session.round}",
            remedy="ask for what was approved",
        )
    if len(session.roster) < terms.fewest:
        raise too_few(len(session.roster), terms.fewest, session)


def too_few(count: int, fewest: int, session: Session) -> Refusal:
    return Refusal(
        f"a sum of {count} answers was requested, and {fewest} is the smallest number that the approved study and "
        "this site's policy allow",
        where=f"secure sum of round {session.round}",
        remedy="wait until more sites are there",
    )


def repeat_opening(opening: SumOpening, session: Session, step: str, letter: Any) -> tuple[Header, Message]:
    """The same words for the same question, and nothing else of a round that is closed."""
    if step != "reveal" or (opening.session, opening.asked) != (session.hex, letter_hash(letter)):
        raise Refusal(
            "this round was already opened: a second sum over other sites would reveal a single answer",
            where=f"round {session.round}",
            remedy="go on with the next round",
        )
    return {"letter": dict(opening.letter)}, Message({})


def letter_hash(letter: Any) -> str:
    return sha256(json.dumps(letter, sort_keys=True).encode()).hexdigest()


def letter_reply(letter: SumMessage, ring_bits: int = RING_BITS) -> tuple[Header, Message]:
    return {"letter": to_json(letter)}, Message(arrays_of(letter.vector, ring_bits))
