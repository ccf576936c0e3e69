"""A whole secure sum in one process: the tests move the messages, as JSON and bytes, and choose who is lost when."""

import json
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wardround.privacy.secure_sum.messages import STEPS, SumMessage, from_json, to_json
from wardround.privacy.secure_sum.server import Server, advance, receive, start_sum, unmask_sum
from wardround.privacy.secure_sum.session import Session
from wardround.privacy.secure_sum.site import SumSite, advertise, agree, check, mask, open_shares, reveal, share

USUAL = tuple(step for step in STEPS if step != "open")
"""Where nobody complains."""
ACTS = {"share": share, "check": check, "open": open_shares, "agree": agree, "reveal": reveal}


@cache
def long_term(name: str):
    """Certificates hold ECDSA keys, the ledger Ed25519 ones: every third site here has the former."""
    if int(name[5:]) % 3 == 0:
        return ec.generate_private_key(ec.SECP256R1())
    return Ed25519PrivateKey.generate()


def session_of(count: int, entries: int, **changes) -> Session:
    roster = tuple(f"site-{i:03d}" for i in range(count))
    words = {
        "study": "triage-0123456789ab",
        "round": 7,
        "model": "ab" * 32,
        "nonce": "00" * 16,
        "roster": roster,
        "entries": entries,
        "fraction_bits": 20,
        "bound": 2.0**22,
        "approved": count,
    }
    return Session(**{**words, **changes})


def carried(message: SumMessage) -> SumMessage:
    """Over the wire and back: the words as JSON text, the vector as bytes."""
    vector = None if message.vector is None else np.frombuffer(message.vector.astype("<u8").tobytes(), "<u8")
    return from_json(json.loads(json.dumps(to_json(message))), vector)


@dataclass
class Round:
    """Goes through the steps; `said` keeps all that the coordinator ever got, `asked` all that it sent."""

    session: Session
    vectors: dict
    sites: dict[str, SumSite] = field(default_factory=dict)
    server: Server | None = None
    said: list[SumMessage] = field(default_factory=list)
    asked: dict[str, SumMessage] = field(default_factory=dict)

    @property
    def public(self):
        return {name: long_term(name).public_key() for name in self.session.roster}

    def answers(self, step: str, silent=()) -> dict[str, SumMessage]:
        """What the sites say in this step, those lost left out."""
        messages = {}
        if step == "advertise":
            self.server = start_sum(self.session, self.public)
            for name in set(self.session.roster) - set(silent):
                self.sites[name], messages[name] = advertise(self.session, name, long_term(name), self.public)
        else:
            self.server, self.asked = advance(self.server)
            for name in set(self.asked) - set(silent):
                site, request = self.sites[name], carried(self.asked[name])
                if step == "mask":
                    self.sites[name], messages[name] = mask(site, request, self.vectors[name])
                else:
                    self.sites[name], messages[name] = ACTS[step](site, request)
        return {name: carried(messages[name]) for name in sorted(messages)}

    def take(self, messages: dict[str, SumMessage]) -> None:
        for message in messages.values():
            self.server = receive(self.server, message)
            self.said.append(message)

    def until(self, last: str, silent=None) -> "Round":
        for step in USUAL[: USUAL.index(last) + 1]:
            self.take(self.answers(step, (silent or {}).get(step, ())))
        return self

    def total(self, silent=None):
        return unmask_sum(self.until("reveal", silent).server)


def vectors_of(session: Session, seed: int = 0) -> dict:
    """Any ring elements at all: the sum must be exact whatever they are."""
    generator = np.random.default_rng(seed)
    return {name: generator.integers(0, 2**64, session.entries, np.uint64) for name in session.roster}


def begun(count: int, entries: int = 5, seed: int = 0, **changes) -> Round:
    session = session_of(count, entries, **changes)
    return Round(session, vectors_of(session, seed))


def in_python(vectors, names) -> list[int]:
    """The sum modulo 2^64, with Python's own integers."""
    return [sum(int(vectors[name][i]) for name in names) % 2**64 for i in range(len(next(iter(vectors.values()))))]
