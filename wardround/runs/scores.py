"""The figures in a result: a metric's value with its interval, one method's scores, and fairness by group."""

from typing import Any

from pydantic import Field

from wardround.runs.fields import (
    ByName,
    Json,
    Many,
    Number,
    ResultPart,
    Text,
    Texts,
    Whole,
    mapping,
    whole,
)


class MetricValue(ResultPart):
    """A metric with its interval, or the reason why it has no value."""

    value: Number
    low: Number = None
    high: Number = None
    no_interval: Text = ""
    """Why there is a value and no interval."""
    undefined: Text = ""
    """Why there is no value."""
    sites_defined: Number = None
    """Sites at which the metric has a value, of a mean over sites."""
    sites: Number = None
    left_out: Texts = ()
    """Groups that do not count in a gap between groups."""

    @classmethod
    def normalize(cls, data: Any) -> Json:
        return data if isinstance(data, dict) else {"value": data}

    @property
    def reason(self) -> str:
        """Why there is no value, for a reader."""
        return "" if self.value is not None else self.undefined or "no reason given"

    @property
    def note(self) -> str:
        """What a reader of the value must know: that it is over fewer hospitals, or why it has no interval."""
        if self.value is None:
            return ""
        defined, sites = whole(self.sites_defined), whole(self.sites)
        over = f"over {defined:,} of {sites:,} hospitals" if defined is not None and sites and defined < sites else ""
        lacking = f"no interval: {self.no_interval}" if self.no_interval else ""
        return "; ".join(filter(None, [over, lacking]))


NOT_MEASURED = MetricValue(value=None, undefined="not measured")


class ReliabilityBin(ResultPart):
    """One bin of a reliability curve: what was predicted, what really happened, among how many patients."""

    predicted: Number
    observed: Number
    rows: Number
    low: Number = None
    """The interval of what was observed, where there is one."""
    high: Number = None


class IntervalMethod(ResultPart):
    """How the intervals were made."""

    level: Number
    resamples: Whole
    drawn_again: Text = ""
    """What was resampled."""


class GroupScores(ResultPart):
    """One group of patients: how many, and every metric under its own name."""

    __pydantic_extra__: dict[str, MetricValue]
    rows: Number = None

    @classmethod
    def normalize(cls, data: Any) -> Json:
        return {key: one for key, one in mapping(data).items() if key == "rows" or isinstance(one, dict)}

    @property
    def metrics(self) -> dict[str, MetricValue]:
        return self.__pydantic_extra__


class FairnessColumn(ResultPart):
    """A column by which patients were grouped; every measure between its groups stands under its own name."""

    __pydantic_extra__: dict[str, MetricValue]
    groups: ByName[GroupScores]
    withheld: Texts
    """Groups too small to be told of."""

    @classmethod
    def normalize(cls, data: Any) -> Json:
        own = ("groups", "withheld")
        return {key: one for key, one in mapping(data).items() if key in own or isinstance(one, dict)}

    @property
    def between(self) -> dict[str, MetricValue]:
        return self.__pydantic_extra__


class FairnessScores(ResultPart):
    """How one method fares for groups of patients, averaged over repeats, and in single numbers repeat by repeat."""

    smallest: Whole
    """Patients that a group must have to be told of."""
    columns: ByName[FairnessColumn]
    generalized_entropy_index: MetricValue | None = None
    repeats: Many[ByName[Number]]


class ScoreBlock(ResultPart):
    """One method's figures on held-out patients, averaged over repeats: at every site and over all of them."""

    sites: ByName[ByName[MetricValue]] = Field(default_factory=dict)
    weighted: ByName[MetricValue] = Field(default_factory=dict)
    """Means over sites, each counting by its patients."""
    unweighted: ByName[MetricValue] = Field(default_factory=dict)
    pooled: ByName[MetricValue] = Field(default_factory=dict)
    """Over the patients of all sites taken as one hospital; none where predictions stay at their sites."""
    percentiles: ByName[ByName[Number]] = Field(default_factory=dict)
    sd_between_sites: ByName[MetricValue] = Field(default_factory=dict)
    rows: ByName[Number] = Field(default_factory=dict)
    sites_not_listed: Whole = None
    """All sites, where they are too many to be listed."""
    intervals: IntervalMethod | None = None
    reliability: Many[ReliabilityBin] = ()
    groups: ByName[ByName[GroupScores]] = Field(default_factory=dict)
    """Column, group, figures."""
