"""Partners of an asking site, methods side by side, hyper-parameters to search."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wardround.partners.choice import Rule
from wardround.study.sections.section import Section, Settings


class PartnersSection(BaseModel):
    """How the asking site finds partners; keys that are not named here are settings of the choice."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    name: str = "evidence"
    top: int | None = Field(default=None, ge=1)
    """Take the best so many;"""
    threshold: float | None = None
    """or those with a score above this;"""
    by_hand: list[str] | None = None
    """or these."""
    withdrawn: list[str] = Field(default_factory=list)
    """Sites that do not want to take part in this study."""
    limits: dict[str, float] = Field(default_factory=dict)
    """The share of training data and weight that a site allows to be its own, at most."""
    measures: list[str] = ["ndoye", "gradient_distance", "distribution_distance", "influence", "leave_one_out"]
    """Further measures that `wardround partners` shows beside the choice."""
    repeats: int = Field(default=5, ge=1)
    """Splits over which `wardround partners` judges the partners and whether joining helps."""

    @property
    def settings(self) -> Settings:
        return dict(self.model_extra or {})

    @property
    def rule(self) -> Rule:
        return Rule(self.top, self.threshold, None if self.by_hand is None else tuple(self.by_hand))


class CaseSection(Section):
    """A setting of its own in a comparison; its tables override those of the study."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    title: str | None = None
    data: Settings = Field(default_factory=dict)
    """Replaces the study's [data] as a whole where it names a source, else only the keys it names."""
    study: Settings = Field(default_factory=dict)
    model: Settings = Field(default_factory=dict)
    privacy: Settings = Field(default_factory=dict)


class CompareSection(Section):
    """Methods to run on the same splits; "global" stands for the study's own algorithm."""

    methods: list[str] = Field(min_length=1)
    repeats: int = Field(default=5, ge=1)
    users: Literal["one", "each"] = "one"
    """Whether methods that train for an asking site do so for the study's user, or for each site in turn."""
    against: str | None = None
    """The method that the others are compared with; by default all pairs when they are few, else the first one."""
    settings: dict[str, Settings] = Field(default_factory=dict)
    """Settings of single methods; other settings are taken from [algorithm] where a method knows them."""
    rates: list[Annotated[float, Field(gt=0)]] = Field(default_factory=list)
    """Learning rates from which each method gets its own, by the validation loss on the first split."""
    cases: list[CaseSection] = Field(default_factory=list)
    """Settings, such as other data or another partition, in each of which the methods are compared."""


class TuneSection(Section):
    """Hyper-parameters to search, each with its range [low, high], [low, high, "log"], or a list of choices."""

    parameters: dict[str, list[Any]]
    trials: int = Field(default=20, ge=1)
    folds: int = Field(default=3, ge=2)
