"""Takes every request of the coordinator at the second server; what came and what leaves is in its audit log."""

import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from wardround import __version__
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.text import plain_line
from wardround.deploy.protocol.replies import public_reason, reply_to
from wardround.deploy.protocol.requests import (
    OfferStudy,
    Topic,
    read_request,
    refuse_unknown_words,
    require_small,
)
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import PROTOCOL, Malformed, decode_arrays, decode_header, is_spoken
from wardround.deploy.second.approvals import second_status
from wardround.deploy.second.home import SecondHome, join_second
from wardround.deploy.second.robust_sum import RobustSums, RoundClosed, refuse_size
from wardround.deploy.site.approvals import read_offer, store_offer, study_of
from wardround.deploy.site.reply_store import shapes_of
from wardround.deploy.trust import countersignatures
from wardround.deploy.trust.audit_log import event_entry, sent_entry
from wardround.deploy.trust.certificates import make_request, pem, read_certificate
from wardround.deploy.trust.membership_witness import require_membership
from wardround.deploy.trust.pins import read_partners

COORDINATOR = "server"
"""The only one who asks, by the name that its certificate has on the network."""
ITSELF = ("hello", "renewal", "certificate", *countersignatures.TOPICS)
"""Questions about the server itself and no study."""
STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")


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
            if not is_spoken(header.get("protocol")):
                theirs, version = (plain_line(header.get(word), 40) for word in ("protocol", "wardround"))
                raise Refusal(
                    f"the coordinator speaks protocol {theirs} (wardround {version}), but the second server speaks "
                    f"{PROTOCOL} (wardround {__version__})",
                    remedy="upgrade the older one; neighbouring protocols understand each other",
                )
            if topic in ITSELF:
                require_small(content)
                decode_arrays(header, rest, copies=False)
                with self._about:  # what it reads and writes of the home must not change in between
                    return self._reply(header, {"status": Status.OK, **self._about_itself(topic, header)})
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

    def _about_itself(self, topic: str, header: Mapping[str, Any]) -> dict[str, Any]:
        if topic == "renewal":
            words = self.home.settings
            return {"request": pem(make_request(self.home.key, words.name, "second", words.organisation)).decode()}
        if topic == "certificate":
            path = self.home.path / "renewed.pem"
            write_whole(path, str(header["certificate"]).encode())
            join_second(self.home, path, self.home.authority_path)
            path.unlink()
        if topic in countersignatures.TOPICS:
            return countersignatures.answer(self.home, topic, header)
        return {"wardround": __version__, "protocol": PROTOCOL}

    def _about_study(self, topic: str, header: dict[str, Any], rest: memoryview, content: bytes) -> bytes:
        study = header.get("study")
        if not isinstance(study, str) or not STUDY.fullmatch(study):
            raise Refusal("the request names no study", remedy="install the same version of wardround on both sides")
        if topic == Topic.OFFER:
            require_small(content)
            decode_arrays(header, rest, copies=False)
            refuse_unknown_words(Topic.OFFER, header)
            offer: OfferStudy = read_request(Topic.OFFER, header).question
            store_offer(self.home, study, offer.content, offer.submitter)
        state, why = second_status(self.home, study)
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
