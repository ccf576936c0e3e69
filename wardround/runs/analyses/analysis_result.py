"""The result of an analysis: what was found, in words, tables, charts and numbers, and from whom."""

from typing import Any

from pydantic import Field

from wardround.runs.fields import ByName, Flag, Many, Name, ResultPart, Table, Text, Texts, Whole


class ColumnSummary(ResultPart):
    """What all sites took a column to be."""

    kind: Text
    """"number" or "category"."""
    levels: Texts = ()
    """The words of a category, in their order."""


class ContributorSummary(ResultPart):
    """A site, and how many rows it said it has: real sites tell multiples of their smallest cell."""

    name: Text
    rows: Whole


class ResultTable(ResultPart):
    """A table to be read; a missing value is null."""

    name: Text
    caption: Text
    columns: Texts
    rows: Many[Many[Any]]


class ResultChart(ResultPart):
    """A chart by its data: one entry of `series` per line, row or group; how a kind is drawn is the report's."""

    name: Text
    caption: Text
    kind: Text
    series: Many[Table]
    x: Text = ""
    y: Text = ""


class AnalysisResult(ResultPart):
    """Of `run` with an [analysis], simulated or over real sites."""

    study: Text
    kind: Text = Field(json_schema_extra={"const": "analysis"})
    analysis: Text
    label: Text
    settings: Table
    deployed: Flag
    """Whether real sites answered."""
    sums_only: Flag
    """Whether nobody saw the answer of a single site."""
    sites: Many[ContributorSummary]
    columns: ByName[ColumnSummary]
    exchanges: Whole
    """How often every site was asked for sums."""
    numbers_sent: Whole
    """Numbers that each site sent, over all exchanges."""
    words: Texts
    """What was found, the answer first."""
    tables: Many[ResultTable]
    charts: Many[ResultChart]
    numbers: Table
    """The same for programs, exact and by name."""
    notes: Texts
    privacy: Name = None
    """What noise was added and what it costs, in a sentence; none without [privacy]."""
