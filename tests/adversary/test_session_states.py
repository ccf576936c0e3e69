"""Every interleaving of opening, crash, restart and replay, searched to the end; and long ones, drawn at random."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.support.amount import examples
from tests.support.sum_world import (
    HONEST,
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
