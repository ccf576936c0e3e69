"""Methods compared at equal cost: after the same local steps, after the same traffic, among as many sites.

Everything is read from the rounds that were written down: the validation loss of the asking site, what travelled for
the model it uses, and how often it stepped. Every site is the asking one in turn; figures are means over sites and
repeats. The loss after a budget is that of the last evaluation within it, so a coarse `[evaluation] every` makes these
tables coarse. They rest on validation patients and give no verdict: the comparison on test patients does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wardround.engine import registry
from wardround.runs.cases_result import BudgetTables, EqualBudget, ScopeTable

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Trainer:
    """What is needed to know of a method: its name, how it steps, and whether it ever sends anything."""

    name: str
    algorithm: str
    settings: Json
    chooses: bool = False

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


@dataclass(frozen=True)
class Walk:
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

    def within(self, spent: Sequence[int], budget: float) -> int | None:
        """The last evaluation that the budget allows."""
        allowed = [place for place, cost in enumerate(spent) if cost <= budget]
        return allowed[-1] if allowed else None


def budgets(rounds: Iterable[Json], trainers: Sequence[Trainer], rows: Mapping[str, int]) -> BudgetTables:
    """The three tables; `rows` tells every site's training patients."""
    records: dict[str, dict[tuple[int, str | None], list[Json]]] = {trainer.name: {} for trainer in trainers}
    for record in rounds:
        if record["method"] in records:
            records[record["method"]].setdefault((record["repeat"], record.get("user")), []).append(record)
    walks = {trainer.name: walks_of(trainer, records[trainer.name], rows) for trainer in trainers}
    return BudgetTables(
        steps=EqualBudget.model_validate(equal(walks, "steps")),
        traffic=EqualBudget.model_validate(equal(walks, "bytes")),
        scope=ScopeTable.model_validate(scopes(walks, len(rows))),
    )


def walks_of(
    trainer: Trainer, courses: Mapping[tuple[int, str | None], list[Json]], rows: Mapping[str, int]
) -> list[Walk]:
    """For every repeat and asking site how it went; a method that is for all sites serves each of them at once."""
    found = []
    for (_, user), records in courses.items():
        last = sorted({record["round"]: record for record in records}.values(), key=lambda record: record["round"])
        sites = [user] if user is not None else list(losses_in(last))
        found += [walk for site in sites if site in rows and (walk := walk_of(trainer, last, site, rows)) is not None]
    return found


def losses_in(records: Sequence[Json]) -> dict[str, None]:
    return dict.fromkeys(site for record in records for site in loss_sites(record))


def loss_sites(record: Json) -> Json:
    sites: Json = record.get("measures", {}).get("validation_loss", {}).get("sites", {})
    return sites


def walk_of(trainer: Trainer, records: Sequence[Json], site: str, rows: Mapping[str, int]) -> Walk | None:
    """None where the site's loss was never told (no validation patients, or too many sites to tell each)."""
    pooled = trainer.algorithm == "centralized"
    own, steps, sent = trainer.steps(sum(rows.values()) if pooled else rows[site]), 0, 0
    seen: list[tuple[int, float, int, int]] = []
    for record in records:
        sent += record["bytes_down"] + record["bytes_up"]
        # Cohorts too large to be named: everybody is taken to be there.
        if record["round"] > 0 and (pooled or site in record["sites"] or not record["sites"]):
            steps += own
        loss = loss_sites(record).get(site)
        if loss is not None:
            seen.append((record["round"], float(loss), steps, sent))
    if not seen:
        return None
    numbers, losses, stepped, spent = zip(*seen, strict=True)
    return Walk(site, numbers, losses, stepped, spent, steps, sent, scope_of(trainer, records, site, rows, sent))


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


def equal(walks: Mapping[str, Sequence[Walk]], what: str) -> dict[str, Any]:
    """Every method's loss after the smallest total of `what` among those that spend any, site by site."""
    totals: dict[str, list[int]] = {}
    for some in walks.values():
        for walk in some:
            total = walk.total_steps if what == "steps" else walk.total_bytes
            if total:
                totals.setdefault(walk.site, []).append(total)
    budget = {site: min(spent) for site, spent in totals.items()}
    table: dict[str, Any] = {}
    for name, some in walks.items():
        if some and not any(walk.total_bytes if what == "bytes" else walk.total_steps for walk in some):
            # It spends nothing, so that no budget binds it: its last loss, and told as such.
            table[name] = {"loss": mean([walk.losses[-1] for walk in some]), "spends": False}
            continue
        spent = [(walk, walk.within(getattr(walk, what), budget.get(walk.site, 0))) for walk in some]
        reached = [(walk, place) for walk, place in spent if place is not None]
        # A mean over fewer sites than the others' would be another question's answer.
        whole = bool(some) and len(reached) == len(spent)
        table[name] = {
            "loss": mean([walk.losses[place] for walk, place in reached]) if whole else None,
            "round": mean([walk.rounds[place] for walk, place in reached]) if whole else None,
            "spends": True,
        }
        if not whole:
            table[name]["undefined"] = (
                "no validation loss was written down" if not some else "its first evaluation lies past the budget"
            )
    return {"budget": budget, "methods": table}


def scopes(walks: Mapping[str, Sequence[Walk]], sites: int) -> dict[str, Any]:
    """Every method with the number of sites its models learned from, in groups of like numbers, and its last loss."""
    table: dict[str, Any] = {}
    for name, some in walks.items():
        if not some:
            table[name] = {"scope": None, "group": None, "loss": None}
            continue
        scope = mean([walk.scope for walk in some])
        table[name] = {
            "scope": scope,
            "smallest": min(walk.scope for walk in some),
            "largest": max(walk.scope for walk in some),
            "group": int(np.floor(scope + 0.5)),
            "loss": mean([walk.losses[-1] for walk in some]),
        }
    return {"sites": sites, "methods": table}


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
