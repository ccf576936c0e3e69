"""Takes every request of the coordinator at a site: refuses what is not allowed, and answers the rest.

Nothing is answered but for a study that the site has approved. The same request again gets the same bytes from the
disk, so nothing is computed, counted or charged twice, whichever side crashed. What leaves is in the audit log first,
and once: a reply is saved before it is written down, so a crash between the two can be told from one before.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from cryptography.x509 import Certificate

from wardround import __version__
from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import reply_to
from wardround.deploy.protocol.requests import OfferStudy, Received, Topic, read_request
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import PROTOCOL, Malformed, decode, start
from wardround.deploy.site.release.privacy_guard import Promise
from wardround.deploy.site.release.secure_round import SecureSite
from wardround.deploy.site.release.two_server_round import HalvesSite
from wardround.deploy.site.reply_store import EVERY_ROUND, REPEATABLE, ReplyStore, sent_facts, store_reply
from wardround.deploy.site.study_worker import StudyWorker
from wardround.deploy.trust import countersignatures
from wardround.deploy.trust.audit_log import LogNotWritable
from wardround.deploy.trust.certificates import Key
from wardround.privacy.budget import Budget, BudgetExhausted
from wardround.study.file import Study

TOPICS = tuple(topic for topic in Topic if topic not in (Topic.OFFER, Topic.OPEN))
"""Questions that need an approved study; its worker has a method of each name."""
ITSELF = ("hello", "renewal", "certificate", *countersignatures.TOPICS)
"""Questions about the site itself and no study."""
STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")


class SiteAccess(Protocol):
    """What the request handler needs of the site's home."""

    @property
    def name(self) -> str: ...

    def store_offer(self, study: str, content: Mapping[str, Any], submitter: str, others: int | None = None) -> None:
        """Put a study before the site's administrator."""
        ...

    def state(self, study: str) -> tuple[Status, str]:
        """Whether a study may ask anything now, and if not why."""
        ...

    def approved_study(self, study: str) -> Study:
        """The study as it was approved."""
        ...

    def table(self, study: Study) -> Table:
        """The site's own rows for this study, read where they lie."""
        ...

    def folder(self, study: str) -> Path: ...

    def allow(self, study: str, recipe: Recipe) -> None:
        """Raise a refusal for what the policy forbids."""
        ...

    def smallest_cell(self, study: str) -> int: ...

    def renewal_request(self) -> str:
        """A request, in PEM, for a new certificate of the same key."""
        ...

    def renew(self, certificate: str) -> None:
        """Take over a new certificate, if it is this site's and the consortium's."""
        ...

    def witness(self, topic: str, words: Mapping[str, Any]) -> dict[str, Any]:
        """Countersign the coordinator's audit log, or keep its countersignature under the own one."""
        ...

    def signing_keys(self) -> tuple[Key, Certificate]:
        """The site's own key, and the certificate of the consortium's authority."""
        ...

    def budget(self) -> Budget:
        """The site's privacy ledger, under what its policy allows now."""
        ...

    def record_sent(self, entry: Mapping[str, Any]) -> None:
        """Write down what is about to leave; returns when it is on the disk."""
        ...

    def has_sent(self, sha256: str) -> bool:
        """Whether something with this hash was written down as leaving."""
        ...


class RequestHandler:
    """Answers requests, one at a time; `on_refusal` hears (topic, why) of refusals, in words that stay at the site."""

    def __init__(
        self,
        access: SiteAccess,
        coordinator: str = "server",
        on_refusal: Callable[[str, str], None] = lambda topic, why: None,
    ) -> None:
        self.access, self.coordinator, self.on_refusal = access, coordinator, on_refusal
        self._lock = threading.Lock()
        self._workers: dict[str, StudyWorker] = {}
        self._replies = ReplyStore()

    def handler_for(self, topic: str) -> Callable[[str, bytes], bytes]:
        """The handler of one topic."""
        return lambda origin, content: self.answer(topic, origin, content)

    def answer(self, topic: str, origin: str, content: bytes) -> bytes:
        header: dict[str, Any] = {}
        try:
            header, message = decode(content, copies=False)
            study = self._check(topic, origin, header)
            if study is None:
                return self._status_reply(header, Status.OK, **self._answer_about_site(topic, header))
            with self._lock:
                point("site.request.received")
                return self._answer_for(topic, study, header, message, content)
        except Malformed as error:
            why = own = f"the request cannot be read: {error}"
        except BudgetExhausted as refusal:  # for good, so the coordinator is not to ask for rounds again
            self.on_refusal(topic, str(refusal))
            return self._status_reply(header, Status.SPENT, public_reason(refusal))
        except Refusal as refusal:
            why, own = public_reason(refusal), str(refusal)
        except OSError as error:  # a full disk, mostly: not for ever, so the coordinator is to ask again
            return self._status_reply(
                header, Status.WAITING, f"the site cannot write or read its files: {error.strerror or error}"
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            # The error's own words may quote what is in a table, so they stay here.
            why = f"the request does not make sense here ({type(error).__name__})"
            own = f"{why}: {error}"
        self.on_refusal(topic, own)
        return self._status_reply(header, Status.REFUSED, why)

    def _check(self, topic: str, origin: str, header: Mapping[str, Any]) -> str | None:
        """The study that a request is about, none for a mere greeting; refuses whom or what we do not understand."""
        if origin != self.coordinator:
            raise Refusal(f"'{origin}' is not the coordinator", remedy="only the coordinator may ask")
        if header.get("protocol") != PROTOCOL or header.get("wardround") != __version__:
            raise Refusal(
                f"the coordinator runs wardround {header.get('wardround')}, but this site runs {__version__}",
                remedy="install the same version on both",
            )
        if topic in ITSELF:
            return None
        study = header.get("study")
        if not isinstance(study, str) or not STUDY.fullmatch(study):
            raise Refusal("the request names no study", remedy="install the same version of wardround on both sides")
        return study

    def _answer_about_site(self, topic: str, header: Mapping[str, Any]) -> dict[str, Any]:
        """What is no study's: the version, the renewal of the site's certificate, the other's eye on each log."""
        if topic == "renewal":
            return {"request": self.access.renewal_request()}
        if topic == "certificate":
            self.access.renew(str(header["certificate"]))
        if topic in countersignatures.TOPICS:
            return self.access.witness(topic, header)
        return {"wardround": __version__}

    def _answer_for(self, topic: str, study: str, header: dict[str, Any], message: Message, content: bytes) -> bytes:
        if topic == Topic.OFFER:
            offer: OfferStudy = read_request(Topic.OFFER, header).question
            self.access.store_offer(study, offer.content, offer.submitter, offer.others)
        folder = self.access.folder(study) / "replies"
        state, why = self.access.state(study)
        if topic == Topic.OFFER or state is not Status.OK:
            if state is not Status.OK:
                self._workers.pop(study, None)
                self._replies.forget(folder)
            return self._status_reply(header, state, why)
        if topic not in TOPICS:
            return self._status_reply(header, Status.REFUSED, f"there is no request called '{topic}'")
        if study not in self._workers:
            self._workers[study] = self._start(study)
        private = self._workers[study].study.privacy is not None
        again = topic in REPEATABLE and not private
        # The nonce in the header stands for the arrays: a coordinator that lied with it would get an old answer again.
        request = hashlib.sha256(start(content) if again else content).hexdigest()
        noised = private and topic in EVERY_ROUND
        once = self.access.has_sent if noised else lambda sha256: False
        told = self._replies.find(folder, topic, request, again=again, once=once)
        if told is None:
            # What a debit pays for is this very request, known by the same bytes as its answer on the disk.
            words, answer = self._compute(Topic(topic), read_request(Topic(topic), header, request), message)
            reply = self._reply(header, words, answer)
            told = store_reply(reply, hashlib.sha256(reply).hexdigest(), words, answer)
            point("site.reply.before_save")
            self._replies.keep(folder, topic, request, told, again=again)
        point("site.reply.saved")
        if not self.access.has_sent(told.sha256):
            try:
                self.access.record_sent(sent_facts(study, topic, header.get("round"), self.coordinator, told))
            except LogNotWritable as refusal:  # what is not written down does not leave
                return self._status_reply(header, Status.WAITING, public_reason(refusal))
        point("site.audit.written")
        point("site.reply.ready")
        return told.reply

    def _compute(self, topic: Topic, asked: Received[Any], message: Message) -> tuple[Mapping[str, Any], Message]:
        worker = self._workers[asked.study]
        worker.smallest_cell = self.access.smallest_cell(asked.study)  # as the policy says now
        words, answer = getattr(worker, topic)(asked, message)
        return {"status": Status.OK, **words}, answer

    def _start(self, study: str) -> StudyWorker:
        """Begin to work for a study, or go on after the process was started again."""
        words = self.access.approved_study(study)
        folder = self.access.folder(study)
        folder.mkdir(parents=True, exist_ok=True)
        worker = StudyWorker(
            site=self.access.name,
            study=words,
            table=self.access.table(words),
            folder=folder,
            allow=lambda recipe: self.access.allow(study, recipe),
            smallest_cell=self.access.smallest_cell(study),
            sums=SecureSite(self.access.name, folder, self.access.signing_keys),
            halves_site=HalvesSite(self.access.name, words, folder, self.access.signing_keys),
            promise=Promise(self.access.name, study, words, self.access.budget),
        )
        worker.recall()
        return worker

    def _status_reply(self, header: Mapping[str, Any], status: Status, why: str = "", **words: Any) -> bytes:
        return self._reply(header, {"status": status, "why": why, **words}, None)

    def _reply(self, header: Mapping[str, Any], words: Mapping[str, Any], message: Message | None) -> bytes:
        return reply_to(header, self.access.name, words, message)


def public_reason(refusal: Refusal) -> str:
    """A refusal as the coordinator is told it: where the site's files lie is nobody else's business."""
    if os.sep not in refusal.where:
        return str(refusal)
    return str(Refusal(refusal.what, where="a file of the site", remedy=refusal.remedy))
