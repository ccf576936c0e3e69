"""A study's [budget] made ready for training: what a round costs, by the meter and by the model's own arithmetic."""

from collections.abc import Callable, Sequence
from typing import Any

from wardround.core.contracts import Algorithm, RoundRecord, Task
from wardround.core.errors import Refusal
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


def refuse_unknown_factors(study: Study, sites: Sequence[str]) -> None:
    """Refuse a factor of a site that is not there: a name misspelt would count by the country's mean."""
    known = (*sites, *study.deploy.sites)
    for name in study.budget.sites if study.budget else ():
        if name not in known:
            raise Refusal(
                f"there is no site called '{name}'",
                where="[budget] sites",
                remedy=registry.suggest_name(name, known[:100]),
            )


def budget_of(
    study: Study,
    algorithm: Algorithm,
    task: Task,
    *,
    first: tuple[int, int] = (0, 0),
    rows_of: Callable[[RoundRecord], int] = lambda record: record.rows,
) -> CostBudget:
    """Without limits where the study has none; `first` are bytes and training rows of the first round, where known."""
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

    sent, rows = first
    # Of energy what the messages will take is known; time, and what computing takes, are not.
    energy = meter.report(meter.observe(meter.init(), RoundRecord(1, (), 0, rows, 0.0, 0.0, sent, 0)))
    known = {
        "bytes": float(sent),
        "flops": a_row * rows,
        "kilowatt_hours": energy["watt_hours"] / 1000,
        "grams_co2": energy["watt_hours"] / 1000 * min([said.intensity, *said.sites.values()]),
    }
    found = CostBudget(said.limits, cost, known, measured)
    refuse_spent(found)
    return found
