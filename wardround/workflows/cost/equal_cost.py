"""Methods compared at equal cost: after the same local steps, traffic, arithmetic or CO2, and among as many sites.

Everything is read from the rounds that were written down: the validation loss of the asking site, what travelled for
the model it uses, and how often it stepped. Every site is the asking one in turn; figures are means over sites and
repeats. The loss after a budget is that of the last evaluation within it, so a coarse `[evaluation] every` makes these
tables coarse. They rest on validation patients and give no verdict: the comparison on test patients does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wardround.core.contracts import RoundRecord
from wardround.engine import registry
from wardround.engine.machine.operations import operations_of_training
from wardround.runs.cases_result import BudgetTables, EqualBudget, ScopeTable
from wardround.runs.fields import part_of
from wardround.workflows.cost.budget import energy_settings
from wardround.workflows.training_plan import TrainingPlan

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Trainer:
    """What is needed to know of a method: its name, how it steps, and whether it ever sends anything."""

    name: str
    algorithm: str
    settings: Json
    chooses: bool = False
    row_flops: float = 1.0
    """Floating-point operations of its gradient for a row; at 1 rows are counted."""
    energy: Json = field(default_factory=dict)
    """How the energy meter counts CO2."""

    def steps(self, rows: int) -> int:
        """Steps that a site with so many training rows takes in a round, on the model that it sends or uses."""
        component = registry.find("algorithm", self.algorithm)
        said = {parameter.name: parameter.default for parameter in component.parameters} | dict(self.settings)
        if rows == 0:
            return 0
        # One gradient a round: FedSGD, which knows no epochs, and Weight Erosion as printed.
        if "local_epochs" not in said or said.get("updates") == "gradient":
            return 1
        size = said.get("batch_size") or rows
        return int(said["local_epochs"]) * -(-rows // int(size))

    @property
    def passes(self) -> int:
        """Times that a site goes through its rows in a round."""
        component = registry.find("algorithm", self.algorithm)
        said = {parameter.name: parameter.default for parameter in component.parameters} | dict(self.settings)
        return 1 if said.get("updates") == "gradient" else int(said.get("local_epochs", 1))


def trainer_of(plan: TrainingPlan) -> Trainer:
    """What the tables at equal cost need to know of a method."""
    one, flops = plan.method, operations_of_training(plan.algorithm, plan.model, plan.federation.task)
    settings = dict(one.settings)
    return Trainer(one.name, one.algorithm, settings, bool(one.choice), flops, energy_settings(plan.study))


@dataclass(frozen=True)
class LossCurve:
    """One repeat of one method as one asking site sees it, at every evaluated round."""

    site: str
    rounds: tuple[int, ...]
    losses: tuple[float, ...]
    steps: tuple[int, ...]
    bytes: tuple[int, ...]
    total_steps: int
    total_bytes: int
    scope: float
    """Sites whose patients the model has learned from: the effective number, where they count unequally."""
    flops: tuple[float, ...] = ()
    grams: tuple[float, ...] = ()
    total_flops: float = 0.0
    total_grams: float = 0.0

    def within(self, spent: Sequence[float], budget: float) -> int | None:
        """The last evaluation that the budget allows."""
        allowed = [place for place, cost in enumerate(spent) if cost <= budget]
        return allowed[-1] if allowed else None


def budgets(rounds: Iterable[Json], trainers: Sequence[Trainer], rows: Mapping[str, int]) -> BudgetTables:
    """The five tables; `rows` tells every site's training patients."""
    records: dict[str, dict[tuple[int, str | None], list[Json]]] = {trainer.name: {} for trainer in trainers}
    for record in rounds:
        if record["method"] in records:
            records[record["method"]].setdefault((record["repeat"], record.get("user")), []).append(record)
    curves = {trainer.name: loss_curves(trainer, records[trainer.name], rows) for trainer in trainers}
    return BudgetTables(
        steps=part_of(EqualBudget, equal_budget(curves, "steps")),
        traffic=part_of(EqualBudget, equal_budget(curves, "bytes")),
        scope=part_of(ScopeTable, scopes(curves, len(rows))),
        flops=part_of(EqualBudget, equal_budget(curves, "flops")),
        grams=part_of(EqualBudget, equal_budget(curves, "grams")),
    )


def loss_curves(
    trainer: Trainer, courses: Mapping[tuple[int, str | None], list[Json]], rows: Mapping[str, int]
) -> list[LossCurve]:
    """For every repeat and asking site how it went; a method that is for all sites serves each of them at once."""
    found = []
    for (_, user), records in courses.items():
        last = sorted({record["round"]: record for record in records}.values(), key=lambda record: record["round"])
        sites = [user] if user is not None else list(losses_in(last))
        found += [
            curve for site in sites if site in rows and (curve := loss_curve(trainer, last, site, rows)) is not None
        ]
    return found


def losses_in(records: Sequence[Json]) -> dict[str, None]:
    return dict.fromkeys(site for record in records for site in loss_sites(record))


def loss_sites(record: Json) -> Json:
    sites: Json = record.get("measures", {}).get("validation_loss", {}).get("sites", {})
    return sites


def loss_curve(trainer: Trainer, records: Sequence[Json], site: str, rows: Mapping[str, int]) -> LossCurve | None:
    """None where the site's loss was never told (no validation patients, or too many sites to tell each)."""
    pooled = trainer.algorithm == "centralized"
    own, steps, sent = trainer.steps(sum(rows.values()) if pooled else rows[site]), 0, 0
    worked_on, grams, passes = 0.0, 0.0, trainer.passes
    seen: list[tuple[int, float, int, int, float, float]] = []
    for record in records:
        sent += record["bytes_down"] + record["bytes_up"]
        worked_on += passes * record.get("rows", 0) * trainer.row_flops
        grams += grams_of(record, trainer.energy)
        # Cohorts too large to be named: everybody is taken to be there.
        if record["round"] > 0 and (pooled or site in record["sites"] or not record["sites"]):
            steps += own
        loss = loss_sites(record).get(site)
        if loss is not None:
            seen.append((record["round"], float(loss), steps, sent, worked_on, grams))
    if not seen:
        return None
    numbers, losses, stepped, spent, worked, emitted = zip(*seen, strict=True)
    scope = scope_of(trainer, records, site, rows, sent)
    return LossCurve(
        site,
        numbers,
        losses,
        stepped,
        spent,
        steps,
        sent,
        scope,
        worked,
        emitted,
        total_flops=worked_on,
        total_grams=grams,
    )


def grams_of(record: Json, energy: Json) -> float:
    """CO2 of a round, by the energy meter with the study's factors."""
    meter = registry.find("meter", "energy").build(**energy)
    told = {"sites": (), "count": 0, "rows": 0, "seconds": 0.0, "cpu_seconds": 0.0, "measures": {}, **record}
    fields = {name: told[name] for name in RoundRecord.__dataclass_fields__}
    return float(meter.report(meter.observe(meter.init(), RoundRecord(**fields)))["grams_co2"])


def scope_of(trainer: Trainer, records: Sequence[Json], site: str, rows: Mapping[str, int], sent: int) -> float:
    """How many sites the asking site's model has learned from, at the end."""
    if trainer.chooses and records[0]["round"] == 0:
        return 1.0 + len(records[0]["measures"]["told"]["chosen"])
    everybody = float(sum(count > 0 for count in rows.values()))
    if not sent:
        return everybody if trainer.algorithm == "centralized" else 1.0
    told: Json = next((one["measures"]["told"] for one in reversed(records) if "told" in one.get("measures", {})), {})
    if isinstance(alpha := told.get("alpha"), Mapping):
        weights = np.array([float(weight) for weight in alpha.values()])
        # The effective number: n for n equal weights, 1 where all but one have vanished.
        return float(weights.sum() ** 2 / np.square(weights).sum()) if weights.any() else 1.0
    if isinstance(cluster := told.get("cluster"), Mapping):
        return float(sum(other == cluster.get(site) for other in cluster.values()))
    return everybody


def equal_budget(curves: Mapping[str, Sequence[LossCurve]], what: str) -> dict[str, Any]:
    """Every method's loss after the smallest total of `what` among those that spend any, site by site."""
    totals: dict[str, list[float]] = {}
    for some in curves.values():
        for curve in some:
            total = getattr(curve, f"total_{what}")
            if total:
                totals.setdefault(curve.site, []).append(total)
    budget = {site: min(spent) for site, spent in totals.items()}
    table: dict[str, Any] = {}
    for name, some in curves.items():
        if some and not any(getattr(curve, f"total_{what}") for curve in some):
            # It spends nothing, so that no budget binds it: its last loss, and told as such.
            table[name] = {"loss": mean([curve.losses[-1] for curve in some]), "spends": False}
            continue
        spent = [(curve, curve.within(getattr(curve, what), budget.get(curve.site, 0))) for curve in some]
        reached = [(curve, place) for curve, place in spent if place is not None]
        # A mean over fewer sites than the others' would be another question's answer.
        whole = bool(some) and len(reached) == len(spent)
        table[name] = {
            "loss": mean([curve.losses[place] for curve, place in reached]) if whole else None,
            "round": mean([curve.rounds[place] for curve, place in reached]) if whole else None,
            "spends": True,
        }
        if not whole:
            table[name]["undefined"] = (
                "no validation loss was written down" if not some else "its first evaluation lies past the budget"
            )
    return {"budget": budget, "methods": table}


def scopes(curves: Mapping[str, Sequence[LossCurve]], sites: int) -> dict[str, Any]:
    """Every method with the number of sites its models learned from, in groups of like numbers, and its last loss."""
    table: dict[str, Any] = {}
    for name, some in curves.items():
        if not some:
            table[name] = {"scope": None, "group": None, "loss": None}
            continue
        scope = mean([curve.scope for curve in some])
        table[name] = {
            "scope": scope,
            "smallest": min(curve.scope for curve in some),
            "largest": max(curve.scope for curve in some),
            "group": int(np.floor(scope + 0.5)),
            "loss": mean([curve.losses[-1] for curve in some]),
        }
    return {"sites": sites, "methods": table}


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
