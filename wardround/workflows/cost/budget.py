"""A study's [budget] made ready for training: what a round costs, by the meter and by the model's own arithmetic."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Batch, Model, RoundRecord, Task
from wardround.engine import registry
from wardround.engine.budget import UNLIMITED, CostBudget, refuse_spent
from wardround.engine.machine.power import joule_counter
from wardround.engine.split_round import row_of
from wardround.study import assemble
from wardround.study.file import Study

ROWS = 64
"""Rows of the batch whose operations are counted."""


def energy_settings(study: Study) -> dict[str, Any]:
    """How the energy meter of this study counts CO2."""
    said = study.budget
    return {} if said is None else {"grams_per_kwh": said.intensity, "site_grams_per_kwh": dict(said.sites)}


def budget_of(
    study: Study,
    algorithm: Algorithm,
    task: Task,
    *,
    message_bytes: int = 0,
    first: tuple[int, int] = (0, 0),
    rows_of: Callable[[RoundRecord], int] = lambda record: record.rows,
) -> CostBudget:
    """Without limits where the study has none; `first` are sites and training rows of the first round, where known."""
    said = study.budget
    if said is None or not said.limits:
        return UNLIMITED
    meter = registry.find("meter", "energy").build(**energy_settings(study))
    a_row = flops_a_row(assemble.model_of(study, task), task) * algorithm.passes if "flops" in said.limits else 0.0
    measured = joule_counter() if said.limits.keys() & {"kilowatt_hours", "grams_co2"} else None

    def cost(record: RoundRecord) -> dict[str, float]:
        energy = meter.report(meter.observe(meter.init(), record))
        every = {
            "bytes": float(record.bytes_down + record.bytes_up),
            "flops": a_row * rows_of(record),
            "seconds": record.seconds,
            "kilowatt_hours": energy["watt_hours"] / 1000,
            "grams_co2": energy["grams_co2"],
        }
        return {name: every[name] for name in said.limits}

    sites, rows = first
    found = CostBudget(said.limits, cost, {"bytes": float(message_bytes * sites), "flops": a_row * rows}, measured)
    refuse_spent(found)
    return found


@lru_cache(maxsize=16)
def flops_a_row(model: Model, task: Task) -> float:
    """Operations of one gradient step, a row: as the compiler counts those of a batch of 64."""
    rows: list[Any] = [jax.ShapeDtypeStruct((ROWS, *part.shape), part.dtype) for part in row_of(task)]
    shapes = Batch(rows[0], rows[1], np.zeros(ROWS, np.float32))
    params = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    lowered = jax.jit(lambda given, batch: model.gradient(given, batch, jax.random.key(0))).lower(params, shapes)
    counted: Any = lowered.cost_analysis() or {}
    return float(counted.get("flops", 0.0)) / ROWS
