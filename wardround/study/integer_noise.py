"""The privacy of whole sites inside a secure sum: how much noise in whole numbers it needs, and what a round costs.

The sites add discrete Gaussian noise before they mask, so the promise is that of `privacy.distributed_noise`: it counts
the rounding, the losses that are allowed (those beyond `answers`), and how far sums of such noise are from one.
"""

from dataclasses import replace
from math import ceil, log2
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import OWED, Algorithm, Model
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.split_round import answer_shapes
from wardround.privacy.distributed_noise import NoisePlan, plan_for
from wardround.privacy.secure_sum.session import RING_BITS
from wardround.study.file import Named, Study

SECURE_SUM = "secure_sum"
DEVIATIONS = 16
"""Of the noise in a sum that must fit; beyond is nothing in 10^50 draws."""


def sum_settings(transforms: list[Named]) -> dict[str, Any]:
    """Those of the study's secure sum: binary places, bound, bits of the ring."""
    component = registry.find("transform", SECURE_SUM)
    settings = next(one.settings for one in transforms if one.name == SECURE_SUM)
    registry.check_settings(component, settings, "[[transforms]]")
    return {**{one.name: one.default for one in component.parameters}, **settings}


def entries_of(algorithm: Algorithm, model: Model, row: Any, sites: int) -> int:
    """Numbers of an answer that get noise: all but the weight."""
    params = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    server = jax.eval_shape(lambda first: algorithm.init(first, sites), params)
    shapes = answer_shapes(algorithm, server, jax.eval_shape(algorithm.init_client, params), row)
    noised = {name: tree for name, tree in shapes.arrays.items() if name not in ("weight", OWED)}
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(noised))


def plan_integer_noise(study: Study, entries: int, answers: int, rounds: int, sites: int) -> NoisePlan:
    """The noise that the study says, or the least that keeps its epsilon, if so many sites answer at least.

    `sites` is how many there are: what all of them add must fit into the ring.
    """
    privacy = study.privacy
    assert privacy is not None
    settings = sum_settings(study.transforms)
    said: dict[str, Any] = {
        "clip": privacy.clip,
        "entries": entries,
        "fraction_bits": int(settings["fraction_bits"]),
        "sites": answers,
    }
    if privacy.noise_multiplier is not None:
        plan = NoisePlan(privacy.noise_multiplier, **said)
    else:
        plan = plan_for(privacy.epsilon or 0.0, privacy.delta, rounds, **said)
    refuse_narrow_ring(plan, int(settings["bits"]), sites, adaptive=privacy.quantile is not None)
    return plan


def refuse_narrow_ring(plan: NoisePlan, bits: int, sites: int, *, adaptive: bool) -> None:
    """Refuse a ring into which the answers of all sites and sixteen deviations of their noise do not fit."""
    if bits == RING_BITS:
        return
    if adaptive:
        raise Refusal(
            "a clipping length that adapts may outgrow a secure sum of few bits",
            where="[privacy], [[transforms]]",
            remedy="take bits out of secure_sum, or give [privacy] a fixed clip",
        )
    needed = sites * plan.sensitivity + DEVIATIONS * plan.site_deviation * sites**0.5
    if needed >= 2.0 ** (bits - 1):
        raise Refusal(
            f"the noise of {sites} sites, {plan.site_deviation:.3g} steps of the grid each, does not fit into {bits} "
            "bits",
            where="[privacy], [[transforms]]",
            remedy=f"give secure_sum {ceil(log2(needed)) + 1} bits, or fewer fraction_bits",
        )


def multipliers(plan: NoisePlan, answered: int) -> dict[str, float]:
    """What a round costs in which so many sites answered, as noise multipliers of like concentrated privacy.

    Each added its share, so more sites are more noise. Another patient moves an answer by twice the bound at most.
    """
    grown = replace(
        plan, sites=answered, noise_multiplier=plan.noise_multiplier * (answered / plan.hiding_sites) ** 0.5
    )
    return {kind: (2 * grown.rho_of(moves)) ** -0.5 for kind, moves in (("whole_sites", 1.0), ("patients", 2.0))}
