"""The privacy of whole sites inside a secure sum: how much noise in whole numbers it needs, and what a round costs.

The sites add discrete Gaussian noise before they mask, so the promise is that of `privacy.distributed_noise`: it counts
the rounding, the losses that are allowed (those beyond `answers`), and how far sums of such noise are from one.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import OWED, Algorithm, Model
from wardround.engine import registry
from wardround.engine.split_round import answer_shapes
from wardround.privacy.distributed_noise import NoisePlan, plan_for
from wardround.study.file import Named, Study

SECURE_SUM = "secure_sum"


def binary_places(transforms: list[Named]) -> int:
    """Those of the study's secure sum."""
    component = registry.find("transform", SECURE_SUM)
    settings = next(one.settings for one in transforms if one.name == SECURE_SUM)
    registry.check_settings(component, settings, "[[transforms]]")
    return int({**{one.name: one.default for one in component.parameters}, **settings}["fraction_bits"])


def entries_of(algorithm: Algorithm, model: Model, row: Any, sites: int) -> int:
    """Numbers of an answer that get noise: all but the weight."""
    params = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    server = jax.eval_shape(lambda first: algorithm.init(first, sites), params)
    shapes = answer_shapes(algorithm, server, jax.eval_shape(algorithm.init_client, params), row)
    noised = {name: tree for name, tree in shapes.arrays.items() if name not in ("weight", OWED)}
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(noised))


def plan_integer_noise(study: Study, entries: int, answers: int, rounds: int) -> NoisePlan:
    """The noise that the study says, or the least that keeps its epsilon, if so many sites answer at least."""
    privacy = study.privacy
    assert privacy is not None
    places = binary_places(study.transforms)
    said: dict[str, Any] = {"clip": privacy.clip, "entries": entries, "fraction_bits": places, "sites": answers}
    if privacy.noise_multiplier is not None:
        return NoisePlan(privacy.noise_multiplier, **said)
    return plan_for(privacy.epsilon or 0.0, privacy.delta, rounds, **said)


def multipliers(plan: NoisePlan, answered: int) -> dict[str, float]:
    """What a round costs in which so many sites answered, as noise multipliers of like concentrated privacy.

    Each added its share, so more sites are more noise. Another patient moves an answer by twice the bound at most.
    """
    grown = replace(
        plan, sites=answered, noise_multiplier=plan.noise_multiplier * (answered / plan.hiding_sites) ** 0.5
    )
    return {kind: (2 * grown.rho_of(moves)) ** -0.5 for kind, moves in (("whole_sites", 1.0), ("patients", 2.0))}
