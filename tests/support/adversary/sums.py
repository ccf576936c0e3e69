"""A coordinator that lies in secure sums: it speaks the protocol by itself, to sites with real homes and handlers.

`study_begun` lets an honest coordinator lead a study through its first round; from then on a `SumAttacker` asks what it
likes: any round, model, roster, nonce, survivors and header. It learns what the protocol's own server would compute.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.support.in_process import Consortium, Died
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.events import RoundDone
from wardround.deploy.coordinator.secure_round import public_key
from wardround.deploy.protocol.agreed_words import agreed_in
from wardround.deploy.protocol.wire import decode, digest, encode
from wardround.privacy.secure_sum.messages import SumMessage, from_json, sign, to_json
from wardround.privacy.secure_sum.server import Server, advance, receive, start_sum, unmask_sum
from wardround.privacy.secure_sum.session import Session, model_hash, session_to_json

REBUILT = ("step", "session", "letter", "certificates", "nonce", "round")


@dataclass
class Attempt:
    """How far an attempt came: the sum if it was opened, who refused what at which step, and what was asked last."""

    session: Session
    server: Server
    total: np.ndarray | None = None
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    letters: dict[str, SumMessage] = field(default_factory=dict)
    said: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """What sites said, by site and step."""


def study_begun(consortium: Consortium, study: Any) -> tuple[dict[str, Any], Message]:
    """The header and the model of an honest first round; the honest coordinator dies when it is done."""
    seen: list[bytes] = []
    ask = consortium.ask

    def listening(site: str, topic: str, body: bytes, within: float) -> bytes:
        if topic == "secure" and decode(body)[0]["step"] == "mask":
            seen.append(body)
        return ask(site, topic, body, within)

    def die(event: Any) -> None:
        if isinstance(event, RoundDone):
            raise Died

    consortium.ask = listening
    try:
        consortium.conduct(study, die)
    except Died:
        pass
    finally:
        consortium.ask = ask
    return decode(seen[-1])


@dataclass
class SumAttacker:
    """Leads sums among the sites of a consortium in a study that has begun."""

    consortium: Consortium
    header: Mapping[str, Any]
    sent: Message

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.consortium.names))

    @property
    def agreed(self) -> str:
        """What the sites agreed on in the study."""
        return agreed_in(self.consortium.homes[self.names[0]].folder(self.header["study"]))

    def session(self, number: int, sent: Message, **changes: Any) -> Session:
        old = self.header["session"]
        words = {
            "study": self.header["study"],
            "round": number,
            "model": model_hash(sent, self.agreed),
            "nonce": secrets.token_hex(16),
            "roster": self.names,
            "entries": old["entries"],
            "fraction_bits": old["fraction_bits"],
            "bound": old["bound"],
            "approved": len(self.names),
        }
        return Session(**{**words, **changes})

    def ask(
        self, site: str, step: str, session: Session, letter: Any, sent: Message, **words: Any
    ) -> tuple[dict[str, Any], Message]:
        header = {key: value for key, value in self.header.items() if key not in REBUILT}
        header |= {"round": session.round, "step": step, "session": session_to_json(session), "letter": letter}
        if step == "advertise":
            known = self.consortium.certificates()
            header["certificates"] = {name: known[name] for name in session.roster if name in known}
        header |= words
        message = sent if step == "mask" else Message({})
        body = encode({**header, "nonce": digest(header, message)[:32]}, message)
        return decode(self.consortium.handlers[site].answer("secure", "server", body))

    def attempt(
        self,
        session: Session,
        sent: Message,
        *,
        lost: Iterable[str] = (),
        until: str = "reveal",
        revealing: Iterable[str] | None = None,
        before: Callable[[str], None] = lambda step: None,
        **words: Any,
    ) -> Attempt:
        """All steps up to one; `lost` are declared lost though their masked vectors came, `words` go into headers."""
        keys = {name: public_key(self.consortium.certificates()[name]) for name in session.roster}
        one = Attempt(session, start_sum(session, keys))
        letters: Mapping[str, SumMessage | None] = dict.fromkeys(session.roster)
        while True:
            step = one.server.step
            before(step)
            for site in sorted(letters):
                if step == "reveal" and revealing is not None and site not in revealing:
                    continue
                letter = letters[site]
                written = None if letter is None else to_json(letter)
                said, answer = self.ask(site, step, session, written, sent, **words)
                one.said[site, step] = said
                if said["status"] != "ok":
                    one.refused[site] = (step, said["why"])
                elif not (step == "mask" and site in lost):
                    vector = answer.arrays.get("vector")
                    read = from_json(said["letter"], None if vector is None else np.asarray(vector))
                    one.server = receive(one.server, read)
            try:
                if step == "reveal":
                    one.total = unmask_sum(one.server)
                if step == until:
                    return one
                one.server, one.letters = advance(one.server)
            except Refusal:
                return one
            letters = one.letters


def bad_dealer(consortium: Consortium, site: str, holder: str) -> Callable[[str, str, dict[str, Any], bytes], bytes]:
    """For `Consortium.change`: this site seals rubbish for one holder, and signs it with its own true key."""

    def change(name: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if name != site or topic != "secure" or header["step"] != "share":
            return reply
        words, message = decode(reply)
        if words["status"] != "ok":
            return reply
        letter = from_json(words["letter"])
        sealed = dict(letter.content["sealed"])
        sealed[holder] = {**sealed[holder], "sealed": "00" * 80}
        changed = sign(replace(letter, content={**letter.content, "sealed": sealed}), consortium.homes[site].key)
        return encode({**words, "letter": to_json(changed)}, message)

    return change
