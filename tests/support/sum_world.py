"""Secure sums of three real sites whose coordinator and a fourth site lie, with every message in the tests' hands.

The sites run the real `SecureSite` with its records on the disk. Their keys follow from (site, session) here, so that a
message depends on nothing else, and a transition of a site (its state in memory and on the disk, what it is asked) is
computed once and used in all interleavings in which it happens. What the liars may do: ask any site for any step of any
attempt at any time, with all messages that were ever sent; restart any site; declare any site lost; sign anything as
the fourth site.
"""

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.support.amount import ALL
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol.requests import Received, SecureStep, TrainRound
from wardround.deploy.site.release import sum_records
from wardround.deploy.site.release.secure_round import SecureSite, SumTerms
from wardround.privacy.secure_sum import group, shamir, site
from wardround.privacy.secure_sum.fixed_point import FIXED, OUTSIDE
from wardround.privacy.secure_sum.messages import SumMessage, from_json, sign, to_json
from wardround.privacy.secure_sum.session import Session, model_hash, session_to_json

HONEST, LIAR = ("a", "b", "c"), "d"
EVERYONE = (*HONEST, LIAR)
KEYS = {name: generate_private_key(SECP256R1()) for name in EVERYONE}
PUBLIC = {name: key.public_key() for name, key in KEYS.items()}
SENT = Message({"params": {"w": np.zeros(2, np.float32)}})
TERMS = SumTerms((20, 4.0), EVERYONE, 3, False, "00" * 32)
METHOD = TrainRound({}, [], 0)


def session_of(nonce: str, roster: tuple[str, ...]) -> Session:
    return Session("study", 1, model_hash(SENT), nonce, roster, 2, 20, 4.0, 4)


SESSIONS = {
    "first": session_of("first", EVERYONE),
    "fewer": session_of("fewer", ("a", "b", "d")),
    "second": session_of("second", EVERYONE),
}
TWO = ("first", "fewer")
"""Attempts that the exhaustive search goes through."""


class Local(NamedTuple):
    """A site: what it has in memory, its files, and a number for all that its further behaviour follows from."""

    state: site.SumSite | None
    files: tuple[tuple[str, bytes], ...]
    key: int


NUMBERS: dict[Any, int] = {}


def local_of(state: site.SumSite | None, files: tuple[tuple[str, bytes], ...]) -> Local:
    memory = state and (state.session.nonce, state.step, state.survivors)
    # Signatures in the record of an opening differ from time to time, what is opened does not.
    disk = tuple(name if "nonces" in name else (name, summary(content)) for name, content in files)
    return Local(state, files, NUMBERS.setdefault((memory, disk), len(NUMBERS)))


def summary(content: bytes) -> Any:
    words = json.loads(content)
    opening = words["opening"] and (words["opening"]["session"], tuple(words["opening"]["survivors"]))
    return tuple(one["session"] for one in words["attempts"]), opening


class Draws:
    """Random numbers that follow from who draws them in which session."""

    def __init__(self) -> None:
        self.source = random.Random(0)

    def begin(self, name: str, nonce: str, step: str) -> None:
        self.source = random.Random(f"{name} {nonce} {step}")

    def randbelow(self, bound: int) -> int:
        return self.source.randrange(bound)

    def token_bytes(self, size: int) -> bytes:
        return self.source.randbytes(size)

    def random_scalar(self) -> int:
        return self.source.randrange(1, group.ORDER)

    def generate(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.source.randbytes(32))


Event = tuple[str, str, str, tuple[str, ...]]
"""(site, session, step, survivors): a message that has been sent."""


class World:
    """Real sites, and all messages that they may send."""

    def __init__(self, folder: Path, draws: Draws, *, forgetful: bool = False) -> None:
        self.folder, self.draws, self.forgetful = folder, draws, forgetful
        self.messages: dict[Event, SumMessage] = {}
        self.known: dict[Any, tuple[Local, Event | None]] = {}
        self.runs = 0
        self.liar = {name: self.lie(one) for name, one in SESSIONS.items()}

    def lie(self, session: Session) -> site.SumSite:
        """The fourth site goes through a session's keys and shares as an honest one would."""
        self.draws.begin(LIAR, session.nonce, "advertise")
        state, message = site.advertise(session, LIAR, KEYS[LIAR], PUBLIC)
        self.messages[LIAR, session.nonce, "advertise", ()] = message
        return state

    def heard(self, session: Session, step: str, extra: tuple[str, ...], sent: frozenset[Event]) -> tuple[str, ...]:
        """Which honest sites have sent what the coordinator needs for its message of this step."""
        before = {"share": "advertise", "check": "share", "reveal": "agree"}.get(step)
        told = extra if step == "reveal" else ()
        return tuple(one for one in session.roster if (one, session.nonce, before, told) in sent)

    def content(self, name: str, session: Session, step: str, extra: tuple[str, ...], heard: tuple[str, ...]) -> Any:
        """The coordinator's message, from all that was sent."""
        nonce = session.nonce
        if step == "share":
            adverts = {one: self.messages[one, nonce, "advertise", ()] for one in session.roster}
            return {"adverts": {one: {**said.content, "signature": said.signature} for one, said in adverts.items()}}
        if step == "check":
            self.deal(session)
            dealt = {one: self.messages[one, nonce, "share", ()].content for one in session.roster if one != name}
            return {
                "shares": {
                    one: {**of["sealed"][name], "commitments": of["commitments"][name]} for one, of in dealt.items()
                }
            }
        if step == "mask":
            return {"dealers": list(session.roster), "opened": {}}
        if step == "agree":
            return {"survivors": list(extra)}
        signatures = {one: self.messages[one, nonce, "agree", extra].signature for one in heard}
        if LIAR in extra:
            state = replace(self.liar[nonce], survivors=extra, held=dict.fromkeys(session.roster))
            signatures[LIAR] = sign(site.sign_agreement(state, LIAR), KEYS[LIAR]).signature
        return {"signatures": signatures}

    def deal(self, session: Session) -> None:
        if (LIAR, session.nonce, "share", ()) in self.messages:
            return
        adverts = {one: self.messages[one, session.nonce, "advertise", ()] for one in session.roster}
        words = {"adverts": {one: {**said.content, "signature": said.signature} for one, said in adverts.items()}}
        self.draws.begin(LIAR, session.nonce, "share")
        request = SumMessage("share", session.hex, "coordinator", words)
        self.liar[session.nonce], said = site.share(self.liar[session.nonce], request)
        self.messages[LIAR, session.nonce, "share", ()] = said

    def act(
        self, name: str, local: Local, session: Session, step: str, extra: tuple[str, ...], sent: frozenset[Event]
    ) -> tuple[Local, Event | None]:
        """What a site does when it is asked for a step, and what it says (none: it refuses)."""
        heard = self.heard(session, step, extra, sent)
        key = (name, local.key, session.nonce, step, extra, heard)
        if key not in self.known:
            self.known[key] = self.run(name, local, session, step, extra, heard)
        return self.known[key]

    def run(
        self, name: str, local: Local, session: Session, step: str, extra: tuple[str, ...], heard: tuple[str, ...]
    ) -> tuple[Local, Event | None]:
        if step in ("share", "check") and len(heard) < len(session.roster) - 1:
            return local, None  # the coordinator has not got what it would have to pass on
        written = None
        if step != "advertise":
            letter = self.content(name, session, step, extra, heard)
            written = to_json(SumMessage(step, session.hex, "coordinator", letter))
        self.runs += 1
        home = self.folder / str(self.runs)
        for path, content in local.files:
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(content)
        home.mkdir(exist_ok=True)
        real = SecureSite(name, home, lambda: (KEYS[name], None), lambda *given: PUBLIC, local.state)  # type: ignore[arg-type,return-value]
        question = SecureStep(METHOD, step, session_to_json(session), written, {})
        self.draws.begin(name, session.nonce, step)
        answer = Message({FIXED: {"w": np.zeros((4, 2), np.int32)}, OUTSIDE: np.float32(0)})
        try:
            said, arrays = real.step(
                Received(question, "study", 1, None, {}), SENT if step == "mask" else Message({}), TERMS, lambda: answer
            )
        except Refusal:
            return local, None
        files = tuple(
            (str(path.relative_to(home)), path.read_bytes()) for path in sorted(home.rglob("*")) if path.is_file()
        )
        event = (name, session.nonce, step, extra if step in ("agree", "reveal") else ())
        self.messages.setdefault(event, from_json(said["letter"], arrays.arrays.get("vector")))
        return local_of(real.state, files), event

    def crashed(self, local: Local) -> Local:
        return local_of(None, () if self.forgetful else local.files)


def groups(session: Session, name: str, everything: bool) -> Iterator[tuple[str, ...]]:
    """Whom the coordinator may call survivors: all, and all but one (in the quick test: but a certain one)."""
    for size in (len(session.roster), len(session.roster) - 1):
        for chosen in itertools.combinations(session.roster, size):
            if (
                name in chosen
                and len(chosen) >= session.threshold
                and (everything or chosen == session.roster or "c" not in chosen)
            ):
                yield chosen


def actions(
    name: str, sessions: Iterable[str] = TWO, everything: bool = ALL
) -> list[tuple[Session, str, tuple[str, ...]]]:
    """All that a site can be asked for."""
    found: list[tuple[Session, str, tuple[str, ...]]] = []
    for session in (SESSIONS[nonce] for nonce in sessions):
        if name in session.roster:
            found += [(session, step, ()) for step in ("advertise", "share", "check", "mask")]
            found += [
                (session, step, chosen) for chosen in groups(session, name, everything) for step in ("agree", "reveal")
            ]
    return found


def is_next(name: str, session: Session, step: str, extra: tuple[str, ...], sent: frozenset[Event]) -> bool:
    """In the quick test sites go through the first steps, in which nothing is at stake, in alphabetical order."""
    if ALL or step not in ("advertise", "share", "check"):
        return True
    before = [one for one in session.roster if one < name]
    return all((one, session.nonce, step, ()) in sent for one in before)


def opened_sums(sent: frozenset[Event]) -> set[tuple[str, tuple[str, ...]]]:
    """The sums that the liars can compute: enough shares of honest sites, and their own one."""
    reveals = [(nonce, chosen) for _, nonce, step, chosen in sent if step == "reveal"]
    return {one for one in reveals if reveals.count(one) + 1 >= SESSIONS[one[0]].threshold}


def both_secrets(sent: frozenset[Event]) -> set[tuple[str, str]]:
    """(session, dealer) of which enough shares of the mask and enough of the key have left."""
    found = set()
    for nonce, session in SESSIONS.items():
        for dealer in HONEST:
            kinds = [dealer in chosen for _, one, step, chosen in sent if (one, step) == (nonce, "reveal")]
            if min(kinds.count(True), kinds.count(False)) + 1 >= session.threshold:
                found.add((nonce, dealer))
    return found


class Found(NamedTuple):
    states: int
    most_sums: int
    doubled: set[tuple[str, str]]
    openings: set[tuple[str, tuple[str, ...]]]


def explore(world: World, most: int) -> Found:
    """All global states up to so many, from three sites that have done nothing."""
    begin = (tuple(local_of(None, ()) for _ in HONEST), frozenset[Event]())
    seen, waiting = {(tuple(one.key for one in begin[0]), begin[1])}, [begin]
    most_sums, doubled, openings = 0, set(), set()
    while waiting and len(seen) < most:
        locals_, sent = waiting.pop()
        sums = opened_sums(sent)
        most_sums, doubled, openings = max(most_sums, len(sums)), doubled | both_secrets(sent), openings | sums
        if most_sums > 1:
            break
        for place, name in enumerate(HONEST):
            local = locals_[place]
            after = [world.act(name, local, *what, sent) for what in actions(name) if is_next(name, *what, sent)]
            after.append((world.crashed(local), None))
            for changed, event in after:
                both = (*locals_[:place], changed, *locals_[place + 1 :])
                told = sent if event is None else sent | {event}
                key = (tuple(one.key for one in both), told)
                if key not in seen:
                    seen.add(key)
                    waiting.append((both, told))
    return Found(len(seen), most_sums, doubled, openings)


def repeatable_draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """Let all random numbers of the protocol follow from who draws them, while the patch lasts."""
    made = Draws()
    monkeypatch.setattr(shamir, "secrets", made)
    monkeypatch.setattr(site, "secrets", made)
    monkeypatch.setattr(group, "random_scalar", made.random_scalar)
    monkeypatch.setattr(site, "X25519PrivateKey", made)
    # The death of a process is meant here, not of a disk.
    monkeypatch.setattr(sum_records, "sync_folder", lambda path: None)
    monkeypatch.setattr(sum_records, "write_whole", lambda path, content: path.write_bytes(content))
    return made
