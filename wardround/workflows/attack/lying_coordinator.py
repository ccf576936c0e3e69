"""What a coordinator could learn that does not keep to the protocol, from a study of one's own.

- From losses: it chooses the models whose loss the sites tell, as often as the study looks at validation patients. The
  attacker is the strongest there is, and knows all patients of a site but one: the patient is found out where what
  leaves would be different without this patient. What leaves is made by the sites' own rule
  (`deploy/site/release/disclosure.py`), and once more exactly, which must find everybody.
- From two sums: it sends the same model twice and says the second time that one site was lost. The difference of the
  two sums is that site's answer, up to what differs between two rounds (the order of the patients, and noise).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.chain import drop_array
from wardround.core.contracts import OWED, Params, Scores, Tree
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.deploy.site.policy import SMALLEST_CELL
from wardround.deploy.site.release.disclosure import coarse_losses
from wardround.engine.predictions import predict_rows
from wardround.engine.simulate import Simulation
from wardround.engine.split_round import answer_shapes
from wardround.study.file import Study
from wardround.workflows.attack.first_round import MOST_SITES, with_recorder
from wardround.workflows.training_plan import TrainingPlan

MOST_LOOKS = 16
"""Models that are tried; a study with more rounds gives more looks."""
MOST_PATIENTS = 100
"""Of a site, each left out once."""
STEEP = 1000.0
"""How far from zero the parameters of the last model lie: there a single patient's loss is large."""


def from_losses(study: Study, plan: TrainingPlan) -> dict[str, Any]:
    """For how many validation patients what their site tells would be different without them."""
    algorithm, federation = plan.algorithm, plan.federation
    if algorithm.personal is not None or algorithm.silent or algorithm.pools:
        raise Refusal(
            "every site judges a model of its own, which the coordinator does not choose",
            where="[algorithm]",
            remedy="attack the common model of another algorithm",
        )
    if study.privacy is not None:
        raise Refusal(
            "losses leave a site under noise, or not at all, so no attack on them does better than epsilon allows",
            where="[privacy]",
            remedy="see the bound on membership inference",
        )
    cell = max(SMALLEST_CELL, study.data.preparation.smallest_cell)
    looks = max(1, min(MOST_LOOKS, study.study.rounds // study.evaluation.every))
    found = {"patients": 0, "exact": 0, "released": 0, "looks": looks, "cell": cell}
    models = models_of_choice(plan.first_params(), looks, plan.seed)
    for first, count in zip(*federation.part("validation"), strict=True):
        place = slice(int(first), int(first) + int(count))
        predicted = [predict_rows(algorithm, one, numbers_of(federation, place)) for one in models]
        patients = range(min(int(count), MOST_PATIENTS))
        found["patients"] += len(patients)
        for name, smallest in (("exact", 1), ("released", cell)):
            seen = [told(federation, place, one, smallest) for one in predicted]
            found[name] += sum(
                any(
                    told(federation, place, one, smallest, without=patient) != before
                    for one, before in zip(predicted, seen, strict=True)
                )
                for patient in patients
            )
    if not found["patients"]:
        raise Refusal("no site has validation patients", where="[data] shares", remedy="give them a share")
    return found


def models_of_choice(params: Params, looks: int, seed: int) -> list[Params]:
    """The first model as it is, then others drawn at random, the last one far out."""
    generator = np.random.default_rng((seed, 0x11E5))

    def drawn(scale: float) -> Params:
        one: Params = jax.tree.map(
            lambda leaf: jnp.asarray(scale * generator.normal(size=np.shape(leaf)), jnp.result_type(leaf)), params
        )
        return one

    return [params, *(drawn(STEEP if look == looks - 1 else 1.0) for look in range(1, looks))]


def numbers_of(federation: Federation, place: slice) -> np.ndarray[Any, Any]:
    x = federation.x[place]
    return (x / 255.0 if x.dtype == np.uint8 else x).astype(np.float32)


def told(
    federation: Federation, place: slice, predicted: np.ndarray[Any, Any], cell: int, without: int | None = None
) -> tuple[Any, ...]:
    """What a site tells of its patients' losses, with all of them or without one."""
    actual = federation.y[place]
    kept = np.arange(len(actual)) != (-1 if without is None else without)
    scores = Scores(predicted[kept], actual[kept], np.array([0, int(kept.sum())]))
    return tuple(np.asarray(one).tobytes() for one in coarse_losses(scores, federation.task, cell).values())


def from_two_sums(plan: TrainingPlan, bare: TrainingPlan) -> dict[str, Any]:
    """How well the update of the largest site is read from two sums; `bare` is the plan without any protection."""
    federation, sites = plan.federation, len(plan.federation.sites)
    if plan.algorithm.silent or plan.algorithm.pools:
        raise Refusal("no site sends anything", where="[algorithm]", remedy="attack an algorithm whose sites do")
    if plan.transform.products_only:
        raise Refusal(
            "neither of two servers sees a sum of its own choice", where="[[transforms]]", remedy="leave it out"
        )
    fewest = max(plan.transform.fewest, 1)
    if not fewest < sites <= MOST_SITES:
        raise Refusal(
            f"of {sites} sites none can be said to be lost: a sum needs {fewest}", where="attack", remedy="add sites"
        )
    victim = int(np.argmax(federation.part("train")[1]))
    others = np.array([site for site in range(sites) if site != victim])
    real = mean_update(*heard_sum(bare, 1, np.array([victim])))
    (both, weight), (rest, lighter) = heard_sum(plan, 1, np.arange(sites)), heard_sum(plan, 2, others)
    if plan.transform.sum_only:
        read = mean_update(trees.subtract(both, rest), weight - lighter)
    else:
        read = mean_update(*heard_sum(plan, 1, np.array([victim])))
    return {
        "site": federation.sites[victim],
        "single_updates_seen": not plan.transform.sum_only,
        "error": distance(read, real),
        "guess_error": distance(mean_update(both, weight), real),
    }


def heard_sum(plan: TrainingPlan, number: int, cohort: np.ndarray[Any, Any]) -> tuple[Tree, float]:
    """The sum of what these sites answer to the first model in a round of this number, and of their weights."""
    federation, algorithm = plan.federation, plan.algorithm
    transform, params, sites = plan.transform, plan.first_params(), len(plan.federation.sites)
    row = tuple(jax.ShapeDtypeStruct(part.shape[1:], part.dtype) for part in (federation.x, federation.y))
    shapes = answer_shapes(algorithm, algorithm.init(trees.copy(params), sites), algorithm.init_client(params), row)
    shapes = drop_array(shapes, OWED)  # no such note ever leaves a site
    if "update" not in shapes.arrays:
        raise Refusal("this algorithm sends no updates", where="[algorithm]", remedy="attack one that does, as fed_avg")
    ear = with_recorder(algorithm, shapes, transform, sites)
    with Simulation(federation, seed=plan.seed, transform=transform) as engine:
        progress = engine.begin(ear, params)
        progress, _ = engine.train(ear, progress, [(number, cohort)])
    heard = jax.device_get(progress.server["heard"].arrays)
    if not transform.sum_only:
        heard = jax.tree.map(lambda leaf: leaf[cohort].sum(axis=0), heard)
    return heard["update"], float(heard["weight"])


def mean_update(update: Tree, weight: float) -> Tree:
    return trees.scale(update, 1 / weight if weight else 0.0)


def distance(found: Tree, real: Tree) -> float:
    """How far off, in parts of the real one's length."""
    one, other = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (found, real))
    return float(np.linalg.norm(one - other) / max(float(np.linalg.norm(other)), 1e-30))
