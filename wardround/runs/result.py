"""What a run left behind, as the report sees it: frozen, typed, and complete even where the files are not.

Everything may be missing or short. A number that is not there, or is not finite, is None and is said in words later;
nothing is made up.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

ALL = "all sites"
"""The name of the federation as a whole among the sites of a comparison."""


@dataclass(frozen=True)
class Measure:
    """A score with its interval, or the reason why there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    note: str = ""
    """What a reader of the value must know: that it is over fewer hospitals, or why it has no interval."""


@dataclass(frozen=True)
class Hospital:
    name: str
    train: int | None = None
    validation: int | None = None
    test: int | None = None
    prevalence: float | None = None

    @property
    def patients(self) -> int:
        return (self.train or 0) + (self.validation or 0) + (self.test or 0)


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


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability curve: what was predicted, what really happened, among how many patients."""

    predicted: float
    observed: float
    rows: float | None = None


@dataclass(frozen=True)
class Method:
    name: str
    label: str
    rounds: int | None = None
    best_round: int | None = None
    stopped_early: bool = False
    cost: Cost = Cost()
    sites: Mapping[str, Mapping[str, Measure]] = field(default_factory=dict)
    weighted: Mapping[str, Measure] = field(default_factory=dict)
    unweighted: Mapping[str, Measure] = field(default_factory=dict)
    percentiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reliability: tuple[Bin, ...] = ()
    meters: Json = field(default_factory=dict)

    def at(self, site: str, metric: str) -> Measure:
        return self.sites.get(site, {}).get(metric, Measure(reason="not measured"))


@dataclass(frozen=True)
class Difference:
    """A method against another on the same patients."""

    metric: str
    site: str
    method: str
    against: str
    measure: Measure
    verdict: str


@dataclass(frozen=True)
class Told:
    """What an algorithm told of itself, in the rounds in which it did: one number a hospital, by the number's name."""

    rounds: tuple[int, ...] = ()
    sites: Mapping[str, Mapping[str, tuple[float | None, ...]]] = field(default_factory=dict)
    stopped: int | None = None
    """The first round that was told as standing still, where the algorithm itself ended the training."""
    skipped: int = 0
    """Rounds in which there was nothing to learn from."""


@dataclass(frozen=True)
class Choosing:
    """How partners were chosen before training; records call it round 0."""

    chosen: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    cost: Cost = Cost()


@dataclass(frozen=True)
class Course:
    """How one repeat of one method went, round by round."""

    method: str
    repeat: int
    rounds: tuple[int, ...]
    """Of training, so without the choice of partners before."""
    loss: tuple[float | None, ...]
    site_loss: Mapping[str, tuple[float | None, ...]]
    cost: Cost
    """Of all rounds and the choice of partners."""
    told: Told = Told()
    choosing: Choosing | None = None
    answered: tuple[tuple[str, ...], ...] = ()
    """Who answered, in each round."""
    missing: tuple[Mapping[str, str], ...] = ()
    """Who was asked and did not answer, and why, in each round of a study over real hospitals."""


@dataclass(frozen=True)
class Run:
    name: str
    kind: str = "run"
    task: Json = field(default_factory=dict)
    metric: str = ""
    level: float | None = None
    """Confidence level of the intervals, when the result tells it."""
    hospitals: tuple[Hospital, ...] = ()
    methods: tuple[Method, ...] = ()
    differences: tuple[Difference, ...] = ()
    truth: Any = ()
    """What the maker of the data knows: sentences, or a table of groups, reasons and numbers."""
    notes: tuple[str, ...] = ()
    courses: tuple[Course, ...] = ()
    manifest: Json = field(default_factory=dict)
    finished: bool = True
    remarks: tuple[str, ...] = ()
    """What is wrong with the files themselves."""
    told_repeats: int | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """All measures that occur, the main one first."""
        found = dict.fromkeys([self.metric] if self.metric else [])
        for method in self.methods:
            for scores in (*method.sites.values(), method.weighted, method.unweighted):
                found.update(dict.fromkeys(scores))
        return tuple(found)

    @property
    def asking(self) -> str:
        """The hospital that a personal model is for; empty when there is none."""
        return str(mapping(mapping(self.manifest.get("study")).get("study")).get("user") or "")

    @property
    def repeats(self) -> int:
        return self.told_repeats or len({course.repeat for course in self.courses})

    def method(self, name: str) -> Method:
        """The method of that name; one that the result does not list goes by its name."""
        return next((method for method in self.methods if method.name == name), Method(name, name))

    def first_course(self, method: str) -> Course | None:
        mine = [course for course in self.courses if course.method == method]
        return min(mine, key=lambda course: course.repeat, default=None)


def total(values: Sequence[float | None]) -> float | None:
    """The sum of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: object) -> int | None:
    found = number(value)
    return None if found is None else round(found)


def mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def sentences(value: object) -> tuple[str, ...]:
    """Words from a list or a single string."""
    if isinstance(value, str):
        return (value,)
    return tuple(entry if isinstance(entry, str) else str(entry) for entry in items(value))
