"""Shapley values: each site's fair part of what all candidates together spare the asking site's patients.

Shapley, "A value for n-person games", 1953; truncated Monte Carlo after Ghorbani and Zou, "Data Shapley: equitable
valuation of data for machine learning", ICML 2019. Candidates join the asking site one after the other; a site's value
is the mean fall of the asking site's loss when it joins, over all orders or a random choice of them. The values add up
to what all bring together. Up to six candidates (and 2^n at most `permutations`) are reckoned exactly, and the standard
error is that over the asking site's patients; else it is that over the orders drawn, and an order ends as soon as the
loss is within `tolerance` of that of all. Needs trainings that converge, as leave_one_out does. Costs one training for
every set of sites that comes up, each once: 2^n of them, or up to `permutations` times n.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import factorial
from typing import Any

import jax
import numpy as np

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Params
from wardround.partners.choice import Choice, Evidence, Question, SiteQuestions, probe
from wardround.partners.similarity.held_out import HeldOut, Verdict, judge_models, stack_models

LABEL = "Shapley values"

Numbers = np.ndarray[Any, Any]
Partners = frozenset[int]
AT_A_TIME = 64
"""Models that the asking site judges in one exchange, at most; so many are reckoned exactly, too."""


def shapley(*, part: HeldOut = "validation", permutations: Count = 64, tolerance: NotNegative = 1e-3) -> Choice:
    """A site's fair part of the fall of the asking site's loss, by Shapley values (trains with many sets of sites)."""

    def assess(question: Question) -> Evidence:
        exact = 2 ** len(question.candidates) <= min(permutations, AT_A_TIME)
        if exact:
            value, error, details = exact_values(question, part)
        else:
            value, error, details = sampled_values(question, part, permutations, tolerance)
        score, errors = np.full((2, len(question.engine.sites)), np.nan)
        score[list(question.candidates)], errors[list(question.candidates)] = value, error
        return Evidence(score, errors, 0.0, {"part": part, "exact": exact, **details})

    trains = "with many sets of sites: with every set where they are few, else with sets drawn at random"
    judging = probe("losses", part=part)._replace(
        times="several times",
        models=stack_rows_for,
        # Of every place in the orders the new models, in stacks; and all sites and none at first.
        most=lambda sites: sites * -(-permutations // stack_rows_for(sites)),
    )
    most = lambda sites: max(min(permutations, AT_A_TIME), permutations * (sites - 1) + 2)  # noqa: E731
    return Choice(assess, SiteQuestions((judging,), trains, trainings=most))


def exact_values(question: Question, part: HeldOut) -> tuple[Numbers, Numbers, dict[str, Any]]:
    """The mean over all orders, each set weighted by how many of them it begins."""
    sites = question.candidates
    count = len(sites)
    sets = [frozenset(some) for size in range(count, -1, -1) for some in combinations(sites, size)]
    place = {some: number for number, some in enumerate(sets)}
    verdict = judge_sets(question, [train_with(question, some) for some in sets], part)
    parts = np.zeros((count, len(verdict.loss)))
    for number, site in enumerate(sites):
        for some in sets:
            if site not in some:
                share = factorial(len(some)) * factorial(count - len(some) - 1) / factorial(count)
                # A value is minus a loss: joining is worth the loss without less the loss with the site.
                parts[number, place[some]] += share
                parts[number, place[some | {site}]] -= share
    together = verdict.loss[place[frozenset()]] - verdict.loss[place[frozenset(sites)]]
    return parts @ verdict.loss, verdict.error(parts), {"trainings": len(sets), "together": float(together)}


def sampled_values(
    question: Question, part: HeldOut, permutations: int, tolerance: float
) -> tuple[Numbers, Numbers, dict[str, Any]]:
    """The mean over random orders; place by place, so that the models of one place are judged together."""
    sites = np.array(question.candidates)
    generator = np.random.default_rng(question.seed)
    orders = np.stack([generator.permutation(len(sites)) for _ in range(permutations)])
    everyone, nobody = frozenset(question.candidates), Partners()
    losses: dict[Partners, float] = {}
    judge_new(question, [everyone, nobody], losses, part)
    # course[p, k] is the loss once the first k sites of order p have joined.
    course = np.full((permutations, len(sites) + 1), losses[nobody])
    for joined in range(1, len(sites) + 1):
        course[:, joined] = course[:, joined - 1]
        going = np.flatnonzero(np.abs(course[:, joined - 1] - losses[everyone]) >= tolerance)
        begun = {int(order): frozenset(sites[orders[order, :joined]].tolist()) for order in going}
        judge_new(question, begun.values(), losses, part)
        for order, some in begun.items():
            course[order, joined] = losses[some]
    worth = np.zeros((permutations, len(sites)))
    np.put_along_axis(worth, orders, -np.diff(course, axis=1), axis=1)
    spread = worth.std(axis=0, ddof=1) if permutations > 1 else np.full(len(sites), np.nan)
    details = {
        "trainings": len(losses),
        "permutations": permutations,
        "together": losses[nobody] - losses[everyone],
    }
    return worth.mean(axis=0), spread / np.sqrt(permutations), details


def judge_new(question: Question, sets: Iterable[Partners], losses: dict[Partners, float], part: HeldOut) -> None:
    """Train and judge those sets that have not been before; each is trained once, whatever order leads to it."""
    new = list(dict.fromkeys(some for some in sets if some not in losses))
    for begin in range(0, len(new), stack_rows(question)):
        some = new[begin : begin + stack_rows(question)]
        verdict = judge_sets(question, [train_with(question, one) for one in some], part)
        losses.update(zip(some, verdict.loss.tolist(), strict=False))


def train_with(question: Question, partners: Partners) -> Params:
    model: Params = jax.tree.map(np.asarray, question.train(sorted({question.user, *partners})))
    return model


def judge_sets(question: Question, models: Sequence[Params], part: HeldOut) -> Verdict:
    return judge_models(question, stack_models(models, stack_rows(question)), part)


def stack_rows(question: Question) -> int:
    return stack_rows_for(len(question.engine.sites))


def stack_rows_for(sites: int) -> int:
    """The same for every asking site and every set of candidates, so that the probe is compiled once."""
    return min(AT_A_TIME, int(2 ** min(sites - 1, AT_A_TIME)))
