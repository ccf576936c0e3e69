"""The server loop: what it remembers across a crash, when it stops, and whose weights it gives."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import (
    Algorithm,
    Message,
    Model,
    Params,
    Progress,
    Query,
    Report,
    RoundRecord,
    Task,
)
from wardround.core.errors import Diverged, Refusal
from wardround.core.federation import Federation
from wardround.core.quality import Quality
from wardround.engine.checkpoint import read_header
from wardround.engine.fit import EarlyStopping, FitResult, Schedule, fit, measures_of
from wardround.engine.participation import everyone
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic

LOSSES = [0.9, 0.5, 0.3, 0.35, 0.31, 0.29, 0.2, 0.1]
"""Validation losses of rounds 1 to 8."""


def quality(rest: float, own: float | None = None) -> Quality:
    """Ten rows elsewhere with this mean loss, and those of site "a", if it tells any, with its own."""
    told = {"elsewhere": rest} if own is None else {"elsewhere": rest, "a": own}
    rows = np.full(len(told), 10)
    return Quality(tuple(told), 10 * np.array(list(told.values())), rows, rows // 2)


def scripted(number: int) -> Quality:
    return quality(LOSSES[number - 1])


class Counting:
    """An engine whose only lesson is how many rounds it has done: the state after round n is n."""

    # ruff: noqa: ARG002 - the contract gives more than counting needs

    sites: Sequence[str] = ("a",)

    def __init__(self, told: Callable[[int], Quality] = scripted) -> None:
        self.calls: list[list[int]] = []
        self.told = told

    def begin(self, algorithm: Algorithm, params: Params) -> Progress:
        return Progress(server=jnp.float32(0), aggregator=(), transform=(), clients=())

    def train(
        self, algorithm: Algorithm, progress: Progress, rounds: Sequence[tuple[int, np.ndarray[Any, Any]]]
    ) -> tuple[Progress, list[RoundRecord]]:
        self.calls.append([number for number, _ in rounds])
        # Every round must follow the one whose state was given.
        assert rounds[0][0] == int(progress.server) + 1
        after = Progress(server=jnp.float32(rounds[-1][0]), aggregator=(), transform=(), clients=())
        return after, [RoundRecord(number, ("a",), 1, 1, 0.0, 0.0, 0, 0) for number, _ in rounds]

    def judge(self, algorithm: Algorithm, progress: Progress, part: str) -> Quality:
        assert part == "validation"
        return self.told(int(progress.server))

    def ask(self, query: Query, message: Message) -> Report:
        raise NotImplementedError


def fitted(engine: Counting | None = None, *, rounds: int = 8, **settings: Any) -> FitResult:
    schedule = Schedule(rounds, settings.pop("every", 1), settings.pop("saves", 1))
    nothing = fed_avg(logistic(Task((1,), ("no", "yes"))), weighted_mean())  # the engine does not look at it
    return fit(nothing, engine or Counting(), {}, everyone(1), schedule, **{"validates": True, **settings})


@pytest.mark.parametrize(
    ("patience", "smallest", "best", "rounds"),
    [
        (1, 0.0, 3, 4),  # round 4 is not better than round 3
        (2, 0.0, 3, 5),  # nor is round 5
        (3, 0.0, 8, 8),  # round 6 is: 0.29 < 0.3, and the loss falls until the end
        (3, 0.05, 3, 6),  # but it is not better by 0.05
        (4, 0.05, 8, 8),  # 0.2 is, in round 7, before patience 4 ran out; then 0.1
        (1, 0.25, 2, 3),  # 0.5 is better by 0.4, 0.3 by 0.2 only
    ],
)
def test_it_stops_after_waiting_in_vain_and_gives_the_best_state(
    patience: int, smallest: float, best: int, rounds: int
) -> None:
    result = fitted(stopping=EarlyStopping(patience, smallest))
    assert result.best_round == best
    assert result.rounds == len(result.records) == rounds
    assert result.stopped_early == (rounds < 8 or best < rounds)
    assert int(result.progress.server) == best


def test_without_stopping_the_last_state_is_given() -> None:
    result = fitted()
    assert (int(result.progress.server), result.best_round, result.stopped_early) == (8, None, False)
    losses = [record.measures["validation_loss"]["weighted"] for record in result.records]
    assert losses == LOSSES


def test_patience_counts_evaluations_not_rounds() -> None:
    """Looked at every second round: 0.5, 0.35, 0.29, 0.1, so it never waits."""
    result = fitted(every=2, stopping=EarlyStopping(1))
    assert (result.best_round, result.rounds) == (8, 8)
    assert [bool(record.measures) for record in result.records] == [False, True] * 4


@pytest.mark.parametrize(
    ("rounds", "every", "saves", "evaluates", "checkpoints", "pieces"),
    [
        (7, 3, 5, True, True, [[1, 2, 3], [4, 5], [6], [7]]),
        (7, 3, 5, True, False, [[1, 2, 3], [4, 5, 6], [7]]),
        (7, 3, 5, False, True, [[1, 2, 3, 4, 5], [6, 7]]),
        (7, 3, 5, False, False, [[1, 2, 3, 4, 5, 6, 7]]),
        (2, 1, 1, True, True, [[1], [2]]),
    ],
)
def test_rounds_between_two_events_run_in_one_call(
    rounds: int, every: int, saves: int, evaluates: bool, checkpoints: bool, pieces: list[list[int]], tmp_path: Path
) -> None:
    engine = Counting()
    checkpoint = tmp_path / "state" if checkpoints else None
    fitted(engine, rounds=rounds, every=every, saves=saves, validates=evaluates, checkpoint=checkpoint)
    assert engine.calls == pieces


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("stopping", [None, EarlyStopping(2), EarlyStopping(3)])
@pytest.mark.parametrize("crash_at", [1, 3, 4, 5])
def test_a_crash_while_the_state_is_saved_loses_no_round(
    crash_at: int, stopping: EarlyStopping | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[int] = []
    path = tmp_path / "state"

    def go(resume: bool) -> FitResult:
        return fitted(
            checkpoint=path, stopping=stopping, resume=resume, on_round=lambda record: reported.append(record.round)
        )

    whole = fitted(stopping=stopping)
    saved, replace = 0, os.replace

    def crashing(source: Any, target: Any) -> None:
        nonlocal saved
        saved += 1
        if saved == crash_at:
            raise Crash
        replace(source, target)

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", crashing)
        with pytest.raises(Crash):
            go(resume=False)
    assert path.exists() == (crash_at > 1)
    result = go(resume=True)
    # The round of the crash was reported and is done once more; no number is missing.
    assert sorted(set(reported)) == list(range(1, whole.rounds + 1))
    assert reported == [*range(1, crash_at + 1), *range(crash_at, whole.rounds + 1)]
    assert int(result.progress.server) == int(whole.progress.server)
    assert (result.best_round, result.rounds, result.stopped_early) == (
        whole.best_round,
        whole.rounds,
        whole.stopped_early,
    )


def test_resuming_a_finished_run_trains_nothing(tmp_path: Path) -> None:
    for stopping in (None, EarlyStopping(2)):
        path = tmp_path / f"{stopping}"
        first = fitted(checkpoint=path, stopping=stopping)
        engine = Counting()
        again = fitted(engine, checkpoint=path, stopping=stopping, resume=True)
        assert engine.calls == []
        assert again.records == []
        assert int(again.progress.server) == int(first.progress.server)
        assert (again.best_round, again.rounds, again.stopped_early) == (
            first.best_round,
            first.rounds,
            first.stopped_early,
        )


def test_without_resume_a_checkpoint_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"garbage")
    assert fitted(checkpoint=tmp_path / "state").rounds == 8
    assert read_header(tmp_path / "state")["round"] == 8


def test_a_checkpoint_of_another_study_is_refused(tmp_path: Path) -> None:
    fitted(rounds=3, checkpoint=tmp_path / "state", identity="one")
    with pytest.raises(Refusal, match="another study"):
        fitted(checkpoint=tmp_path / "state", identity="two", resume=True)


def test_stopping_needs_validation_rows() -> None:
    with pytest.raises(Refusal, match="validation rows"):
        fitted(validates=False, stopping=EarlyStopping(2))


def by_site(weighted: Sequence[float], own: Sequence[float | None]) -> Counting:
    """All sites together lose `weighted` and site "a" `own` in rounds 1 to 8; before the first round both lose 1."""

    def told(number: int) -> Quality:
        mean, mine = (weighted[number - 1], own[number - 1]) if number else (1.0, 1.0)
        # The mean over 20 rows is (rest + mine) / 2.
        return quality(mean if mine is None else 2 * mean - mine, mine)

    return Counting(told)


def test_stopping_for_a_site_looks_at_its_own_loss() -> None:
    """All sites together improve until the end, site "a" until round 2; and the other way round."""
    falling, turning = [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], [0.8, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8, 0.8]
    for weighted, own, site, best, rounds in (
        (falling, turning, "a", 2, 5),
        (falling, turning, None, 8, 8),
        (turning, falling, "a", 8, 8),
        (turning, falling, None, 2, 5),
    ):
        result = fitted(by_site(weighted, own), stopping=EarlyStopping(3, site=site))
        assert (result.best_round, result.rounds, int(result.progress.server)) == (best, rounds, best)


def test_a_site_whose_loss_is_not_told_is_refused_before_the_first_round() -> None:
    for site, engine, words in (
        ("b", by_site([0.5] * 8, [0.5] * 8), "'b', which is not among the sites"),
        ("a", Counting(), "'a', which has no validation rows"),
        ("a", Counting(lambda number: quality(0.5, np.nan)), "has no validation rows"),
        ("a", Counting(lambda number: quality(0.5, np.inf)), "has no validation rows"),
    ):
        with pytest.raises(Refusal, match=words):
            fitted(engine, stopping=EarlyStopping(2, site=site))
        assert engine.calls == []


def test_a_sites_loss_that_is_no_number_any_more_has_diverged() -> None:
    """A site that tells nothing any more; the loss of all others may still be finite."""
    with pytest.raises(Diverged, match="after round 3"):
        fitted(by_site([0.5] * 8, [0.9, 0.8, None, 0.7, 0.6, 0.5, 0.4, 0.3]), stopping=EarlyStopping(2, site="a"))


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_state(loss: float, tmp_path: Path) -> None:
    engine = Counting(lambda number: quality(loss if number == 4 else 0.5))
    with pytest.raises(Refusal, match="after round 4"):
        fitted(engine, checkpoint=tmp_path / "state")
    assert read_header(tmp_path / "state")["round"] == 3


def test_the_best_weights_of_a_real_simulation_survive_further_rounds(even: Federation, model: Model) -> None:
    """The engine reuses its buffers; the best state must be a copy that later rounds do not write into."""
    algorithm = fed_avg(model, weighted_mean(), batch_size=16)
    params = model.init(jax.random.key(0))
    number = iter(range(1, 100))

    class Scripted(Simulation):
        def judge(self, algorithm: Algorithm, progress: Progress, part: str) -> Quality:
            return scripted(next(number))

    def trained(rounds: int, **settings: Any) -> Any:
        with Scripted(even, seed=3) as engine:
            result = fit(algorithm, engine, params, everyone(7), Schedule(rounds), **settings)
        return jax.device_get(algorithm.params(result.progress.server))

    stopped = trained(8, validates=True, stopping=EarlyStopping(2))
    three, five = trained(3), trained(5)
    assert all(np.array_equal(stopped[name], three[name]) for name in three)
    assert not all(np.array_equal(stopped[name], five[name]) for name in five)


def test_what_the_server_tells_is_recorded_by_the_names_of_the_sites() -> None:
    """One number a site goes by name, a single number as it is."""
    algorithm = fed_avg(logistic(Task((1,), ("no", "yes"))), weighted_mean())._replace(
        tells=lambda state: {"alpha": jnp.array([0.5]), "stopped": state > 2}
    )
    records: list[RoundRecord] = []
    fit(algorithm, Counting(), {}, everyone(1), Schedule(3), validates=True, on_round=records.append)
    assert [record.measures["told"] for record in records] == [
        {"alpha": {"a": 0.5}, "stopped": False},
        {"alpha": {"a": 0.5}, "stopped": False},
        {"alpha": {"a": 0.5}, "stopped": True},
    ]


def test_a_round_tells_loss_and_accuracy_and_names_few_sites() -> None:
    """Two sites of 10 rows with 5 right: losses 0.4 and 0.2, in all 0.3; a regression has no accuracy."""
    told = measures_of(quality(0.4, 0.2))
    assert told["validation_loss"]["weighted"] == pytest.approx(0.3)
    assert told["validation_loss"]["sites"] == pytest.approx({"elsewhere": 0.4, "a": 0.2})
    assert told["validation_accuracy"] == {"weighted": 0.5}
    assert measures_of(quality(0.4, np.inf))["validation_loss"]["sites"] == pytest.approx({"elsewhere": 0.4})
    many = Quality(tuple(map(str, range(101))), np.ones(101), np.ones(101, int), None)
    assert measures_of(many) == {"validation_loss": {"weighted": 1.0, "sites": {}}}


def test_a_run_that_goes_on_begins_where_another_ended(even: Federation, model: Model) -> None:
    algorithm, everybody = fed_avg(model, weighted_mean(), batch_size=16), everyone(7)
    with Simulation(even, seed=3) as engine:
        once = fit(algorithm, engine, model.init(jax.random.key(0)), everybody, Schedule(1)).progress
        expected, _ = engine.train(algorithm, jax.tree.map(jnp.array, once), [(1, np.arange(7))])
        found = fit(algorithm, engine, {}, everybody, Schedule(1), start=jax.tree.map(jnp.array, once)).progress
    for one, other in zip(jax.tree.leaves(found.server), jax.tree.leaves(expected.server), strict=True):
        np.testing.assert_array_equal(one, other)
