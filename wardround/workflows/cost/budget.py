"""A study's [budget] made ready for training: what a round costs, by the meter and by the model's own arithmetic."""

from collections.abc import Callable
from typing import Any

from wardround.core.contracts import Algorithm, RoundRecord, Task
from wardround.engine import registry
from wardround.engine.budget import UNLIMITED, CostBudget, refuse_spent
from wardround.engine.machine.operations import operations_of_training
from wardround.engine.machine.power import joule_counter
from wardround.study import assemble
from wardround.study.file import Study


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
    a_row = 0.0
    if "flops" in said.limits:
        a_row = operations_of_training(algorithm, assemble.model_of(study, task), task) * algorithm.passes
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
