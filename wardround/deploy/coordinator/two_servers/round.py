"""A round for two servers at the first one: attempts until one is opened, then the server's step."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from wardround.core.components.recipes import recipe_of
from wardround.core.contracts import Algorithm, Message, Progress
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.answer_bounds import told_weight_problem
from wardround.deploy.coordinator.events import AnswersGathered
from wardround.deploy.coordinator.gather import NOT_CONNECTED, Absences, reasons_of
from wardround.deploy.coordinator.secure_round import unusable
from wardround.deploy.coordinator.two_servers.attempt import (
    Attempt,
    AttemptFailed,
    OpenedChoice,
    RoundLost,
    TwoServerRound,
)
from wardround.deploy.protocol.agreed_words import agreed_by
from wardround.deploy.protocol.replies import Absence
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.protocol.robust_choice import RobustChoice, bound_of, without_model
from wardround.engine.checks import divergence
from wardround.engine.split_round import KEPT, conclude_opened
from wardround.privacy.secure_sum.masks import KEY_BYTES

if TYPE_CHECKING:
    from wardround.deploy.coordinator.engine import Deployment

CAME_BACK = Absence("it came back when the others' answers were about to be opened")


class RobustOutcome(NamedTuple):
    """The next state (the old one where the round is lost), how many bytes each site sent, why others did not."""

    after: Progress
    bytes_up: dict[str, int]
    absent: Absences
    commitments: Mapping[str, str]
    """The hash of each masked answer of those who took part."""
    opened: Message | None
    """What the server's step takes: the opened mean, none where the round is lost."""


def choose_and_sum(
    engine: "Deployment",
    algorithm: Algorithm,
    progress: Progress,
    cohort: Sequence[str],
    number: int,
    sent: Message,
    shapes: Message,
) -> RobustOutcome:
    """A round for two servers: goes on where a crash came, and repeats what failed before anything was opened."""
    assert engine.sums is not None
    assert engine.rule is not None
    assert engine.second is not None
    gatherer = engine.gatherer
    content = {name: tree for name, tree in shapes.arrays.items() if name != "weight"}
    one = TwoServerRound(
        gatherer=gatherer,
        number=number,
        method=engine.method(algorithm),
        sent=sent,
        entries=sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(content)),
        bound=bound_of([recipe_of(link) for link in engine.transforms]),
        rule=engine.rule,
        second=engine.second,
        folder=engine.sums,
        limit=engine.transform.limit,
        agreed=agreed_by(engine.introductions),
        weight_problem=lambda site, weight: told_weight_problem(site, weight, algorithm, engine.limits),
    )
    kept, end, pause = one.load(), time.monotonic() + gatherer.policy.deadline, 0.0
    while True:
        left = {**gatherer.departed_sites(), **gatherer.spent}
        staying = gatherer.policy.require_remaining(cohort, left, number)
        quorum = max(one.rule.fewest, min(gatherer.policy.quorum, len(staying)))
        useful = [site for site in staying if site not in one.bad]
        if len(useful) < quorum:
            raise too_few(one, number, quorum)
        pause = gatherer.pause_before_asking_again(pause)
        gatherer.wait_for(useful, quorum)
        here = [site for site in useful if site in gatherer.transport.present()]
        unready = engine.begin_at(algorithm, here)
        away = {site: NOT_CONNECTED for site in staying if site not in here}
        one.reasons = {**away, **unready, **one.bad, **left}
        roster = sorted(site for site in here if site not in unready)
        if kept is not None and (one.bad or time.monotonic() > end):
            kept = None
        if kept is not None:
            one.reasons |= {site: CAME_BACK for site in roster if site not in kept.roll}
        try:
            if kept is not None and set(kept.roll) <= set(roster):
                return conclude(engine, algorithm, progress, one, content, one.attempt(kept, quorum))
            if kept is None and len(roster) >= quorum:
                row, check = secrets.token_hex(KEY_BYTES), secrets.token_hex(KEY_BYTES)
                new = Attempt(one.model, secrets.token_hex(16), row, check, roster, [])
                return conclude(engine, algorithm, progress, one, content, one.attempt(new, quorum))
        except AttemptFailed:
            pass
        except RoundLost as lost:
            if one.rule.erodes:
                raise Refusal(
                    f"the weights of the sites can no longer be the same at both servers: {lost}",
                    where=f"second server {one.second}, round {number}",
                    remedy="start the study again (another seed is enough)",
                ) from None
            absent = {site: Absence(f"the sum could not be opened: {lost}") for site in cohort}
            return RobustOutcome(progress, {}, absent, {}, None)
        gatherer.observer(AnswersGathered(Topic.ROUND, number, (), reasons_of(one.reasons)))
        if len(roster) == len(useful) and len(set(roster) - one.refusing.keys()) < quorum:
            raise unusable("refuse this round", one.refusing, number)


def too_few(one: TwoServerRound, number: int, quorum: int) -> Refusal:
    if one.bad and all("is not finite or goes past" in str(why) for why in one.bad.values()):
        return divergence(number, sorted(one.bad), one.limit)
    why = "; ".join(f"{site}: {absence}" for site, absence in sorted(one.bad.items()))
    return Refusal(
        f"fewer than the {quorum} sites that a round needs can be used ({why or 'too few are left'})",
        where=f"round {number}",
        remedy="find out what is wrong there, lower [deploy] quorum, or leave the site out with [deploy] sites",
    )


def conclude(
    engine: "Deployment",
    algorithm: Algorithm,
    progress: Progress,
    one: TwoServerRound,
    content: Mapping[str, Any],
    opened: OpenedChoice,
) -> RobustOutcome:
    """The server's step from the opened products and the opened mean; refused where the second chose otherwise."""
    state = without_model(progress.server) if one.rule.erodes else {}
    chosen = one.rule.choose(jax.device_get(state), opened.gram, one.rows)
    if not is_same_choice(chosen, opened.weights):
        raise one.nonsense("the distances lead to another choice than its own")
    mean = np.zeros(one.entries, np.float32) if opened.mean is None else opened.mean
    weight = np.float32(sum(one.rows[site] for site in opened.gram.sites))
    kept = {KEPT: chosen.state} if one.rule.erodes else {}
    total = Message({**as_arrays(mean, content), "weight": weight, **kept})
    took = {site: one.sizes[site] for site in opened.gram.sites}
    after = conclude_opened(algorithm, progress, total)
    return RobustOutcome(after, took, one.reasons, opened.commitments, total)


def is_same_choice(own: RobustChoice, weights: Mapping[str, int] | None) -> bool:
    """Whether both servers chose alike: the same sites, with weights that differ by rounding at most."""
    if own.weights is None or weights is None:
        return own.weights is weights
    sites = {*own.weights, *weights}
    return all(abs(own.weights.get(site, 0) - weights.get(site, 0)) <= 64 for site in sites) and (
        max(own.weights.values()) > 1 or own.weights == weights
    )


def as_arrays(mean: np.ndarray[Any, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The opened mean in the shapes of an answer."""
    leaves, structure = jax.tree.flatten(dict(content))
    made, start = [], 0
    for leaf in leaves:
        size = int(np.prod(leaf.shape))
        made.append(np.asarray(mean[start : start + size], leaf.dtype).reshape(leaf.shape))
        start += size
    found: dict[str, Any] = jax.tree.unflatten(structure, made)
    return found
