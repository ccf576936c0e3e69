"""Takes every request of the coordinator at the second server; what came and what leaves is in its audit log."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.party.decisions import decision_status, read_offer, store_offer, study_of
from wardround.deploy.party.own_questions import ITSELF, answer_about_itself
from wardround.deploy.protocol.replies import public_reason, reply_to, shapes_of
from wardround.deploy.protocol.requests import (
    OfferStudy,
    Topic,
    read_request,
    refuse_unknown_words,
    require_small,
    study_in,
)
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import Malformed, decode_arrays, decode_header, require_spoken
from wardround.deploy.second.home import SecondHome
from wardround.deploy.second.robust_sum import RobustSums, RoundClosed, refuse_size
from wardround.deploy.trust.audit_log import event_entry, has_withdrawal, sent_entry
from wardround.deploy.trust.certificates import read_certificate
from wardround.deploy.trust.membership_witness import require_membership
from wardround.deploy.trust.pins import read_partners

COORDINATOR = "server"
"""The only one who asks, by the name that its certificate has on the network."""


class SecondHandler:
    """One second server; `on_refusal` hears (topic, why)."""

    def __init__(self, home: SecondHome, on_refusal: Callable[[str, str], None] = lambda topic, why: None) -> None:
        self.home, self.on_refusal = home, on_refusal
        self._one, self._about = threading.Lock(), threading.Lock()

    def answer(self, topic: str, origin: str, content: bytes) -> bytes:
        """The reply to a request; whatever is wrong with it is told in one paragraph."""
        header: dict[str, Any] = {}
        try:
            header, rest = decode_header(content)
            if origin != COORDINATOR:
                raise Refusal(f"'{origin}' is not the coordinator", remedy="only the coordinator may ask")
            require_spoken(header, "the second server")
            if topic in ITSELF:
                require_small(content)
                decode_arrays(header, rest, copies=False)
                with self._about:  # what it reads and writes of the home must not change in between
                    return self._reply(header, {"status": Status.OK, **answer_about_itself(self.home, topic, header)})
            with self._one:
                return self._about_study(topic, header, rest, content)
        except Malformed as error:
            status, why = Status.REFUSED, f"the request cannot be read: {error}"
        except Refusal as refusal:
            self.on_refusal(topic, str(refusal))
            status = Status.CLOSED if isinstance(refusal, RoundClosed) else Status.REFUSED
            return self._reply(header, {"status": status, "why": public_reason(refusal, "the second server")})
        except OSError as error:  # a full disk, mostly: not for ever, so the coordinator is to ask again
            status, why = Status.WAITING, f"the second server cannot write or read its files: {error.strerror or error}"
        except Exception as error:  # a fault of ours, mostly: no request may end the process
            status, why = Status.REFUSED, f"the request does not make sense here ({type(error).__name__})"
        self.on_refusal(topic, why)
        return self._reply(header, {"status": status, "why": why})

    def may_still_leave(self, content: bytes) -> bool:
        """Before each part of an answer that is sent in parts: the study is still approved."""
        try:
            return self._state(study_in(decode_header(content)[0]))[0] is Status.OK
        except (Refusal, Malformed, OSError):
            return False

    def _state(self, study: str) -> tuple[Status, str]:
        state, why = decision_status(self.home, study)
        if state is Status.OK and has_withdrawal(self.home.audit_path, study):  # an approval put back from a copy
            return Status.WITHDRAWN, f"{self.home.own_name} withdrew from it, by its audit log"
        return state, why

    def _about_study(self, topic: str, header: dict[str, Any], rest: memoryview, content: bytes) -> bytes:
        study = study_in(header)
        if topic == Topic.OFFER:
            require_small(content)
            decode_arrays(header, rest, copies=False)
            refuse_unknown_words(Topic.OFFER, header)
            offer: OfferStudy = read_request(Topic.OFFER, header).question
            store_offer(self.home, study, offer.content, offer.submitter)
        state, why = self._state(study)
        if topic == Topic.OFFER or state is not Status.OK:
            return self._reply(header, {"status": state, "why": why})
        if topic != Topic.OPEN:
            raise Refusal(f"the second server is not asked for '{topic}'", remedy="ask the sites")
        refuse_unknown_words(Topic.OPEN, header)
        request = hashlib.sha256(content).hexdigest()
        asked = read_request(Topic.OPEN, header, request)
        refuse_size(asked.question, len(content))
        message = decode_arrays(header, rest, copies=False)
        self.home.log().append(
            event_entry(
                "received",
                study=study,
                topic=topic,
                round=asked.round,
                bytes=len(content),
                sha256_of_request=request,
                sites=list(asked.question.roll),
            )
        )
        folder = self.home.folder(study)
        folder.mkdir(parents=True, exist_ok=True)
        authority = read_certificate(self.home.authority_path)
        sums = RobustSums(
            study_of(read_offer(self.home, study)),
            folder,
            self.home.key,
            authority,
            lambda roll: require_membership(self.home, roll),
            lambda: read_partners(self.home),
        )
        words, answer = sums.open(asked, message, request)
        reply = self._reply(header, {"status": Status.OK, **words}, answer)
        facts = {"study": study, "topic": topic, "round": asked.round, "to": self.home.settings.server_name}
        told = {key: words[key] for key in ("opened", "sites", "weights", "left_out")}
        sizes = {"bytes": len(reply), "sha256": hashlib.sha256(reply).hexdigest(), "arrays": shapes_of(answer.arrays)}
        self.home.log().append(sent_entry({**facts, **told, **sizes}))  # what is not written down does not leave
        return reply

    def _reply(self, header: Mapping[str, Any], words: Mapping[str, Any], message: Message | None = None) -> bytes:
        return reply_to(header, self.home.settings.name, words, message)
