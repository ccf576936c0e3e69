"""Parts of the result of a comparison with rates or over many cases: methods at equal cost, rates, one case."""

from typing import Any

from wardround.runs.fields import ByName, Json, Many, Number, ResultPart, Text, Whole, YesNo, mapping
from wardround.runs.scores import MetricValue
from wardround.runs.sites import PredictionTask, SiteSummary


class BudgetLoss(ResultPart):
    """A method's validation loss once the budget was spent."""

    loss: Number
    round: Number = None
    spends: YesNo = None
    """False for a method that no such budget binds."""
    undefined: Text = ""


class EqualBudget(ResultPart):
    """Methods after the same cost."""

    budget: ByName[Number]
    """What each asking site may spend."""
    methods: ByName[BudgetLoss]


class ModelScope(ResultPart):
    """How many sites' patients a method's models have learned from, and its last validation loss."""

    scope: Number
    smallest: Number = None
    largest: Number = None
    group: Whole
    loss: Number


class ScopeTable(ResultPart):
    """Methods by the number of sites behind their models."""

    sites: Whole
    methods: ByName[ModelScope]


class BudgetTables(ResultPart):
    """Methods at equal cost: after as many local steps, after as much traffic, among as many sites."""

    steps: EqualBudget
    traffic: EqualBudget
    scope: ScopeTable
    rows: EqualBudget | None = None
    """As `flops`, in results of earlier versions: after as many rows trained on at all sites."""
    flops: EqualBudget | None = None
    """After as many floating-point operations of training at all sites."""
    grams: EqualBudget | None = None
    """After as many grams of CO2, by the energy meter."""


class TriedRate(ResultPart):
    """A learning rate and the validation loss it gave; null where training diverged."""

    rate: Number
    loss: Number


class RateSearch(ResultPart):
    """How a method's learning rate was chosen: by the validation loss with each."""

    method: Text
    setting: Text
    rate: Number
    """None where training diverged with every rate."""
    tried: Many[TriedRate]


class MethodLabel(ResultPart):
    """A method, and what a report calls it."""

    name: Text
    label: Text


class CaseDifference(ResultPart):
    """A method against another over all sites of a case."""

    difference: Number
    low: Number
    high: Number
    p_value: Number
    verdict: Text


class CaseMethodResult(MetricValue):
    """A method's main metric in one case, with its rate, its scope, and how it compares with others."""

    rate: Number
    scope: Number
    against: ByName[CaseDifference]


class CaseResult(ResultPart):
    """One case of a comparison; all of it is in the case's own folder."""

    name: Text
    title: Text
    folder: Text
    metric: Text
    repeats: Whole
    task: PredictionTask
    sites: Many[SiteSummary]
    methods: ByName[CaseMethodResult]
    budgets: BudgetTables

    @classmethod
    def normalize(cls, data: Any) -> Json:
        found = mapping(data)
        return {**found, "title": found.get("title") or found.get("name")}

    @property
    def patients(self) -> int:
        return sum(site.patients for site in self.sites)

    def is_better(self, method: str, against: str) -> bool:
        return self.verdict(method, against) == "better"

    def is_worse(self, method: str, against: str) -> bool:
        return self.verdict(method, against) == "worse"

    def verdict(self, method: str, against: str) -> str:
        own = self.methods.get(method)
        other = own.against.get(against) if own else None
        return other.verdict if other else ""
