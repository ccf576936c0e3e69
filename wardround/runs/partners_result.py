"""Parts of the result of `partners`: the verdict, what each measure says, who resembles whom, shares and feedback."""

from typing import Any

from pydantic import Field

from wardround.runs.fields import ByName, Flag, Json, Many, Number, ResultPart, Text, Texts, Whole, YesNo


class MetricWays(ResultPart):
    """A metric on the asking site's held-out patients: trained alone, with the chosen, with everyone."""

    metric: Text
    alone: Number
    together: Number
    everyone: Number


class GainSpan(ResultPart):
    """A difference, together less alone, and its interval."""

    difference: Number
    low: Number
    high: Number


class PartnersGain(ResultPart):
    """What training with the chosen partners changes for the asking site; where none are chosen, with the best one."""

    metric: Text
    alone: Number
    """On held-out patients, the mean over the splits, as are the next two."""
    together: Number
    everyone: Number
    difference: Number
    """Together less alone, by all sites' evidence where that can be had, else as measured; the verdict follows."""
    low: Number
    high: Number
    measured: GainSpan
    """On the held-out patients alone."""
    also: MetricWays
    """The study's main metric."""
    patients: Whole
    """Held out, in each split."""
    patients_needed: Whole
    """Of the asking site, to tell whether joining helps; where that is clear or past telling, nothing."""
    of: Texts
    """The partners that were tried: the chosen ones, or the most promising site."""
    words: Text


class PartnersVerdict(ResultPart):
    """With whom the asking site should train, with whom not, why, and what it gains."""

    helps: Text = Field(json_schema_extra={"enum": ["yes", "no", "unclear", ""]})
    partners: Texts
    """Best first."""
    others: Texts
    """Judged and not taken, best first."""
    headline: Text
    reasons: ByName[Text]
    """By site."""
    unanswered: Texts
    withdrawn: Texts
    gain: PartnersGain
    method: Text
    """The method for a site that does not want to choose, and why."""


class PartnerScore(ResultPart):
    """Larger is better."""

    value: Number
    error: Number

    @classmethod
    def normalize(cls, data: Any) -> Json:
        return data if isinstance(data, dict) else {"value": data}


class PartnerMeasure(ResultPart):
    """One way to judge partners: above the cut a score speaks for one."""

    name: Text
    label: Text
    words: Text
    cut: Number
    scores: ByName[PartnerScore]


class RankAgreement(ResultPart):
    """How far two measures put the sites into the same order."""

    measure: Text
    against: Text
    rank_correlation: Number
    sites: Whole
    note: Text


class SimilarityTable(ResultPart):
    """A number for every pair of sites."""

    name: Text
    label: Text
    rows: Text = ""
    columns: Text = ""
    """What a row and a column stand for, where that is not the same."""
    matrix: Many[Many[Number]]
    words: Text
    sites: Texts


class MapPlace(ResultPart):
    """A site on the map."""

    name: Text
    x: Number
    y: Number


class SiteMap(ResultPart):
    """Sites in the plane: like ones lie close together."""

    sites: Many[MapPlace]
    shown: Number
    """Share of the differences that the plane can show."""
    made_from: Text = Field(alias="from")


class FeatureDifference(ResultPart):
    """A feature in which another site's patients differ."""

    feature: Text
    distance: Number
    words: Text
    beyond_chance: Flag


class SiteComparison(ResultPart):
    """How a site's patients differ from those of the asking site, largest difference first."""

    site: Text
    words: Text
    features: Many[FeatureDifference]


class PartnerRank(ResultPart):
    """A site's place among those that were judged."""

    place: Whole
    of: Whole
    score: Number
    error: Number


class SiteAdvice(ResultPart):
    """What a site is told about itself; the findings are tables with `words`."""

    site: Text
    rank: PartnerRank | None
    chosen: YesNo
    weights: Many[Any]
    """Where its own model differs from its peers'."""
    shifted: Many[Any]
    """Where its patients differ from its peers'."""
    further_features: Many[Any]
    """What it could record in addition."""
    words: Texts


class TrainingShare(ResultPart):
    """A site's part in what the partners bring together, against the limit that it set itself (1: none)."""

    site: Text
    rows: Whole
    row_share: Number
    weight_share: Number
    limit: Number
    over: Flag


class ChoiceCost(ResultPart):
    """What finding partners took."""

    bytes_up: Whole
    bytes_down: Whole
    rounds: Whole
    seconds: Number
