"""Who the patients are: how many rows were read, left out and used, and a table that describes them."""

from pydantic import Field

from wardround.runs.fields import ByName, Flag, Many, Number, ResultPart, Text, Texts, Whole


class RowFlow(ResultPart):
    """From rows read to rows used, at one site or over all."""

    read: Whole = None
    """None where a partition dealt the rows out anew, nobody told, or few were left out and that must not show."""
    without_outcome: Whole = None
    left_out: Whole = None
    """By the study's settings: a label that is no class, or rows that a partition gave to nobody."""
    used: Whole


class PatientFlow(ResultPart):
    """Over all sites, and for every site."""

    all: RowFlow
    sites: ByName[RowFlow] = Field(default_factory=dict)


class PatientCell(ResultPart):
    """One column at one site or over all: of a number the quartiles, of categories how many patients have each."""

    missing: Whole
    """None where it is too small to be shown."""
    median: Number = None
    low: Number = None
    """Lower quartile."""
    high: Number = None
    """Upper quartile."""
    mean: Number = None
    """Mean and standard deviation, where sites told no quartiles."""
    sd: Number = None
    counts: Many[Whole] = ()
    """In the order of the column's levels; None where a count is too small to be shown, or would give one away."""


class PatientColumn(ResultPart):
    """A row of the table: a column of the data."""

    name: Text
    kind: Text
    """number or text"""
    outcome: Flag = False
    levels: Texts = ()
    further_levels: Whole = None
    """How many levels the last one, "other", stands for."""
    all: PatientCell
    sites: ByName[PatientCell] = Field(default_factory=dict)


class PatientTable(ResultPart):
    """The patients of all parts, before gaps are filled."""

    smallest_cell: Whole
    """Counts below this are not shown."""
    rounded: Flag = False
    """Whether real sites told it, of their training patients: every count rounded down to whole cells at its site."""
    patients: Whole
    sites: ByName[Whole] = Field(default_factory=dict)
    """Patients of each site that has a column of its own."""
    sites_left_out: Whole = 0
    columns: Many[PatientColumn] = ()
    columns_left_out: Whole = 0
