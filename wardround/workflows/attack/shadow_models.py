"""Shadow models of a study: the same training on other halves of the same patients, each in the compiled simulation."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine.predictions import predict_rows
from wardround.engine.simulate import Simulation
from wardround.privacy.accountant import epsilon
from wardround.study.file import Study
from wardround.study.privacy import ANY
from wardround.workflows.training_plan import TrainingPlan, with_noise


@dataclass(frozen=True)
class Shadows:
    """The probability of every record's true label under every model, and who was learned from: (models, records)."""

    right: np.ndarray[Any, Any]
    members: np.ndarray[Any, Any]
    epsilon: float | None
    """What each model was promised to tell about a record, where it was promised anything."""


def shadows_of(study: Study, plan: TrainingPlan, models: int) -> Shadows:
    """Train the study on so many random halves of each site's patients; `plan` is that of its own method on all."""
    federation, seed = plan.federation, plan.seed
    if not federation.task.classification:
        raise Refusal(
            "membership is attacked through the probability of a label, and the target is no class",
            where="attack",
            remedy="attack a classification",
        )
    if plan.method.choice:
        raise Refusal("partners are chosen first", where="[partners]", remedy="remove the table for the attack")
    halves = [half_of(federation, np.random.default_rng((seed, 0x5AD0, number))) for number in range(models)]
    # All halves have as many rows, so they need the same noise.
    plan = with_noise(replace(plan, study=study, setting=replace(plan.setting, federation=halves[0][0])))
    algorithm, participation, protection = plan.algorithm, plan.participation, plan.protection
    if algorithm.personal is not None or algorithm.silent:
        raise Refusal(
            "every site uses a model of its own, which the coordinator never sees",
            where="[algorithm]",
            remedy="attack the common model of another algorithm",
        )
    rounds = [(number, participation.cohort(number)) for number in range(1, study.study.rounds + 1)]
    everybody = np.arange(len(federation.x))
    right, members = [], []
    for number, (half, inside) in enumerate(halves):
        with Simulation(
            half,
            seed=(seed + number) % 2**32,
            transform=plan.transform,
            largest_cohort=participation.largest,
        ) as engine:
            progress = engine.begin(algorithm, plan.first_params())
            progress, _ = engine.train(algorithm, progress, rounds)
        probabilities = predict_rows(algorithm, algorithm.params(progress.server), federation.x)
        right.append(probabilities[everybody, federation.y])
        members.append(inside)
    spent = None
    if protection is not None and study.privacy is not None and ANY in protection.rounds:
        steps = [step._replace(times=step.times * len(rounds)) for step in protection.rounds[ANY]]
        spent = study.privacy.epsilon or epsilon(steps, study.privacy.delta)
    return Shadows(np.array(right), np.array(members), spent)


def half_of(federation: Federation, generator: np.random.Generator) -> tuple[Federation, np.ndarray[Any, Any]]:
    """Half of every site's rows, of whatever part, to learn from; and which rows these are."""
    totals = federation.counts.sum(axis=1)
    order, inside = np.arange(len(federation.x)), np.zeros(len(federation.x), bool)
    for first, total in zip(federation.first, totals, strict=True):
        mixed = generator.permutation(total) + first
        order[first : first + total] = mixed
        inside[mixed[: total // 2]] = True
    counts = np.stack([totals // 2, np.zeros_like(totals), totals - totals // 2], axis=1)
    return replace(federation, x=federation.x[order], y=federation.y[order], counts=counts, groups={}), inside
