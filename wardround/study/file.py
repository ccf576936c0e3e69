"""The study file: what a study says, checked key by key before anything is computed."""

import tomllib
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wardround.core.errors import Refusal
from wardround.engine.registry import suggest_name
from wardround.partners.choice import Rule
from wardround.study.monitor_section import MonitorSection, with_data

Settings = dict[str, Any]


class Section(BaseModel):
    """A table of the study file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Named(BaseModel):
    """A table that names a component; the other keys are that component's settings."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    @property
    def settings(self) -> Settings:
        return dict(self.model_extra or {})


class StudySection(Section):
    """What is asked, how long, and with which seed."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0, lt=2**32)
    rounds: int = Field(default=50, ge=1, le=100_000)
    user: str | None = None
    purpose: str = ""
    """What the model is for, in words; real sites decide by it."""
    metric: str | None = None
    """The measure to report first; by default ROC-AUC, accuracy with more than two classes, RMSE for a regression."""


class PreparationSection(Section):
    """How columns become numbers; fitted federatedly on the training rows."""

    impute: str = "median"
    scale: str = "standard"
    indicators: bool = False
    smallest_cell: int = Field(default=1, ge=1)
    """Statistics of fewer patients than this stay at their site; over real sites 10, unless it is said here."""
    ranges: dict[str, list[float]] = {}
    """Numbers between which a column's values lie, [low, high]: nothing is asked about it;"""
    categories: dict[str, list[str]] = {}
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


class CleaningSection(Section):
    """What the values of columns mean, the same at every site; nothing is changed in silence."""

    trim: bool = True
    """Whether blanks at both ends of words are removed."""
    kinds: dict[str, Literal["number", "decimal_comma", "thousands_comma", "percent", "text"]] = {}
    """What a column holds: numbers such as 1.5, 1,5, 1,234 or 95%; or words, whatever they look like."""
    recode: dict[str, dict[str, str]] = {}
    """Values to be replaced, by column: {sex = {M = "male", "?" = ""}}; "" is missing."""
    missing: dict[str, Values] = {}
    """Values that mean unknown, by column: {age = [-999, "unknown"]}."""
    plausible: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]] = {}
    """Between what numbers a column's values can be, [low, high]; others become missing."""
    days: dict[str, str] = {}
    """Dates as days since a day or since another column: {discharged = "admitted", admitted = "2020-01-01"}."""
    date_formats: dict[str, str] = {}
    """How a column's dates are written where it is not year-month-day: {admitted = "%d.%m.%Y"}."""
    unreadable: Literal["refuse", "missing"] = "refuse"
    """A value that cannot be read as its column is declared: refused, or missing."""
    drop_rows: dict[str, Values] = {}
    """Rows to be left out, by values of a column: {status = ["cancelled"]}. Not under [privacy]."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Copies of a row at the same site: kept, or left out. Not under [privacy]."""

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
    split_by: str | None = None
    missing_columns: Literal["refuse", "fill"] = "refuse"
    missing_target: Literal["refuse", "drop"] = "refuse"
    empty_sites: Literal["refuse", "keep"] = "refuse"
    partition: Named | None = None
    cleaning: CleaningSection = CleaningSection()
    preparation: PreparationSection = PreparationSection()

    @property
    def settings(self) -> Settings:
        return dict(self.model_extra or {})


class ParticipationSection(Section):
    """Who takes part in a round: a share, a fixed number, or a pattern of presence; everybody by default."""

    fraction: float | None = Field(default=None, gt=0, le=1)
    cohort: int | None = Field(default=None, ge=1)
    present: dict[str, str] | None = None


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
    withdrawn: list[str] = []
    """Sites that do not want to take part in this study."""
    limits: dict[str, float] = {}
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


class StoppingSection(Section):
    """Early stopping on the weighted validation loss, or on the asking site's own."""

    patience: int = Field(ge=1)
    smallest: float = Field(default=0.0, ge=0)
    user: bool = False
    """Look at the asking site's validation patients only."""


class OperatingPointSection(Section):
    """From which risk on a patient is flagged: one of these, chosen on validation patients."""

    sensitivity: float | None = Field(default=None, gt=0, le=1)
    """The highest threshold that finds this share of those with the outcome;"""
    specificity: float | None = Field(default=None, gt=0, le=1)
    """or the lowest that leaves this share of the others in peace;"""
    net_benefit: float | None = Field(default=None, gt=0, lt=1)
    """or that of the highest net benefit for whoever would act at this risk;"""
    threshold: float | None = Field(default=None, gt=0, lt=1)
    """or this risk itself."""

    @model_validator(mode="after")
    def _one_of_them(self) -> "OperatingPointSection":
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("give one of sensitivity, specificity, net_benefit and threshold")
        return self

    @property
    def rule(self) -> tuple[str, float]:
        """What was said, and its value."""
        ((name, value),) = self.model_dump(exclude_none=True).items()
        return name, float(value)


class EvaluationSection(Section):
    """How often the validation rows are looked at, and how sure the final figures are."""

    every: int = Field(default=1, ge=1)
    resamples: int = Field(default=1000, ge=0, le=100_000)
    sites: int = Field(default=1000, ge=1)
    """Sites evaluated at most; with more, these many are drawn once."""
    operating_point: OperatingPointSection | None = None
    """From which risk on a patient is flagged; by default where Youden's index is highest among validation patients."""
    keep_predictions: bool = False
    """Write what is predicted for every test patient into the run folder: rows about patients, so not by default."""


class PrivacySection(Section):
    """Formal privacy: of every patient of a site ("sample") or of whole sites ("site")."""

    level: Literal["sample", "site"] = "sample"
    epsilon: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How much the model may tell, at most;"""
    noise_multiplier: float | None = Field(default=None, ge=1e-6, allow_inf_nan=False)
    """or the noise, as a multiple of `clip`."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    clip: float = Field(default=1.0, ge=1e-6, le=1e6)
    """The length to which a patient's gradient (or a site's answer) is cut."""
    batch: int | None = Field(default=None, ge=1)
    """Patients in a batch, as expected; by default the algorithm's batch_size."""
    seeded: bool = False
    """Noise from the study's seed, for tests: it protects nobody."""
    quantile: float | None = Field(default=None, gt=0, lt=1)
    """Level "site": adapt `clip` so that this share of the answers is shorter;"""
    rate: float = Field(default=0.2, gt=0)
    """at this rate,"""
    first_rate: float = Field(default=0.2, gt=0)
    """which falls to it from this one,"""
    count_share: float = Field(default=0.1, gt=0, lt=1)
    """with this share of what is spent."""
    answers: int | None = Field(default=None, ge=1)
    """Level "site": how many sites at least share the noise of a round; by default the fewest of all rounds."""
    whole_numbers: bool = False
    """Level "site": noise in whole numbers, added by the transform secure_sum; always so where there is one."""
    statistics: float = Field(default=0.1, gt=0, lt=1)
    """Level "sample": the share of epsilon for the statistics of the preparation, unless the columns are declared."""
    outcome: Annotated[tuple[float, float] | None, Field(strict=False)] = None
    """Level "sample": between what values the outcome of a regression lies; without, no loss and no figure is told."""

    @property
    def blank(self) -> float:
        """What a quantity counts as where it is not known: the middle of its range."""
        return 0.0 if self.outcome is None else sum(self.outcome) / 2

    @model_validator(mode="after")
    def _one_of_two(self) -> "PrivacySection":
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("give either epsilon or noise_multiplier")
        if self.level == "sample" and (self.quantile is not None or self.answers is not None):
            raise ValueError('quantile and answers belong to level = "site"')
        if self.level == "site" and self.batch is not None:
            raise ValueError('batch belongs to level = "sample"')
        if self.outcome is not None and not -inf < self.outcome[0] < self.outcome[1] < inf:
            raise ValueError("outcome should be [low, high], two numbers in order")
        return self


class CaseSection(Section):
    """A setting of its own in a comparison; its tables override those of the study."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    title: str | None = None
    data: Settings = {}
    """Replaces the study's [data] as a whole where it names a source, else only the keys it names."""
    study: Settings = {}
    model: Settings = {}
    privacy: Settings = {}


class CompareSection(Section):
    """Methods to run on the same splits; "global" stands for the study's own algorithm."""

    methods: list[str] = Field(min_length=1)
    repeats: int = Field(default=5, ge=1)
    users: Literal["one", "each"] = "one"
    """Whether methods that train for an asking site do so for the study's user, or for each site in turn."""
    against: str | None = None
    """The method that the others are compared with; by default all pairs when they are few, else the first one."""
    settings: dict[str, Settings] = {}
    """Settings of single methods; other settings are taken from [algorithm] where a method knows them."""
    rates: list[Annotated[float, Field(gt=0)]] = []
    """Learning rates from which each method gets its own, by the validation loss on the first split."""
    cases: list[CaseSection] = []
    """Settings, such as other data or another partition, in each of which the methods are compared."""


class TuneSection(Section):
    """Hyper-parameters to search, each with its range [low, high], [low, high, "log"], or a list of choices."""

    parameters: dict[str, list[Any]]
    trials: int = Field(default=20, ge=1)
    folds: int = Field(default=3, ge=2)


class DeploySection(Section):
    """How rounds go over real sites: how many must answer, and how long each is given."""

    sites: list[str] = []
    """Who takes part; by default every site that has a certificate, written here when the study is queued."""
    fingerprints: dict[str, str] = {}
    """The words of each party's key, written here when the study is queued; sites compare them with their own pins."""
    quorum: int | None = Field(default=None, ge=1)
    """Sites that must answer in a round; by default all, and the study waits for those that are away."""
    deadline: float = Field(default=60.0, gt=0)
    """Seconds that a site is given at least; slow sites are given more, by what they took before, up to ten times."""
    transcript: Literal["sums", "hashes"] | None = None
    """What is kept to replay the training: every round's sum, or hashes only; by default sums up to 64 MB in all."""
    second: str | None = None
    """The second server, run by another organisation, for the transform two_servers."""
    second_organisation: str = ""
    """Who runs it; filled in when the study is queued."""
    same_organisation_for_testing: bool = False
    """Both servers are run by the same organisation, so nothing is hidden: for trying it out."""


class Study(Section):
    """A whole study file."""

    study: StudySection
    data: DataSection
    model: Named = Named(name="logistic")
    algorithm: Named = Named(name="fed_avg")
    aggregator: Named = Named(name="weighted_mean")
    transforms: list[Named] = []
    privacy: PrivacySection | None = None
    partners: PartnersSection | None = None
    deploy: DeploySection = DeploySection()
    participation: ParticipationSection = ParticipationSection()
    stopping: StoppingSection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    compare: CompareSection | None = None
    tune: TuneSection | None = None
    monitor: MonitorSection | None = None


def read_study(path: Path) -> Study:
    """The study in a TOML file; relative paths in it are taken from the file's folder."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal("there is no such study file", where=str(path), remedy="check the path") from None
    except IsADirectoryError:
        raise Refusal("this is a folder, not a study file", where=str(path), remedy="name the .toml file") from None
    except OSError as error:
        raise Refusal(
            f"the study file cannot be read: {error.strerror}", where=str(path), remedy="check the path and its rights"
        ) from None
    except UnicodeDecodeError:
        raise Refusal("the study file is not UTF-8 text", where=str(path), remedy="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise Refusal(
            f"the study file is not valid TOML: {error}", where=str(path), remedy="correct that line"
        ) from None
    compare = content.get("compare")
    cases = compare.get("cases") if isinstance(compare, dict) else None
    for table in [content, *(cases if isinstance(cases, list) else [])]:
        data = table.get("data") if isinstance(table, dict) else None
        if isinstance(data, dict) and isinstance(data.get("path"), str):
            data["path"] = str((path.parent / Path(data["path"]).expanduser()).resolve())
    return parse_study(content, where=str(path))


def parse_study(content: Settings, *, where: str) -> Study:
    try:
        return Study.model_validate(with_data(content))
    except ValidationError as error:
        raise refusal_of(error, where) from None


def refusal_of(error: ValidationError, where: str) -> Refusal:
    """The first thing wrong with a study, in words."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key, table = path[-1], ".".join(path[:-1])
    place = f"{where}, [{table}]" if table else where
    if first["type"] == "extra_forbidden":
        return Refusal(f"unknown key '{key}'", where=place, remedy=suggest_name(key, known_keys(path[:-1])))
    if first["type"] == "missing":
        if len(path) == 1:
            return Refusal(f"the table [{key}] is missing", where=where, remedy=f"add a table [{key}]")
        return Refusal(f"the key '{key}' is missing", where=place, remedy=f"add {key} = ...")
    message = first["msg"].replace("Input should", "it should")
    return Refusal(f"'{key}' cannot be {first['input']!r}: {message}", where=place, remedy="correct the value")


def known_keys(path: list[str]) -> tuple[str, ...]:
    """The keys that a table of the study file may have."""
    section: Any = Study
    for part in path:
        if part.isdigit():  # the place in a list of tables
            continue
        field = section.model_fields.get(part) if hasattr(section, "model_fields") else None
        annotation: Any = field.annotation if field else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        section = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
    return tuple(section.model_fields) if section is not None else ()
