"""Gradient distance: a partner is near when its patients pull the model where the asking site's pull it.

Grimberg, "Incentivized, Privacy-preserving, and Personalized Distributed Machine Learning Framework for Medical Data",
EPFL 2020, section 4.5: d = |g_i - g_0| / |g_0|, both gradients over all rows and at one and the same model. The score
is -d, the cut -1: a partner that pulls nowhere is at distance 1 exactly, one that is nearer pulls at least in part the
asking site's way, and at the common model of all sites, where the gradients cancel, 1 is the best bound there is
(examples 2 and 3): somebody is always further away.

Where to compare was measured on the data set triage (2 groups, 4 and 8 hospitals of 200 patients): the model before
training tells the right partners from the wrong ones as well (areas under the ROC curve 0.85 and 0.91) as that after 10
rounds together (0.84, 0.90) or 30 (0.86, 0.91), and takes one exchange. The cut means something else at each. Before
training it is lenient: it keeps 9 of 10 right partners and 3 of 4 wrong ones, so take the ranking and name how many.
After 10 rounds it is strict: it keeps 1 of 20 wrong ones and fewer than half of the right ones, and only 1 in 5 where
all hospitals are alike, since nothing but chance is left of their gradients there. Hence `rounds` is 0 by default.

Needs the sites' gradients one by one. The standard errors take two more exchanges, in which two models a site travel.
"""

from functools import lru_cache
from typing import Annotated

import jax
import numpy as np

from wardround.core.bounds import Bound
from wardround.core.contracts import Algorithm, Model, Params, Tree
from wardround.core.errors import Refusal
from wardround.partners.choice import Choice, Evidence, Numbers, Question, SiteQuestions, probe
from wardround.partners.probes.losses import difference_errors, losses
from wardround.partners.probes.slopes import slopes

LABEL = "Gradient distance"
Rounds = Annotated[int, Bound(low=0)]
CUT = -1.0
STEP = 0.05
"""How far, along a direction of length 1, the loss is looked at to either side to tell its slope there."""


def gradient_distance(*, rounds: Rounds = 0, errors: bool = True) -> Choice:
    """How far each partner's gradient is from the asking site's, before training or after some rounds together."""

    def assess(question: Question) -> Evidence:
        params = question.params
        if rounds:
            params = question.algorithm.params(question.probe(question.algorithm, params, None, rounds))
        state = jax.device_get(question.probe(probes(question.model)[0], params))
        names, user = question.engine.sites, question.user
        if state["rows"][user] == 0:
            raise Refusal(
                "the asking site has no training rows, so it has no gradient to compare with",
                where=f"site {names[user]}",
                remedy="let it learn from some of its patients, or ask for another site",
            )
        if not flatten_gradients(state)[user].any():
            raise Refusal(
                "the asking site's gradient is 0, so that every partner is infinitely far away",
                where=f"site {names[user]}",
                remedy="compare after fewer rounds",
            )
        distance = distance_matrix(state)[user]
        distance[user] = np.nan
        ranked = [int(index) for index in np.argsort(distance, kind="stable") if np.isfinite(distance[index])]
        return Evidence(
            score=-distance,
            error=distance_errors(question, params, state) if errors and ranked else np.full_like(distance, np.nan),
            cut=CUT,
            details={
                "asking": names[user],
                "rounds": rounds,
                "distances": {names[index]: float(distance[index]) for index in sorted(ranked)},
                "ranking": [names[index] for index in ranked],
                "unanswered": [names[index] for index in question.candidates if state["rows"][index] == 0],
            },
        )

    both_ways = probe("losses")._replace(models=lambda sites: 2 * sites)
    asked = (probe("slopes"), both_ways) if errors else (probe("slopes"),)
    return Choice(assess, SiteQuestions(asked, f"for {rounds} rounds with all sites" if rounds else "", rounds=rounds))


@lru_cache(maxsize=16)
def probes(model: Model) -> tuple[Algorithm, Algorithm]:
    """Always the same objects for the same model, so that compiled programs are found again."""
    return slopes(model), losses(model)


def distance_matrix(state: Tree) -> Numbers:
    """(sites, sites) from the state of `slopes`: [j, i] is |g_i - g_j| / |g_j|; NaN where either has not answered."""
    gradients = flatten_gradients(state)
    length = np.linalg.norm(gradients, axis=1)
    # One asking site after the other: all differences at once would take sites * sites * parameters numbers.
    apart = np.stack([np.linalg.norm(gradients - own, axis=1) for own in gradients])
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = apart / length[:, None]
    np.fill_diagonal(distance, 0.0)
    answered = np.asarray(state["rows"]) > 0
    return np.where(answered[:, None] & answered[None, :], distance, np.nan)


def distance_errors(question: Question, params: Params, state: Tree) -> Numbers:
    """The standard errors of the distances to the asking site, to first order in the errors of both gradients.

    d moves with g_i by u / |g_0|, u being the direction of g_i - g_0, and with g_0 by w = -(u + d g_0 / |g_0|) / |g_0|.
    So two variances are needed, of each site's slope along u and of the asking site's along w: a site tells them from
    its losses a small step to either side of the model.
    """
    gradients, user = flatten_gradients(state), question.user
    own, length = gradients[user], np.linalg.norm(gradients[user])
    apart = gradients - own
    distance = np.linalg.norm(apart, axis=1) / length
    toward = unit_vectors(apart)
    back = -(toward + distance[:, None] * own / length) / length
    here = np.arange(len(gradients))
    of_partner = slope_errors(question, params, toward, question.candidates)[here, here] / length
    of_asking = slope_errors(question, params, unit_vectors(back), (user,))[user] * np.linalg.norm(back, axis=1)
    error = np.hypot(of_partner, of_asking)
    error[user] = np.nan
    return error


def slope_errors(question: Question, params: Params, directions: Numbers, sites: tuple[int, ...]) -> Numbers:
    """(sites, directions): the standard error of each site's slope of the loss along each direction of length 1."""
    stack = jax.tree.map(
        lambda at, along: np.concatenate([at + STEP * along, at - STEP * along]).astype(np.float32),
        jax.device_get(params),
        unflatten_gradients(directions, params),
    )
    state = jax.device_get(question.probe(probes(question.model)[1], stack, sites))
    count = np.arange(len(directions))
    return difference_errors(state)[:, count, count + len(count)] / (2 * STEP)


def flatten_gradients(state: Tree) -> Numbers:
    """(sites, parameters): the sites' gradients as vectors."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(state["slopes"])]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def unflatten_gradients(vectors: Numbers, like: Params) -> Params:
    """Vectors as a stack of models again."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([int(np.size(leaf)) for leaf in leaves])[:-1]
    parts = np.split(vectors, ends, axis=1)
    shaped = [part.reshape(-1, *np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def unit_vectors(vectors: Numbers) -> Numbers:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1.0)
