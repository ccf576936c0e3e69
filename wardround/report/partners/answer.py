"""The answer to "with whom should I train?" as the page tells it: the result of `partners` with what follows from it.

Everything may be missing or short: nothing is made up, and what is not there is left out or said in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wardround.report.metric_names import is_lower_better
from wardround.runs.fields import Json, mapping
from wardround.runs.partners_result import (
    FeatureDifference,
    MapPlace,
    PartnerMeasure,
    PartnersGain,
    RankAgreement,
    SimilarityTable,
    SiteAdvice,
    SiteComparison,
    TrainingShare,
)
from wardround.runs.result import Cost, PartnersResult
from wardround.runs.run import Run, run_of
from wardround.runs.scores import MetricValue

Helps = Literal["yes", "no", "unclear", ""]
CandidateStatus = Literal["partner", "not taken", "did not answer", "withdrew", "not judged"]


@dataclass(frozen=True)
class GainView:
    """What training together brings the asking hospital; the improvement is positive where it is better together."""

    metric: str
    alone: float | None
    together: float | None
    everyone: float | None
    improvement: MetricValue
    patients: int | None
    words: str


@dataclass(frozen=True)
class Rating:
    """A score that a hospital got; larger is better."""

    value: float
    error: float | None = None


@dataclass(frozen=True)
class RatingMethod:
    """One way to judge partners: above the cut a score speaks for one."""

    name: str
    label: str
    words: str
    cut: float | None
    scores: Mapping[str, Rating]


@dataclass(frozen=True)
class SimilarityView:
    """A matrix with a number, or an unknown, for every pair of hospitals."""

    label: str
    words: str
    sites: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    rows: str
    columns: str


@dataclass(frozen=True)
class PlaceOnMap:
    name: str
    x: float
    y: float


@dataclass(frozen=True)
class AdviceView:
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
    asking: str
    helps: Helps
    headline: str
    method: str
    """For a site that does not want to choose."""
    partners: tuple[str, ...]
    others: tuple[str, ...]
    unanswered: tuple[str, ...]
    withdrawn: tuple[str, ...]
    reasons: Mapping[str, str]
    gain: GainView
    measures: tuple[RatingMethod, ...]
    agreement: tuple[RankAgreement, ...]
    matrices: tuple[SimilarityView, ...]
    places: tuple[PlaceOnMap, ...]
    shown: float | None
    """Share of the differences that the map can show."""
    map_source: str
    """What the map was made from."""
    pairs: tuple[SiteComparison, ...]
    dilution: tuple[TrainingShare, ...]
    feedback: tuple[AdviceView, ...]
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
    def scores(self) -> Mapping[str, Rating]:
        """Those by which the choice was made."""
        return self.measures[0].scores if self.measures else {}

    def status(self, site: str) -> CandidateStatus:
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
        sure = [one for one in pair.features if one.beyond_chance and difference_text(one)]
        largest = max(sure, key=lambda one: one.distance or 0.0, default=None)
        if largest:
            return difference_text(largest)
        return pair.words or ("No difference is larger than chance would explain." if pair.features else "")


def difference_text(difference: FeatureDifference) -> str:
    return difference.words or difference.feature


def partnership_of(
    result: PartnersResult, *, manifest: Json | None = None, default_name: str = "study", remarks: tuple[str, ...] = ()
) -> Partnership:
    verdict, cost = result.verdict, result.cost
    helps = verdict.helps if verdict.helps in ("yes", "no", "unclear") else ""
    return Partnership(
        run=replace(run_of(result, default_name=default_name), manifest=manifest or {}, remarks=remarks),
        asking=result.asking,
        helps=helps,  # type: ignore[arg-type]
        headline=verdict.headline,
        method=verdict.method,
        partners=verdict.partners,
        others=verdict.others,
        unanswered=verdict.unanswered,
        withdrawn=verdict.withdrawn,
        reasons={site: why for site, why in verdict.reasons.items() if why},
        gain=gain_view(verdict.gain),
        measures=tuple(rating_method(one) for one in result.measures),
        agreement=result.agreement,
        matrices=tuple(view for one in result.similarity if (view := similarity_view(one)).sites),
        places=tuple(place for one in result.map.sites if (place := place_of(one))),
        shown=result.map.shown,
        map_source=result.map.made_from,
        pairs=result.pairs,
        dilution=result.dilution,
        feedback=tuple(advice_view(one) for one in result.feedback),
        cost=Cost(bytes_down=cost.bytes_down, bytes_up=cost.bytes_up, seconds=cost.seconds),
        rounds=cost.rounds,
    )


def place_of(place: MapPlace) -> PlaceOnMap | None:
    return None if place.x is None or place.y is None else PlaceOnMap(place.name, place.x, place.y)


def gain_view(gain: PartnersGain) -> GainView:
    measure = MetricValue(value=gain.difference, low=gain.low, high=gain.high)
    better = improvement(measure, gain.metric, gain.alone, gain.together)
    return GainView(gain.metric, gain.alone, gain.together, gain.everyone, better, gain.patients, gain.words)


def improvement(difference: MetricValue, metric: str, alone: float | None, together: float | None) -> MetricValue:
    """The difference with the sign that makes better together positive.

    A difference may be told as together minus alone, as comparisons are, or as what is gained; the two values tell
    which. Where they are missing it is taken for together minus alone.
    """
    if difference.value is None:
        return difference
    change = None if alone is None or together is None else together - alone
    told_backwards = change is not None and abs(difference.value + change) < abs(difference.value - change)
    if told_backwards != (is_lower_better(metric) is True):
        low = None if difference.high is None else -difference.high
        high = None if difference.low is None else -difference.low
        return MetricValue(value=-difference.value, low=low, high=high)
    return difference


def rating_method(measure: PartnerMeasure) -> RatingMethod:
    ratings = {site: Rating(one.value, one.error) for site, one in measure.scores.items() if one.value is not None}
    label = measure.label or measure.name.replace("_", " ")
    return RatingMethod(measure.name, label, measure.words, measure.cut, ratings)


def similarity_view(own: SimilarityTable) -> SimilarityView:
    """Rows and columns that the names do not reach are left out; what is short is filled with unknowns."""
    places = range(len(own.sites))
    rows = own.matrix
    values = tuple(tuple(rows[i][j] if i < len(rows) and j < len(rows[i]) else None for j in places) for i in places)
    known = any(x is not None for row in values for x in row)
    label = own.label or own.name or "similarity"
    return SimilarityView(label, own.words, own.sites if known else (), values, own.rows, own.columns)


def advice_view(own: SiteAdvice) -> AdviceView:
    found = {
        "Where its own model differs from its peers'": own.weights,
        "Where its patients differ from its peers'": own.shifted,
        "What it could record in addition": own.further_features,
    }
    remarks = {
        heading: tuple(text for one in rows if (text := remark(one)) and text not in own.words)
        for heading, rows in found.items()
    }
    place, of = (own.rank.place, own.rank.of) if own.rank else (None, None)
    said = {heading: texts for heading, texts in remarks.items() if texts}
    return AdviceView(own.site, place, of, own.chosen, own.words, said)


def remark(entry: Any) -> str:
    """A sentence where there is one; numbers without words are left to the result."""
    return entry if isinstance(entry, str) else str(mapping(entry).get("words") or "")
