"""[data]: where the rows come from, what their values mean, how columns become numbers."""

from math import inf
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from wardround.study.sections.section import Named, Section, Settings


class PreparationSection(Section):
    """How columns become numbers; fitted federatedly on the training rows."""

    impute: str = "median"
    scale: str = "standard"
    indicators: bool = False
    smallest_cell: int = Field(default=1, ge=1)
    """Statistics of fewer patients than this stay at their site; over real sites 10, unless it is said here."""
    ranges: dict[str, list[float]] = Field(default_factory=dict)
    """Numbers between which a column's values lie, [low, high]: nothing is asked about it;"""
    categories: dict[str, list[str]] = Field(default_factory=dict)
    """and the words of a column. Under [privacy] of all columns, or of none."""
    most_categories: int = Field(default=200, ge=2, le=10_000)
    """Different words of a column, over all sites, up to which these are categories."""

    @model_validator(mode="after")
    def _ends_in_order(self) -> "PreparationSection":
        for name, ends in self.ranges.items():
            if len(ends) != 2 or not -inf < ends[0] < ends[1] < inf:
                raise ValueError(f"the range of {name} should be [low, high], two numbers in order")
        for name, words in self.categories.items():
            if not words or len(set(words)) < len(words):
                raise ValueError(f"the categories of {name} should be some words, each once")
        return self


Values = list[str | int | float]


class TextSection(Section):
    """How free text becomes numbers: words are hashed into so many features, or counted where they are listed."""

    features: int = Field(default=256, ge=1, le=65_536)
    """Features into which words are hashed, where none are listed."""
    words: list[str] = Field(default_factory=list)
    """Count these words alone."""
    weights: list[float] = Field(default_factory=list)
    """A weight for each of the words, such as the logarithm of one over its document frequency."""

    @model_validator(mode="after")
    def _a_weight_each(self) -> "TextSection":
        if self.weights and len(self.weights) != len(self.words):
            raise ValueError(f"there should be a weight for each of the {len(self.words)} words")
        return self


class CleaningSection(Section):
    """What the values of columns mean, the same at every site; nothing is changed in silence."""

    trim: bool = True
    """Whether blanks at both ends of words are removed."""
    kinds: dict[str, Literal["number", "decimal_comma", "thousands_comma", "percent", "text"]] = Field(
        default_factory=dict
    )
    """What a column holds: numbers such as 1.5, 1,5, 1,234 or 95%; or words, whatever they look like."""
    recode: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Values to be replaced, by column: {sex = {M = "male", "?" = ""}}; "" is missing."""
    missing: dict[str, Values] = Field(default_factory=dict)
    """Values that mean unknown, by column: {age = [-999, "unknown"]}."""
    plausible: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(default_factory=dict)
    """Between what numbers a column's values can be, [low, high]; others become missing."""
    days: dict[str, str] = Field(default_factory=dict)
    """Dates as days since a day or since another column: {discharged = "admitted", admitted = "2020-01-01"}."""
    date_formats: dict[str, str] = Field(default_factory=dict)
    """How a column's dates are written where it is not year-month-day: {admitted = "%d.%m.%Y"}."""
    unreadable: Literal["refuse", "missing"] = "refuse"
    """A value that cannot be read as its column is declared: refused, or missing."""
    drop_rows: dict[str, Values] = Field(default_factory=dict)
    """Rows to be left out, by values of a column: {status = ["cancelled"]}. Not under [privacy]."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Copies of a row at the same site: kept, or left out. Not under [privacy]."""
    texts: dict[str, TextSection] = Field(default_factory=dict)
    """Columns of free text that become numbers, each with how: {note = {features = 256}}."""
    rules: list[dict[str, Any]] = Field(default_factory=list)
    """Labeling functions whose votes become columns, for models that learn from votes; or the name of a file of them.
    Rows whose target is unknown are then for training."""

    @model_serializer(mode="wrap")
    def _words(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The words of a study are its identity: studies without these say nothing of them.
        return {key: value for key, value in write(self).items() if value or key not in ("texts", "rules")}

    @model_validator(mode="after")
    def _ends_in_order(self) -> "CleaningSection":
        for name, ends in self.plausible.items():
            if not ends[0] < ends[1]:
                raise ValueError(f"the plausible values of {name} should be [low, high], two numbers in order")
        return self


class DataSection(BaseModel):
    """Where the rows come from; keys that are not named here belong to the source or data set."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    source: str
    shares: list[float] = Field(default=[0.6, 0.2, 0.2], min_length=3, max_length=3)
    """Of every site's patients: to train, to validate and to test."""
    user_shares: list[float] | None = Field(default=None, min_length=3, max_length=3)
    """The same of the asking site ([study] user), where they differ: such as half to train and half to test, while all
    patients of the others are for training (shares = [1, 0, 0])."""
    split_by: str | None = None
    missing_columns: Literal["refuse", "fill"] = "refuse"
    missing_target: Literal["refuse", "drop"] = "refuse"
    empty_sites: Literal["refuse", "keep"] = "refuse"
    partition: Named | None = None
    units: dict[str, str] = Field(default_factory=dict)
    """In what columns are measured: {age = "years", lactate = "mmol/l"}; shown wherever a value is, never converted."""
    cleaning: CleaningSection = CleaningSection()
    preparation: PreparationSection = PreparationSection()

    def shares_at(self, site: str, user: str | None) -> tuple[float, ...]:
        """The shares of one site, by whether it asks."""
        return tuple(self.user_shares if self.user_shares is not None and site == user else self.shares)

    @property
    def settings(self) -> Settings:
        return dict(self.model_extra or {})
