"""The one server loop: drives any algorithm on any engine, keeps a checkpoint and a record of every round."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Engine, Params, Progress, RoundRecord
from wardround.core.errors import Diverged, Refusal
from wardround.core.quality import Quality
from wardround.engine.budget import UNITS, UNLIMITED, CostBudget, Spending
from wardround.engine.checkpoint import read_checkpoint, read_header, write_checkpoint
from wardround.engine.participation import Participation

NEVER = 10**9
MOST_TOLD = 100
"""Sites up to which an algorithm's numbers for each site are recorded by name."""


class EarlyStopping(NamedTuple):
    """Stop when the weighted validation loss has not fallen by `smallest` for `patience` evaluations.

    With `site` it is that site's own validation loss which counts: for a model that serves one asking site.
    """

    patience: int
    smallest: float = 0.0
    site: str | None = None


class FitResult(NamedTuple):
    """What a run gives: the final state (the best one, if stopped early), and its history."""

    progress: Progress
    records: list[RoundRecord]
    best_round: int | None
    stopped_early: bool
    first_call_seconds: float
    """Compilation included."""
    rounds: int
    """Rounds done in all, those before a resume included."""
    spent: Mapping[str, float] = {}
    """What was spent of a budget's resources."""
    ended_by: str = ""
    """The resource of which another round would have taken too much."""


class Schedule(NamedTuple):
    """How often what happens. Rounds between two events run in one call of the engine."""

    rounds: int
    evaluate_every: int = 1
    checkpoint_every: int = 1

    def piece(self, after: int, evaluates: bool, saves: bool) -> int:
        """The last round of the piece that begins after round `after`."""
        ends = [self.rounds]
        if evaluates:
            ends.append((after // self.evaluate_every + 1) * self.evaluate_every)
        if saves:
            ends.append((after // self.checkpoint_every + 1) * self.checkpoint_every)
        return min(ends)


class Memory(NamedTuple):
    """What the loop itself must remember across a crash, beside the progress."""

    round: int = 0
    best_round: int | None = None
    best_loss: float | None = None
    waited: int = 0
    spent: Mapping[str, float] = {}
    dearest: Mapping[str, float] = {}

    def rounds_left(self, budget: CostBudget) -> tuple[int, str]:
        return Spending(self.spent, self.dearest).rounds_left(budget)

    def pay(self, budget: CostBudget, records: Sequence[RoundRecord], end: int) -> "Memory":
        """After these rounds, of which `end` was the last."""
        paid = Spending(self.spent, self.dearest).add(budget, records)
        return self._replace(round=end, spent=paid.total, dearest=paid.dearest)


def fit(
    algorithm: Algorithm,
    engine: Engine,
    params: Params,
    participation: Participation,
    schedule: Schedule,
    *,
    validates: bool = False,
    course: str | None = None,
    stopping: EarlyStopping | None = None,
    checkpoint: Path | None = None,
    identity: str = "",
    resume: bool = False,
    start: Progress | None = None,
    on_round: Callable[[RoundRecord], None] = lambda record: None,
    budget: CostBudget = UNLIMITED,
) -> FitResult:
    """Train for the scheduled rounds, or until early stopping, or until a budget has no room for another round.

    With `checkpoint` the state is saved after every round, and with `resume` the run goes on from there and ends with
    the same bits as an uninterrupted one. A round is reported before its state is saved: a crash between the two
    makes it be done and reported once more, which a reader can tell by its number; the other way round it would be
    lost. `identity` (a hash of the study) keeps studies from being mixed up. With `validates` the sites judge the model
    on their validation rows as often as the schedule says. `course` names a part whose accuracy is recorded as often,
    for a figure: nothing is decided by it. Training begins with the model `params`, or goes on from `start`, the
    state of an earlier run with the same sites, for instance when new rows came.
    """
    if stopping and not validates:
        raise Refusal("early stopping needs validation rows", remedy="give every site a validation share")
    progress = engine.begin(algorithm, params) if start is None else start
    if stopping and stopping.site is not None:
        refuse_without_loss(stopping.site, engine, algorithm, progress)
    best, memory = progress, Memory()
    # The best model is kept in case the budget ends training.
    watch = EarlyStopping(NEVER) if budget.limits and validates and stopping is None else stopping
    if resume and checkpoint is not None and checkpoint.exists():
        (progress, best), memory = load(checkpoint, progress, identity)
    elif watch:
        best = jax.tree.map(jax.numpy.array, progress)
    records: list[RoundRecord] = []
    first_call = 0.0
    stopped = stopping is not None and memory.waited >= stopping.patience
    while memory.round < schedule.rounds and not stopped and memory.rounds_left(budget)[0]:
        planned = schedule.piece(memory.round, validates or course is not None, checkpoint is not None)
        end = min(planned, memory.round + memory.rounds_left(budget)[0])
        piece = [(number, participation.cohort(number)) for number in range(memory.round + 1, end + 1)]
        started = time.perf_counter()
        progress, found = engine.train(algorithm, progress, piece)
        first_call = first_call or time.perf_counter() - started
        done = with_joules(found, budget)
        memory = memory.pay(budget, done, end)
        looks = end % schedule.evaluate_every == 0 or end == schedule.rounds or not memory.rounds_left(budget)[0]
        if looks:
            said = describe_state(algorithm, progress, engine.sites)
            done[-1] = replace(done[-1], measures={**done[-1].measures, **said})
        if looks and validates:
            quality = engine.judge(algorithm, progress, "validation")
            loss = watched_loss(quality, stopping)
            refuse_losses((quality.mean_loss, loss), end)
            done[-1] = replace(done[-1], measures={**done[-1].measures, **measures_of(quality)})
            if watch:
                memory = update_memory(memory, loss, watch)
                if memory.best_round == end:
                    best = jax.tree.map(jax.numpy.array, progress)
                stopped = memory.waited >= watch.patience
        if looks and course is not None:
            followed = accuracies(engine.judge(algorithm, progress, course))
            done[-1] = replace(done[-1], measures={**done[-1].measures, f"{course}_accuracy": followed})
        for record in done:
            on_round(record)
        records += done
        if checkpoint is not None:
            kept = (progress, best) if watch else (progress, progress)
            save(checkpoint, kept, memory, identity, twice=watch is not None)
    ended_by = "" if stopped or memory.round == schedule.rounds else memory.rounds_left(budget)[1]
    chosen = memory.best_round if stopping or ended_by else None
    final = progress if chosen is None else best
    early = stopped or bool(ended_by)
    return FitResult(final, records, chosen, early, first_call, memory.round, memory.spent, ended_by)


def words_of_stop(fitted: FitResult, limits: Mapping[str, float], planned: int) -> str:
    """Why a budget ended training where it did."""
    name = fitted.ended_by
    limit, spent = f"{limits[name]:,.6g} {UNITS[name]}", fitted.spent[name]
    best = f"; the model is that of round {fitted.best_round}, the best one" if fitted.best_round else ""
    if spent > limits[name]:  # what a round takes is known once one is done, or was dearer than all before it
        why = f"it took more than the budget of {limit}, which was not known before it"
    else:
        why = f"another round could have passed the budget of {limit}"
    return f"Training stopped after round {fitted.rounds} of {planned}: {why} ({spent:,.6g} spent{best})."


def with_joules(records: list[RoundRecord], budget: CostBudget) -> list[RoundRecord]:
    """What the processor says it used since the last call, in equal parts."""
    if budget.joules is None:
        return records
    each = budget.joules() / len(records)
    return [replace(record, measures={**record.measures, "joules": each}) for record in records]


def describe_state(algorithm: Algorithm, progress: Progress, sites: Sequence[str]) -> dict[str, Any]:
    """What the server's state, and its aggregator's, have to tell; one number a site is told by the sites' names."""
    combining, words = algorithm.aggregator.tells, dict[str, Any]()
    found = dict(algorithm.tells(progress.server)) if algorithm.tells else {}
    found |= combining(progress.aggregator) if combining else {}
    for name, value in found.items():
        array = np.asarray(value)
        per_site = array.shape == (len(sites),) and len(sites) <= MOST_TOLD
        words[name] = dict(zip(sites, array.tolist(), strict=True)) if per_site else array.tolist()
    return {"told": words} if words else {}


def measures_of(quality: Quality) -> dict[str, Any]:
    """What a round's record tells of its validation; the sites by name where they are not too many."""
    losses = quality.mean_losses() if len(quality.sites) <= MOST_TOLD else {}
    finite = {site: loss for site, loss in losses.items() if np.isfinite(loss)}
    measures: dict[str, Any] = {"validation_loss": {"weighted": quality.mean_loss, "sites": finite}}
    if quality.right is not None:
        measures["validation_accuracy"] = {"weighted": quality.accuracy}
    odd = {"validation_left_out": dict(quality.left_out), "validation_implausible": dict(quality.implausible)}
    return measures | {name: reasons for name, reasons in odd.items() if reasons}


def accuracies(quality: Quality) -> dict[str, Any]:
    """The share of patients classified rightly, over all sites and at each; losses where there are no classes."""
    if quality.right is None:
        return {"weighted": quality.mean_loss, "sites": quality.mean_losses()}
    sites = dict(zip(quality.sites, (quality.right / quality.rows).tolist(), strict=True))
    return {"weighted": quality.accuracy, "sites": sites if len(sites) <= MOST_TOLD else {}}


def watched_loss(quality: Quality, stopping: EarlyStopping | None) -> float:
    """The loss that decides when to stop; a site that told none has no finite one."""
    if stopping is None or stopping.site is None:
        return quality.mean_loss
    return quality.mean_losses().get(stopping.site, np.inf)


def refuse_without_loss(site: str, engine: Engine, algorithm: Algorithm, progress: Progress) -> None:
    """Refuse to stop by a site that is not there, or whose loss nobody can tell, before the first round."""
    sites = engine.sites
    if site not in sites:
        raise Refusal(
            f"early stopping watches the validation loss of '{site}', which is not among the sites",
            where="stopping",
            remedy=f"name one of {', '.join(sites[:20])}",
        )
    losses = engine.judge(algorithm, progress, "validation").mean_losses()
    if not np.isfinite(losses.get(site, np.nan)):
        raise Refusal(
            f"early stopping watches the validation loss of '{site}', which has no validation rows or is not evaluated",
            where="stopping",
            remedy="give this site a validation share and evaluate it, or stop by the loss of all sites",
        )


def update_memory(memory: Memory, loss: float, stopping: EarlyStopping) -> Memory:
    """Whether this was the best loss so far, and how long we have waited for a better one."""
    if memory.best_loss is None or loss < memory.best_loss - stopping.smallest:
        return memory._replace(best_round=memory.round, best_loss=loss, waited=0)
    return memory._replace(waited=memory.waited + 1)


def refuse_losses(losses: Sequence[float], number: int) -> None:
    if not np.isfinite(losses).all():
        raise Diverged(f"the validation loss is not a finite number after round {number}", number)


def save(path: Path, kept: tuple[Progress, Progress], memory: Memory, identity: str, *, twice: bool) -> None:
    tree = {"now": kept[0], "best": kept[1]} if twice else {"now": kept[0]}
    write_checkpoint(path, tree, {**memory._asdict(), "identity": identity, "twice": twice})


def load(path: Path, template: Progress, identity: str) -> tuple[tuple[Progress, Progress], Memory]:
    header = read_header(path)
    if header.get("identity") != identity:
        raise Refusal(
            "the checkpoint belongs to another study, or the study file or its data were changed since",
            where=str(path),
            remedy="resume with the study file the run was started with, or begin in another folder",
        )
    twice = bool(header["twice"])
    tree, _ = read_checkpoint(path, {"now": template, "best": template} if twice else {"now": template})
    memory = Memory(**{name: header[name] for name in Memory._fields if name in header})
    return (tree["now"], tree["best"] if twice else tree["now"]), memory
