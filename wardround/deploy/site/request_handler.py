"""Takes every request of the coordinator at a site: refuses what is not allowed, and answers the rest.

Nothing is answered but for a study that the site has approved, and nothing leaves but what its gate lets out. The same
request again gets the same bytes from the disk, so nothing is computed, counted or charged twice, whichever side
crashed. What leaves is in the audit log first, and once: a reply is saved before it is written down, so a crash between
the two can be told from one before.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.deploy.fault_points import point
from wardround.deploy.party.own_questions import ITSELF
from wardround.deploy.party.study_ends import ENDED
from wardround.deploy.protocol.replies import public_reason, reply_to
from wardround.deploy.protocol.requests import (
    OfferStudy,
    Received,
    Topic,
    read_request,
    refuse_unknown_words,
    require_small,
    study_in,
)
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed, decode_arrays, decode_header, require_spoken
from wardround.deploy.site.analyses.worker import AnalysisWorker
from wardround.deploy.site.release.gate import (
    MASKED,
    SAID_ENOUGH,
    ReleaseClaim,
    ReleaseGate,
    place_of,
    request_of_end,
    request_of_sum,
)
from wardround.deploy.site.release.partner_questions import refuse_course
from wardround.deploy.site.release.release_list import REFUSALS, Release
from wardround.deploy.site.reply_store import (
    EVERY_ROUND,
    REPEATABLE,
    ReplyStore,
    RequestTag,
    asked_facts,
    sent_facts,
    store_reply,
)
from wardround.deploy.site.site_access import SiteAccess
from wardround.deploy.site.studies.correction import correction_of
from wardround.deploy.site.studies.own_energy import ProcessorShares
from wardround.deploy.site.studies.workers import start_worker
from wardround.deploy.site.study_worker import StudyWorker
from wardround.deploy.trust.audit_log import LogNotWritable
from wardround.privacy.budget import BudgetExhausted
from wardround.study.analyses.analysis import analysis_of
from wardround.study.file import Study

TOPICS = tuple(topic for topic in Topic if topic not in (Topic.OFFER, Topic.OPEN))
"""Questions that need an approved study; its worker has a method of each name."""
BEFORE_TRAINING = (Topic.QUERY, Topic.SETTLE, Topic.PREPARE, Topic.AGREE)
"""Questions that may be asked anew about corrected data; later ones are not."""
COUNTED = (Topic.QUERY, Topic.ANALYSIS)
"""Questions that count as statistics about a dataset, over all studies."""
HELD_SHARE = 0.375
"""Of the machine's memory, for the prepared rows of all studies together: those of one may take an eighth."""
LONGEST_REASON = 2000
"""Characters of a reason that is told."""


class StudyTurns:
    """One question of a study at a time, those of different studies side by side: a long round keeps no other waiting.

    What studies share (the audit log, the ledger, the count of statistics, approvals) is locked where it is read and
    written. Nothing is kept of a study about which nobody asks now, so made-up names fill no memory.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def of(self, study: str) -> Iterator[None]:
        """Wait until no other question of this study is being answered."""
        with self._guard:
            lock, waiting = self._locks.get(study, (threading.Lock(), 0))
            self._locks[study] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, waiting = self._locks.pop(study)
                if waiting > 1:
                    self._locks[study] = lock, waiting - 1

    def unless_asked(self, study: str, do: Callable[[], object]) -> bool:
        """Do something quick, unless somebody asks about this study now; nobody begins to in between."""
        with self._guard:
            idle = study not in self._locks
            if idle:
                do()
            return idle


class RequestHandler:
    """Answers requests, one of a study at a time; `on_refusal` hears (topic, why), in words that stay at the site."""

    def __init__(
        self,
        access: SiteAccess,
        coordinator: str = "server",
        on_refusal: Callable[[str, str], None] = lambda topic, why: None,
    ) -> None:
        self.access, self.coordinator, self.on_refusal = access, coordinator, on_refusal
        self.on_event: Callable[[str, Mapping[str, Any]], None] = lambda word, facts: None
        """Hears of a study that was offered for the first time ("offered") or ended ("ended")."""
        self._turns, self._about, self._processor = StudyTurns(), threading.Lock(), ProcessorShares()
        self._lock = threading.RLock()
        """Held while it is decided whether something leaves, and while approvals change."""
        self._statistics = threading.Lock()
        """Held from the count of all studies' statistics until one more is written down."""
        self._workers: dict[str, StudyWorker | AnalysisWorker] = {}
        self._gates: dict[str, ReleaseGate] = {}
        self._tags: dict[str, RequestTag] = {}
        self._corrections: dict[str, int] = {}
        """Which reading of the data each worker has."""
        self._nobodys = ReleaseGate((Release("refusal", "none", REFUSALS, 0, 0, ""),), 0)
        """For what is refused to whom no study of this site belongs."""
        self._nobodys.recall(access.claims(""))
        self._replies = ReplyStore()

    def answer(self, topic: str, origin: str, content: bytes) -> bytes:
        header: dict[str, Any] = {}
        try:
            header, rest = decode_header(content)
            study = self._check(topic, origin, header)
            if study is None:
                require_small(content)
                decode_arrays(header, rest, copies=False)
                with self._about:  # what it reads and writes of the home must not change in between
                    told = self.access.answer_about_itself(topic, header)
                if topic == ENDED:
                    self._announce("ended", header)
                return self._status_reply(header, Status.OK, **told)
            counted = self._statistics if topic in COUNTED else nullcontext()
            with self._turns.of(study), counted:
                point("site.request.received")
                return self._answer_for(topic, study, header, rest, content)
        except Malformed as error:
            why = own = f"the request cannot be read: {error}"
        except BudgetExhausted as refusal:  # for good, so the coordinator is not to ask for rounds again
            return self._refuse(topic, header, public_reason(refusal), str(refusal), Status.SPENT)
        except Refusal as refusal:
            why, own = public_reason(refusal), str(refusal)
        except OSError as error:  # a full disk, mostly: not for ever, so the coordinator is to ask again
            return self._status_reply(
                header, Status.WAITING, f"the site cannot write or read its files: {error.strerror or error}"
            )
        except Exception as error:  # a fault of ours, or of a component: no request may end the process
            # The error's own words may quote what is in a table, so they stay here.
            why = f"the request does not make sense here ({type(error).__name__})"
            own = f"{why}: {error}"
        return self._refuse(topic, header, why, own, Status.REFUSED)

    def may_still_leave(self, content: bytes) -> bool:
        """Before each part of an answer that is sent in parts: the study is still approved, its coordinator trusted."""
        try:
            self.access.refuse_distrusted()
            return self.access.state(study_in(decode_header(content)[0]))[0] is Status.OK
        except (Refusal, Malformed, OSError):
            return False

    def _refuse(self, topic: str, header: Mapping[str, Any], why: str, own: str, status: Status) -> bytes:
        """Refuse in words that quote no patient; each different refusal is written down once, and not without end."""
        self.on_refusal(topic, own)
        told, study = why[:LONGEST_REASON], header.get("study")
        with self._turns.of(str(study)), self._lock:
            known = isinstance(study, str) and study in self._gates
            gate = self._gates[str(study)] if known else self._nobodys
            claim = gate.refusal(topic, told)
            if known and claim is not None and not claim.slot:
                told = SAID_ENOUGH
            elif claim is not None and claim.slot:
                gate.claim(claim)
                words = {"study": str(study) if known else "", "topic": topic[:80], "why": told, **claim.words()}
                with suppress(Refusal, OSError):  # the reason why nothing can be written is itself told
                    self.access.record_refusal(words)
        return self._status_reply(header, status, told)

    def _check(self, topic: str, origin: str, header: Mapping[str, Any]) -> str | None:
        """The study that a request is about, none for a mere greeting; refuses whom or what we do not understand."""
        if origin != self.coordinator:
            raise Refusal(f"'{origin}' is not the coordinator", remedy="only the coordinator may ask")
        self.access.refuse_distrusted()
        require_spoken(header, "this site")
        return None if topic in ITSELF else study_in(header)

    def _answer_for(self, topic: str, study: str, header: dict[str, Any], rest: memoryview, content: bytes) -> bytes:
        if topic == Topic.OFFER:
            require_small(content)
            decode_arrays(header, rest, copies=False)
            refuse_unknown_words(Topic.OFFER, header)
            offer: OfferStudy = read_request(Topic.OFFER, header).question
            with self._lock:
                new = self.access.store_offer(study, offer.content, offer.submitter, offer.others, offer.amends)
            if new:
                self._announce("offered", {"study": study, "submitter": offer.submitter})
        folder = self.access.folder(study) / "replies"
        state, why = self.access.state(study)
        if topic == Topic.OFFER or state is not Status.OK:
            if state is not Status.OK:
                self._workers.pop(study, None)
                self._gates.pop(study, None)
                self._replies.forget(folder)
            return self._status_reply(header, state, why)
        if topic in BEFORE_TRAINING:
            self._forget_uncorrected(study, folder)
        if topic not in TOPICS:
            raise Refusal(f"there is no request called '{topic[:80]}'", remedy="install the same version on both")
        self._take_up(study)
        asked, message, claim = self._admit(Topic(topic), study, header, rest, content)
        private = self._workers[study].study.privacy is not None
        again = topic in REPEATABLE and not private
        noised = private and topic in EVERY_ROUND
        once = self.access.has_sent if noised else lambda sha256: False
        told = self._replies.find(folder, topic, asked.digest, again=again, once=once)
        if told is None:
            if private:
                self._gates[study].refuse_gone(claim)
            # What a debit pays for is this very request, known by the same bytes as its answer on the disk.
            with self._processor.charged_to(folder.parent):
                words, answer = self._compute(Topic(topic), asked, message, claim)
            if topic == Topic.PREPARE:
                self._make_room(study)
            reply = self._reply(header, words, answer)
            claim = claim._replace(sha256=sha256_of(reply))
            told = store_reply(reply, claim.sha256, words, answer)
            self._gates[study].release(claim, len(reply), answer.arrays, diverged=words["status"] is Status.DIVERGED)
            point("site.reply.before_save")
            self._replies.keep(folder, topic, asked.digest, told, again=again)
        point("site.reply.saved")
        with self._lock:
            state, why = self.access.state(study)  # it may have been withdrawn while the answer was made
            if state is not Status.OK:
                return self._status_reply(header, state, why)
            facts = sent_facts(study, topic, header.get("round"), self.coordinator, told, claim.words())
            try:
                self._write_down({**facts, **asked_facts(topic, header, message)}, claim._replace(sha256=told.sha256))
            except LogNotWritable as refusal:  # what is not written down does not leave
                return self._status_reply(header, Status.WAITING, public_reason(refusal))
        point("site.audit.written")
        point("site.reply.ready")
        return told.reply

    def _write_down(self, facts: Mapping[str, Any], claim: ReleaseClaim) -> None:
        """What leaves, once, and its place on the list."""
        if not self.access.has_sent(claim.sha256):
            self.access.record_sent(facts)
            self._gates[str(facts["study"])].claim(claim)

    def _take_up(self, study: str) -> None:
        """Have a worker for the study, the last of all: the last that was asked about."""
        known = self._workers.pop(study, None)
        self._workers[study] = known or self._start(study)
        if known is None:
            self._make_room(study)

    def _make_room(self, study: str) -> None:
        """Let go of studies that nobody asks about now, until prepared rows take a part of the memory only.

        Those first that were asked about longest ago. All is on the disk: asked again, a site goes on as after a start.
        """
        held = {name: bytes_held(worker) for name, worker in list(self._workers.items())}
        for other in [name for name in held if name != study]:
            if sum(held.values()) <= HELD_SHARE * psutil.virtual_memory().total:
                return
            if self._turns.unless_asked(other, partial(self._workers.pop, other, None)):
                self._replies.forget(self.access.folder(other) / "replies")
                del held[other]

    def _forget_uncorrected(self, study: str, folder: Path) -> None:
        """Read the data anew, and answer anew, where the administrator decided so."""
        corrected = correction_of(folder.parent)
        if self._corrections.setdefault(study, corrected) != corrected:
            self._corrections[study] = corrected
            self._workers.pop(study, None)
            self._gates.pop(study, None)
            self._replies.forget(folder)

    def _announce(self, word: str, facts: Mapping[str, Any]) -> None:
        with suppress(Exception):  # nobody's screen, mail server or command may keep an answer back
            self.on_event(word, {key: str(facts.get(key, "")) for key in ("study", "submitter", "state")})

    def _admit(
        self, topic: Topic, study: str, header: dict[str, Any], rest: memoryview, content: bytes
    ) -> tuple[Received[Any], Message, ReleaseClaim]:
        """The request, if the gate lets it in: on the list, not too large, and not asked before in other words."""
        gate = self._gates[study]
        asked = read_request(topic, header)
        if topic is Topic.BEGIN and asked.course is not None:
            refuse_course(self._workers[study].study, asked)
        place = place_of(asked, topic)
        gate.check_size(place, len(content))
        refuse_unknown_words(topic, header)
        message = decode_arrays(header, rest, copies=False)
        # All of its bytes: a coordinator that sent other arrays under the same words would ask something else.
        quick = topic in REPEATABLE and self._workers[study].study.privacy is None
        asked = replace(asked, digest=self._tags[study].name(content) if quick else sha256_of(content))
        if topic in MASKED:
            request = request_of_sum(asked, topic, message)
        else:
            request = request_of_end(asked, message) if topic is Topic.FINISH else asked.digest
        claim = ReleaseClaim(place.kind, place.slot or request, request)
        gate.admit(claim)
        if topic in COUNTED and not gate.has_claim(claim):
            self.access.check_statistics(study)
        return asked, message, claim

    def _compute(
        self, topic: Topic, asked: Received[Any], message: Message, claim: ReleaseClaim
    ) -> tuple[Mapping[str, Any], Message]:
        worker = self._workers[asked.study]
        worker.smallest_cell = self.access.smallest_cell(asked.study)  # as the policy says now
        worker.smallest_sum = self.access.smallest_sum(asked.study)
        try:
            words, answer = getattr(worker, topic)(asked, message)
        except (Refusal, KeyError, TypeError, ValueError, IndexError):
            if topic in COUNTED:  # that a statistic is refused may tell of the rows: it counts as one
                self.access.record_refusal({"study": asked.study, "topic": topic, **claim.words()})
                self._gates[asked.study].claim(claim)
            raise
        return {"status": Status.OK, **words}, answer

    def _start(self, study: str) -> StudyWorker | AnalysisWorker:
        """Begin to work for a study, or go on after the process was started again."""
        words = self.access.approved_study(study)
        folder = self.access.folder(study)
        folder.mkdir(parents=True, exist_ok=True)
        last = words.study.rounds if words.analysis is None else analysis_of(words).most
        gate = ReleaseGate(self.access.releases(study), last)
        gate.recall(self.access.claims(study))
        self._gates[study], self._tags[study] = gate, RequestTag(folder)
        return start_worker(self.access, study, words, self._table(words), self._take_transcript)

    def _take_transcript(self, study: str, message: Message) -> dict[str, Any]:
        """Check the coordinator's transcript; the administrator hears what does not match."""
        words, found = self.access.receive_transcript(study, message)
        if found.problems or found.remarks:
            self.on_refusal(Topic.FINISH, found.paragraph(study))
        return words

    def _table(self, study: Study) -> Table:
        """The site's rows. Why they cannot be read may quote them, so the coordinator is not told."""
        try:
            return self.access.table(study)
        except Refusal as refusal:
            self.on_refusal("table", str(refusal))
            raise Refusal(
                "the data of this site cannot be read as the study says",
                remedy="ask its administrator, who is told the reason",
            ) from None

    def _status_reply(self, header: Mapping[str, Any], status: Status, why: str = "", **words: Any) -> bytes:
        return self._reply(header, {"status": status, "why": why, **words}, None)

    def _reply(self, header: Mapping[str, Any], words: Mapping[str, Any], message: Message | None) -> bytes:
        return reply_to(header, self.access.name, words, message)


def bytes_held(worker: StudyWorker | AnalysisWorker) -> int:
    """Of prepared rows; those of an analysis are its table."""
    return sum(one.nbytes for rows in dict(worker.parts).values() for one in rows)


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
