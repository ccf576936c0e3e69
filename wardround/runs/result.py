"""THE format of `result.json`: one model for each kind of result, all with a format number.

`docs/reference/result.md` and `result.schema.json` are made from this. A workflow makes a result and the run folder
writes it (`RunFolder.write_result`); everybody reads it with `wardround.runs.read.read_result`.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.cases_result import BudgetTables, CaseResult, MethodLabel, RateSearch
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.clinical.monitor import MonitoredSite
from wardround.runs.clinical.patient_table import PatientFlow, PatientTable
from wardround.runs.explain.explain_result import ExplainResult
from wardround.runs.explain.gaps_result import GapsResult
from wardround.runs.fields import (
    ByName,
    Flag,
    Json,
    Many,
    Name,
    Names,
    Number,
    ResultPart,
    Table,
    Text,
    Texts,
    Whole,
    mapping,
    number,
    total,
)
from wardround.runs.partners_result import (
    ChoiceCost,
    PartnerMeasure,
    PartnersVerdict,
    RankAgreement,
    SimilarityTable,
    SiteAdvice,
    SiteComparison,
    SiteMap,
    TrainingShare,
)
from wardround.runs.scores import NOT_MEASURED, FairnessScores, MetricValue, ReliabilityBin, ScoreBlock
from wardround.runs.sites import PredictionTask, SiteSummary

FORMAT = 1
"""Raised when a key changes its meaning or goes; a new key alone does not."""
ALL = "all sites"
"""The name of the federation as a whole among the sites of a comparison."""


@dataclass(frozen=True)
class Cost:
    """What a method used; None where nobody measured it."""

    bytes_down: float | None = None
    bytes_up: float | None = None
    seconds: float | None = None
    compile_seconds: float | None = None
    watt_hours: float | None = None
    co2_grams: float | None = None

    @property
    def traffic(self) -> float | None:
        return total((self.bytes_down, self.bytes_up))


class MethodResult(ResultPart):
    """One way to train: what it was, how it went, what it cost, and its figures on held-out patients."""

    name: Text
    label: Text
    """What a report calls it."""
    algorithm: Text
    settings: Table
    rounds: Whole
    user: Name
    """The site it was trained for, where it is for one."""
    partners: Names
    """Whom a choice of partners took, best first; null where none was made."""
    best_round: Whole
    stopped_early: Flag
    seconds: Number
    compile_seconds: Number
    meters: Table
    """What every meter says, by its name."""
    scores: ScoreBlock
    fairness: FairnessScores | None = None
    clinical: ClinicalFigures | None = None

    @classmethod
    def normalize(cls, data: Any) -> Json:
        found = mapping(data)
        return {**found, "label": found.get("label") or found.get("name")}

    @property
    def cost(self) -> Cost:
        traffic, energy = mapping(self.meters.get("traffic")), mapping(self.meters.get("energy"))
        return Cost(
            bytes_down=number(traffic.get("bytes_down")),
            bytes_up=number(traffic.get("bytes_up")),
            seconds=self.seconds,
            compile_seconds=self.compile_seconds,
            watt_hours=number(energy.get("watt_hours")),
            co2_grams=number(energy.get("grams_co2")),
        )

    @property
    def reliability(self) -> tuple[ReliabilityBin, ...]:
        """The bins that can be drawn."""
        return tuple(b for b in self.scores.reliability if b.predicted is not None and b.observed is not None)

    def at(self, site: str, metric: str) -> MetricValue:
        return self.scores.sites.get(site, {}).get(metric, NOT_MEASURED)

    def over_all(self, metric: str) -> MetricValue:
        """Over all sites, each counting by its patients."""
        return self.scores.weighted.get(metric, NOT_MEASURED)


class MethodDifference(ResultPart):
    """A method against another on the same patients."""

    metric: Text
    site: Text
    """A site, or "all sites"."""
    method: Text
    against: Text
    difference: Number
    """Of `method` less that of `against`."""
    low: Number
    high: Number
    p_value: Number
    verdict: Text
    """Of `method`: better, worse, or no difference shown; corrected for the number of comparisons."""
    wins: Whole
    ties: Whole
    losses: Whole
    repeats: Whole
    """In which both have a value; `method` wins, ties or loses each."""
    reason: Text

    @property
    def measure(self) -> MetricValue:
        return MetricValue(value=self.difference, low=self.low, high=self.high, undefined=self.reason)


class RunResult(ResultPart):
    """Of `run`, `compare`, `demo`, `retrain`, a deployed study, and a site's own report of one."""

    study: Text
    kind: Text = Field(json_schema_extra={"enum": ["run", "compare", "demo", "deployed", "site"]})
    metric: Text
    """The main one."""
    task: PredictionTask
    sites: Many[SiteSummary]
    flow: PatientFlow | None = None
    """From rows read to rows used."""
    patient_table: PatientTable | None = None
    """The patients described; of real sites as coarsely as they told, without a column for each."""
    truth: Any = None
    """What the maker of the data knows: sentences, or a table of groups, reasons and numbers."""
    repeats: Whole
    methods: Many[MethodResult]
    comparison: Many[MethodDifference]
    notes: Texts
    budgets: BudgetTables | None = None
    """The methods at equal cost, where a comparison has cases or rates."""
    rates: Many[RateSearch] = ()
    """How each method's learning rate was chosen."""


class CasesResult(ResultPart):
    """Of `compare` over several cases; each case has a run folder of its own."""

    study: Text
    kind: Text = Field(json_schema_extra={"const": "cases"})
    against: Text
    """The method that all are compared with."""
    users: Text
    """"each" where every site asks in turn, else "one"."""
    methods: Many[MethodLabel]
    cases: Many[CaseResult]
    notes: Texts


class PartnersResult(ResultPart):
    """Of `partners`: with whom the asking site should train, why, and whether it helps."""

    study: Text
    kind: Text = Field(json_schema_extra={"const": "partners"})
    metric: Text
    task: PredictionTask
    sites: Many[SiteSummary]
    truth: Any = None
    asking: Text
    repeats: Whole
    verdict: PartnersVerdict
    measures: Many[PartnerMeasure]
    """Ways to judge partners; the first is the one that decided."""
    agreement: Many[RankAgreement]
    similarity: Many[SimilarityTable]
    map: SiteMap
    pairs: Many[SiteComparison]
    feedback: Many[SiteAdvice]
    dilution: Many[TrainingShare]
    cost: ChoiceCost
    notes: Texts


class TuneTrial(ResultPart):
    """Settings that were tried, and the validation loss they gave in every fold."""

    settings: Table
    loss: Number
    """None where training diverged."""
    folds: Many[Number]
    refused: Text = ""


class TuneResult(ResultPart):
    """Of `tune`: the best settings, and every trial."""

    study: Text
    kind: Text = Field(json_schema_extra={"const": "tune"})
    trials: Whole
    loss: Number
    spread: Number
    """Standard deviation of the loss between folds."""
    settings: ByName[Table]
    """Table of the study file, key, value."""
    all: Many[TuneTrial]


class MonitorResult(ResultPart):
    """Of a study with [monitor] over real sites: where the model of an earlier study ages."""

    study: Text
    kind: Text = Field(json_schema_extra={"const": "monitor"})
    model: Text
    """The study that trained the model; every site looked at the one that it kept."""
    outcome: Text
    date: Text
    every: Text
    false_alarms: Number
    """The chance, at most, that any verdict is wrong while the model is right everywhere."""
    sites: Many[MonitoredSite]
    notes: Texts


Result = (
    RunResult | CasesResult | PartnersResult | TuneResult | AnalysisResult | MonitorResult | ExplainResult | GapsResult
)
KINDS: dict[str, type[Result]] = {
    **dict.fromkeys(("run", "compare", "demo", "deployed", "site"), RunResult),
    "cases": CasesResult,
    "partners": PartnersResult,
    "tune": TuneResult,
    "monitor": MonitorResult,
    "analysis": AnalysisResult,
    "explain": ExplainResult,
    "gaps": GapsResult,
}


def values_of(result: Result) -> dict[str, Any]:
    """The result as `result.json` holds it, and as commands print it with --json."""
    return {"format": FORMAT, **result.plain()}
