"""Every interleaving of opening, crash, restart and replay, searched to the end; and long ones, drawn at random."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.support.amount import examples
from tests.support.sum_world import (
    HONEST,
    METHOD,
    SENT,
    SESSIONS,
    Draws,
    Event,
    World,
    actions,
    both_secrets,
    explore,
    local_of,
    opened_sums,
    repeatable_draws,
)
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.deploy.protocol.requests import Received, SecureStep
from wardround.deploy.site.release.secure_round import SecureSite, SumTerms
from wardround.privacy.secure_sum.fixed_point import FIXED, OUTSIDE
from wardround.privacy.secure_sum.messages import SumMessage, from_json, to_json
from wardround.privacy.secure_sum.server import Server, advance, receive, start_sum, unmask_sum
from wardround.privacy.secure_sum.session import Session, model_hash, session_to_json

LONG_TERM = {name: generate_private_key(SECP256R1()) for name in "abcdefg"}


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    return repeatable_draws(monkeypatch)


def test_one_sum_is_opened_in_every_interleaving(tmp_path: Path, draws: Draws) -> None:
    found = explore(World(tmp_path, draws), 10_000_000)
    assert found.most_sums == 1
    assert found.doubled == set()
    assert len(found.openings) >= 3, "rounds are opened, in more than one way"


def test_the_search_finds_what_it_looks_for(tmp_path: Path, draws: Draws) -> None:
    """With sites that forget, when they are started again, what they have opened: two sums of one round."""
    assert explore(World(tmp_path, draws, forgetful=True), 300_000).most_sums > 1


def machine_of(world: World) -> type[RuleBasedStateMachine]:
    class LyingCoordinator(RuleBasedStateMachine):
        """Asks anything of anybody, in three attempts at one round, and restarts whom it likes."""

        def __init__(self) -> None:
            super().__init__()
            self.locals = {name: local_of(None, ()) for name in HONEST}
            self.sent: frozenset[Event] = frozenset()

        @rule(name=st.sampled_from(HONEST), data=st.data())
        def ask(self, name: str, data: st.DataObject) -> None:
            self.act(name, data.draw(st.sampled_from(actions(name, SESSIONS, everything=True))))

        @rule(nonce=st.sampled_from(sorted(SESSIONS)), until=st.integers(3, 6), data=st.data())
        def lead(self, nonce: str, until: int, data: st.DataObject) -> None:
            """The usual way of an attempt up to some step, so that random walks come far."""
            chosen = data.draw(st.sampled_from(sorted({what[2] for what in actions("a", [nonce], True) if what[2]})))
            for step in ("advertise", "share", "check", "mask", "agree", "reveal")[:until]:
                for name in HONEST:
                    if name in chosen:
                        self.act(name, (SESSIONS[nonce], step, chosen if step in ("agree", "reveal") else ()))
                    elif name in SESSIONS[nonce].roster and step in ("advertise", "share", "check", "mask"):
                        self.act(name, (SESSIONS[nonce], step, ()))

        @rule()
        def restart_all(self) -> None:
            for name in HONEST:
                self.restart(name)

        @rule(name=st.sampled_from(HONEST))
        def restart(self, name: str) -> None:
            self.locals[name] = world.crashed(self.locals[name])

        def act(self, name: str, what: Any) -> None:
            self.locals[name], event = world.act(name, self.locals[name], *what, self.sent)
            if event is not None:
                self.sent |= {event}

        @invariant()
        def one_sum_is_open(self) -> None:
            assert len(opened_sums(self.sent)) <= 1
            assert both_secrets(self.sent) == set()
            assert all([one[0] for one in self.sent if one[2] == "reveal"].count(name) <= 1 for name in HONEST)

    return LyingCoordinator


def test_long_random_walks_open_one_sum(draws: Draws) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = machine_of(World(Path(folder), draws))
        run_state_machine_as_test(
            machine, settings=settings(max_examples=examples(400), stateful_step_count=30, deadline=None)
        )


def test_random_walks_find_what_they_look_for(draws: Draws) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = machine_of(World(Path(folder), draws, forgetful=True))
        with pytest.raises(AssertionError):
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=200, stateful_step_count=30, deadline=None, database=None, phases=[Phase.generate]
                ),
            )


def led(sites: dict[str, SecureSite], session: Session, asked: dict[str, str]) -> tuple[Server, dict[str, str]]:
    """An attempt among real sites; `asked` says for some steps whom the coordinator asks. Gives who refused and why."""
    keys = {name: LONG_TERM[name].public_key() for name in session.roster}
    server, refused = start_sum(session, keys), {}
    letters: dict[str, SumMessage | None] = dict.fromkeys(session.roster)
    terms = SumTerms((20, 4.0), tuple("abcdefg"), 3, False, "00" * 32)
    answer = Message({FIXED: {"w": np.zeros((4, 2), np.int32)}, OUTSIDE: np.float32(0)})
    while True:
        for name in [one for one in letters if one in asked.get(server.step, one)]:
            letter = letters[name]
            written = None if letter is None else to_json(letter)
            question = SecureStep(METHOD, server.step, session_to_json(session), written, {})
            received: Any = Received(question, "study", 1, None, {})
            try:
                said, arrays = sites[name].step(received, SENT, terms, lambda: answer)
            except Refusal as refusal:
                refused[name] = str(refusal)
                continue
            server = receive(server, from_json(said["letter"], arrays.arrays.get("vector")))
        if server.step == "reveal" or len(server.remaining) < session.threshold:
            return server, refused
        server, found = advance(server)
        letters = dict(found)


def test_two_groups_of_seven_sites_do_not_open_two_sums(tmp_path: Path) -> None:
    """f and g collude. The first sum holds all seven answers, and d and e are not asked to reveal theirs: they do not
    know that it is open. A second one of d, e, f, g would tell d and e together, and the other three by difference."""
    public = {name: key.public_key() for name, key in LONG_TERM.items()}

    def site_of(name: str, folder: str) -> SecureSite:
        return SecureSite(name, tmp_path / folder / name, lambda: (LONG_TERM[name], None), lambda *given: public)  # type: ignore[arg-type,return-value]

    sites = {name: site_of(name, "true") for name in "abcdefg"}
    first = Session("study", 1, model_hash(SENT), "one", tuple("abcdefg"), 2, 20, 4.0, 7)
    server, refused = led(sites, first, {"agree": "abcfg", "reveal": "abcfg"})
    assert not refused
    assert server.survivors == set("abcdefg")
    assert unmask_sum(server).tolist() == [0, 0]
    again = {**{name: sites[name] for name in "de"}, **{name: site_of(name, "anew") for name in "fg"}}
    second = Session("study", 1, model_hash(SENT), "two", tuple("defg"), 2, 20, 4.0, 7)
    server, refused = led(again, second, {})
    assert set(refused) == {"d", "e"}
    assert all("an earlier attempt, which could still be opened" in why for why in refused.values())
    # Had the first one failed before anything was revealed, all but one would be enough to try again.
    others = {name: site_of(name, "others") for name in "abcdefg"}
    led(others, first, {"agree": "ab"})
    third = Session("study", 1, model_hash(SENT), "three", tuple("abcdef"), 2, 20, 4.0, 7)
    server, refused = led(others, third, {})
    assert not refused
    assert unmask_sum(server).tolist() == [0, 0]
