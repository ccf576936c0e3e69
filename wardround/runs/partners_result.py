"""The answer to "with whom should I train?" as the report sees it: `result.json` of the kind "partners", typed.

Everything may be missing or short, as in `run`: nothing is made up, and what is not there is left out or said in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wardround.runs.result import Cost, Measure, Run

Helps = Literal["yes", "no", "unclear", ""]
Standing = Literal["partner", "not taken", "did not answer", "withdrew", "not judged"]


@dataclass(frozen=True)
class Gain:
    """What training together brings the asking hospital; the improvement is positive where it is better together."""

    metric: str = ""
    alone: float | None = None
    together: float | None = None
    everyone: float | None = None
    improvement: Measure = field(default_factory=Measure)
    patients: int | None = None
    words: str = ""


@dataclass(frozen=True)
class Score:
    value: float
    error: float | None = None


@dataclass(frozen=True)
class Judged:
    """One way to judge partners: larger scores are better, and above the cut they speak for a partner."""

    name: str
    label: str
    words: str
    cut: float | None
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class Agreement:
    measure: str
    against: str
    correlation: float | None
    sites: int | None
    note: str


@dataclass(frozen=True)
class Matrix:
    label: str
    words: str
    sites: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    rows: str = ""
    columns: str = ""
    """What a row and a column stand for, where that is not the same."""


@dataclass(frozen=True)
class Place:
    name: str
    x: float
    y: float


@dataclass(frozen=True)
class Trait:
    """A feature in which another hospital's patients differ."""

    feature: str
    distance: float | None
    words: str
    beyond_chance: bool


@dataclass(frozen=True)
class Pair:
    site: str
    traits: tuple[Trait, ...]
    words: str


@dataclass(frozen=True)
class Share:
    """A hospital's part in what the partners bring together, against the limit that it set itself (1: none)."""

    site: str
    rows: int | None
    row_share: float | None
    weight_share: float | None
    limit: float | None
    over: bool


@dataclass(frozen=True)
class Feedback:
    site: str
    place: int | None
    of: int | None
    chosen: bool | None
    words: tuple[str, ...]
    remarks: Mapping[str, tuple[str, ...]]
    """What is not said in `words` already, by its heading."""


@dataclass(frozen=True)
class Partnership:
    run: Run
    """What this has in common with a run: name, hospitals, task, truth, notes, manifest."""
    asking: str = ""
    helps: Helps = ""
    headline: str = ""
    partners: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    gain: Gain = field(default_factory=Gain)
    measures: tuple[Judged, ...] = ()
    agreement: tuple[Agreement, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    places: tuple[Place, ...] = ()
    shown: float | None = None
    """Share of the differences that the map can show."""
    mapped: str = ""
    """What the map was made from."""
    pairs: tuple[Pair, ...] = ()
    dilution: tuple[Share, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    cost: Cost = field(default_factory=Cost)
    rounds: int | None = None

    @property
    def candidates(self) -> tuple[str, ...]:
        """All other hospitals: the chosen first, then the rest by score, then those of whom nothing is known."""
        judged = sorted(self.scores, key=lambda site: -self.scores[site].value)
        known = (*self.partners, *judged, *self.others, *self.unanswered, *self.withdrawn)
        everyone = (*known, *(hospital.name for hospital in self.run.hospitals))
        return tuple(site for site in dict.fromkeys(everyone) if site != self.asking)

    @property
    def scores(self) -> Mapping[str, Score]:
        """Those by which the choice was made."""
        return self.measures[0].scores if self.measures else {}

    def standing(self, site: str) -> Standing:
        if site in self.withdrawn:
            return "withdrew"
        if site in self.partners:
            return "partner"
        if site in self.unanswered:
            return "did not answer"
        return "not taken" if site in self.others or site in self.scores else "not judged"

    def label(self, measure: str) -> str:
        return next((judged.label for judged in self.measures if judged.name == measure), measure.replace("_", " "))

    def main_difference(self, site: str) -> str:
        """The one thing to know about its patients: the largest difference beyond chance, or that there is none."""
        pair = next((pair for pair in self.pairs if pair.site == site), None)
        if pair is None:
            return self.reasons.get(site, "")
        sure = [trait for trait in pair.traits if trait.beyond_chance and trait.words]
        largest = max(sure, key=lambda trait: trait.distance or 0.0, default=None)
        if largest:
            return largest.words
        return pair.words or ("Nothing differs more than chance would make it." if pair.traits else "")
