"""Influence functions against leave-one-out: do they put partners in the same order, and how much sooner?

`python -m benchmarks.influence` prints one JSON object. Triage with twenty hospitals over ten seeds gives a correlation
each; of the four hospitals of heart disease each asking site has three candidates, too few for an order, so the scores
of all asking sites and seeds are correlated together. Trainings are full-batch and long enough to converge. Times are
warm, of further asking sites after a first one has compiled everything. The common model is there in any case, so both
are timed beyond it: leave-one-out without its first training, influence from the trained model on.
"""

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Algorithm, Model
from wardround.core.federation import Federation
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.datasets.triage import triage
from wardround.data.load import load
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic
from wardround.partners.choice import Evidence, Question
from wardround.partners.choices.influence import influence_at
from wardround.partners.choices.leave_one_out import leave_one_out
from wardround.partners.similarity.rank_agreement import agreement

SEEDS = 10
HOSPITALS = 20
PATIENTS = 150
ROUNDS = {"triage": 256, "heart_disease": 640}
ASKERS = 5
"""Asking sites whose answers are timed, after the first."""


def taught(federation: Federation) -> tuple[Model, Algorithm]:
    model = logistic(federation.task)
    return model, fed_avg(model, weighted_mean(), batch_size=0, learning_rate=0.5)


def question_of(engine: Simulation, model: Model, algorithm: Algorithm, user: int, rounds: int) -> Question:
    others = tuple(site for site in range(len(engine.sites)) if site != user)
    return Question(engine, model, algorithm, model.init(jax.random.key(0)), rounds, user, others)


def both(question: Question) -> tuple[Evidence, Evidence]:
    exact = leave_one_out().assess(question)
    return exact, influence_at(question, question.train(question.everyone))


def orders(seeds: int) -> dict[str, Any]:
    """The rank correlation of triage seed by seed, and of heart disease all together."""
    model, algorithm = None, None
    each, still = [], []
    for seed in range(seeds):
        table = triage(hospitals=HOSPITALS, patients=PATIENTS, clusters=4, degree=0.7, seed=seed)
        federation = load(table, seed=seed).federation
        if model is None or algorithm is None:
            model, algorithm = taught(federation)
        with Simulation(federation, seed=seed) as engine:
            exact, quick = both(question_of(engine, model, algorithm, seed % HOSPITALS, ROUNDS["triage"]))
        each.append(agreement(quick, exact).spearman)
        still.append((quick.details or {})["training_loss_still_to_gain"])
    return {
        "triage": {
            "seeds": seeds,
            "spearman_mean": float(np.mean(each)),
            "spearman_min": float(np.min(each)),
            "training_loss_still_to_gain": float(np.max(still)),
        },
        "heart_disease": pooled(seeds),
    }


def pooled(seeds: int) -> dict[str, Any]:
    pairs = []
    model, algorithm = None, None
    for seed in range(seeds):
        federation = load(heart_disease(), seed=seed).federation
        if model is None or algorithm is None:
            model, algorithm = taught(federation)
        with Simulation(federation, seed=seed) as engine:
            for user in range(len(federation.sites)):
                pairs.append(both(question_of(engine, model, algorithm, user, ROUNDS["heart_disease"])))
    exact, quick = (Evidence(np.concatenate([pair[way].score for pair in pairs]), np.array([]), 0.0) for way in (0, 1))
    within = [agreement(one, other).spearman for one, other in pairs]
    told = agreement(quick, exact)
    return {
        "seeds": seeds,
        "pairs": told.sites,
        "spearman_pooled": told.spearman,
        "spearman_mean_within_asking_site": float(np.mean(within)),
        "same_side": told.same_side,
        "training_loss_still_to_gain": max((pair[1].details or {})["training_loss_still_to_gain"] for pair in pairs),
    }


class Taken(NamedTuple):
    """Seconds by the clock on the wall and by that of the processors, which a busy machine disturbs less."""

    wall: float
    cpu: float


def timed(work: Callable[..., Any], *given: Any) -> Taken:
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(work(*given))
    return Taken(time.perf_counter() - wall, time.process_time() - cpu)


def middle(taken: list[Taken]) -> Taken:
    """The median of all but the first, which compiled."""
    return Taken(*(median(column) for column in zip(*taken[1:], strict=True)))


def times(askers: int) -> dict[str, Any]:
    """Seconds of either way beyond the common model; the two alternate, so that both meet the same machine."""
    table = triage(hospitals=HOSPITALS, patients=PATIENTS, clusters=4, degree=0.7, seed=0)
    federation = load(table, seed=0).federation
    model, algorithm = taught(federation)
    common, retraining, steps = list[Taken](), list[Taken](), list[Taken]()
    with Simulation(federation) as engine:
        for user in range(1 + askers):
            question = question_of(engine, model, algorithm, user, ROUNDS["triage"])
            common.append(timed(question.train, question.everyone))
            whole = question.train(question.everyone)
            retraining.append(timed(leave_one_out().assess, question))
            steps.append(timed(influence_at, question, whole))
    shared, every, quick = middle(common), middle(retraining), middle(steps)
    return {
        "hospitals": HOSPITALS,
        "common_model_seconds": shared.wall,
        "leave_one_out_seconds": every.wall - shared.wall,
        "influence_seconds": quick.wall,
        "times_quicker": (every.wall - shared.wall) / quick.wall,
        "times_quicker_cpu": (every.cpu - shared.cpu) / quick.cpu,
        "times_quicker_common_model_included": every.wall / (shared.wall + quick.wall),
        "compile_seconds": {
            "leave_one_out": common[0].wall - shared.wall + retraining[0].wall - every.wall,
            "influence": steps[0].wall - quick.wall,
        },
    }


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    print(json.dumps({"time": times(ASKERS), "order": orders(seeds)}, indent=1))


if __name__ == "__main__":
    main()
