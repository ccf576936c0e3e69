"""[data]: where the rows come from, what their values mean, how columns become numbers."""

from math import inf
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from wardround.data.survival.intervals import SurvivalOutcome
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


OF_SURVIVAL = ("time", "event", "event_is", "horizons")


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
    time: str | None = None
    """Survival: the column that tells how long a patient was followed up,"""
    event: str | None = None
    """the column that tells whether the event ended it (1, true or yes) or the patient was lost from sight,"""
    event_is: str | None = None
    """by another value, where it is not these; all others then count as censored,"""
    horizons: list[float] | None = Field(default=None, min_length=1, max_length=50)
    """and up to which times the event is predicted, in the units of the column, rising: [365, 1825]. There is no target
    then."""
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
    def survival(self) -> SurvivalOutcome | None:
        """What is said of times and events, where the task is survival."""
        if self.time is None or self.event is None or self.horizons is None:
            return None
        return SurvivalOutcome(self.time, self.event, tuple(self.horizons), self.event_is or "")

    @property
    def settings(self) -> Settings:
        said = {} if self.survival is None else {"target": self.event, "task": "survival"}
        return {**(self.model_extra or {}), **said}

    @model_serializer(mode="wrap")
    def _words(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The words of a study are its identity: studies of another task say nothing of these.
        return {key: value for key, value in write(self).items() if value is not None or key not in OF_SURVIVAL}

    @model_validator(mode="after")
    def _whole_outcome(self) -> "DataSection":
        said = [key for key in OF_SURVIVAL if getattr(self, key) is not None]
        if not said:
            return self
        missing = [key for key in ("time", "event", "horizons") if key not in said]
        if missing:
            raise ValueError(f"survival needs time, event and horizons; {' and '.join(missing)} is not said")
        assert self.horizons is not None
        if any(not 0 < one < inf for one in self.horizons) or sorted(set(self.horizons)) != self.horizons:
            raise ValueError("horizons should be times above 0 in rising order, such as [365, 1825]")
        if self.time == self.event:
            raise ValueError("time and event should be two columns")
        if self.cleaning.rules:
            raise ValueError("labeling functions vote for classes, not for times: remove the rules")
        more = [key for key in ("target", "task", "positive") if key in (self.model_extra or {})]
        if more:
            raise ValueError(f"with time and event the outcome is survival; remove {' and '.join(more)}")
        return self
