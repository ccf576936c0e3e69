"""How the sites compare, for the page of `wardround partners`: further measures, matrices, a map, and feedback."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wardround.core.contracts import Message, RoundRecord
from wardround.engine import registry
from wardround.partners.choice import Choice, Evidence, Question
from wardround.partners.choices.gradient_distance import distance_matrix
from wardround.partners.probes.feature_gains import columns_of, feature_gains, plan_trials
from wardround.partners.probes.slopes import slopes
from wardround.partners.similarity.histograms import Differences, Histograms, ask_histograms, differences
from wardround.partners.similarity.multiple_tests import holm
from wardround.partners.similarity.rank_agreement import agreement
from wardround.partners.similarity.site_feedback import differing_weights, further_features, site_feedback
from wardround.partners.similarity.site_map import map_of
from wardround.partners.similarity.transfer import Transfer, transfer_matrix
from wardround.queries.recorded_columns import recorded_columns
from wardround.report.partners.agreement import note_on
from wardround.report.partners.differences import sentence, sentences
from wardround.report.partners.feedback import feedback_text
from wardround.report.partners.recommendation import MATRICES, MEASURES, reason, unlike_most
from wardround.runs.fields import part_of
from wardround.runs.partners_result import (
    FeatureDifference,
    PartnerMeasure,
    PartnerScore,
    RankAgreement,
    SimilarityTable,
    SiteAdvice,
    SiteComparison,
    SiteMap,
)
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.workflows.partners.choose import question_of
from wardround.workflows.training_plan import TrainingPlan

MOST_RETRAINED = 12
"""Sites up to which leave-one-out, which trains once for each, is done without being asked for."""


@dataclass(frozen=True)
class Likeness:
    """Parts of the result, what travelled for them, and a reason for or against each site."""

    parts: dict[str, Any]
    records: list[RoundRecord]
    names: tuple[str, ...]
    user: int
    differ: dict[str, list[str]]
    transfer: Transfer

    def reasons(self, taken: Sequence[str], others: Sequence[str]) -> dict[str, str]:
        """For every judged site, in a sentence: what its model does here, and how its patients differ."""
        found = {}
        for name in (*taken, *others):
            pair = self.user, self.names.index(name)
            gap, error = self.transfer.gap[pair], self.transfer.gap_error[pair]
            found[name] = reason(gap, error, self.differ.get(name, []))
        return found


def likeness_of(plan: TrainingPlan, evidence: Evidence, chosen: Sequence[int]) -> Likeness:
    """Everything about the first split that helps to understand the choice."""
    study, setting = plan.study, plan.setting
    assert study.partners is not None
    names = tuple(plan.federation.sites)
    with plan.engine() as engine:
        question = question_of(study, setting, engine, plan.algorithm, plan.first_params(), plan.participation)
        moved = transfer_matrix(question)
        pulled = distance_matrix(question.probe(slopes(question.model), question.train(question.everyone)))
        told = ask_histograms(engine)
        found = differences(told)
        measured = further_measures(study, question)
        gains = feedback(study, setting, question, evidence, chosen, moved, told, found)
    differ = {names[site]: sentences(told, found, question.user, site) for site in question.candidates}
    parts = {
        "measures": (
            measure_result(study.partners.name, evidence, question),
            *(measure_result(name, one, question) for name, one in measured.items()),
        ),
        "agreement": agreements({study.partners.name: evidence, **measured}),
        "similarity": tuple(part_of(SimilarityTable, one) for one in matrices(question, moved, pulled, found)),
        "map": site_map(evidence, names, question, found),
        "pairs": tuple(site_comparison(told, found, question.user, site) for site in question.candidates),
        "feedback": tuple(part_of(SiteAdvice, one) for one in gains),
    }
    return Likeness(parts, list(question.records), names, question.user, differ, moved)


def further_measures(study: Study, question: Question) -> dict[str, Evidence]:
    """What the other measures say; those that train once a site are left out where there are many, unless asked for."""
    assert study.partners is not None
    asked = "measures" in study.partners.model_fields_set
    found: dict[str, Evidence] = {}
    for name in study.partners.measures:
        many = len(question.candidates) > MOST_RETRAINED and name in ("leave_one_out", "shapley")
        if name == study.partners.name or (many and not asked):
            continue
        choice: Choice = registry.find("choice", name, where="[partners] measures").build()
        found[name] = choice.assess(question)
    return found


def measure_result(name: str, evidence: Evidence, question: Question) -> PartnerMeasure:
    names = question.engine.sites
    return PartnerMeasure(
        name=name,
        label=registry.find("choice", name).label,
        words=MEASURES.get(name, registry.find("choice", name).summary),
        cut=float(evidence.cut),
        scores={
            names[site]: PartnerScore(value=plain(evidence.score[site]), error=plain(evidence.error[site]))
            for site in question.candidates
        },
    )


def agreements(found: dict[str, Evidence]) -> tuple[RankAgreement, ...]:
    """How well each measure ranks the sites as leave-one-out does."""
    if "leave_one_out" not in found:
        return ()
    told = []
    for name, one in found.items():
        if name != "leave_one_out":
            how = agreement(one, found["leave_one_out"])
            told.append(
                RankAgreement(
                    measure=name,
                    against="leave_one_out",
                    rank_correlation=plain(how.spearman),
                    sites=how.sites,
                    note=note_on(how),
                )
            )
    return tuple(told)


def matrices(question: Question, moved: Transfer, pulled: Any, found: Differences) -> list[dict[str, Any]]:
    names, everyone = question.engine.sites, list(question.everyone)

    def matrix(values: Any) -> list[list[float | None]]:
        return [[plain(values[row, column]) for column in everyone] for row in everyone]

    shared = {"sites": [names[site] for site in everyone]}
    with np.errstate(invalid="ignore"):
        apart = np.nanmean(found.distance, axis=0) if len(found.distance) else np.full((len(names),) * 2, np.nan)
    return [
        {
            "name": "transfer",
            "label": "Transfer loss",
            "rows": "patients of",
            "columns": "model of",
            "matrix": matrix(moved.gap),
            "words": MATRICES["transfer"],
            **shared,
        },
        {
            "name": "gradient_distance",
            "label": "Gradient distance",
            "rows": "seen from",
            "columns": "site",
            "matrix": matrix(np.asarray(pulled)),
            "words": MATRICES["gradient_distance"],
            **shared,
        },
        {
            "name": "distribution_distance",
            "label": "Difference between patients",
            "matrix": matrix(apart),
            "words": MATRICES["distribution_distance"],
            **shared,
        },
    ]


def site_map(evidence: Evidence, names: Sequence[str], question: Question, found: Differences) -> SiteMap:
    """A map on which like sites lie close together: the choice's own where it has one, else by their patients."""
    drawn = (evidence.details or {}).get("map")
    source = "all evidence together"
    if drawn is None:
        with np.errstate(invalid="ignore"):
            apart = np.nanmean(found.distance, axis=0) if len(found.distance) else np.zeros((len(names),) * 2)
        drawn, source = map_of(names, apart, question.everyone), "how the patients differ"
    sites = [{"name": name, "x": x, "y": y} for name, (x, y) in drawn["positions"].items()]
    return part_of(SiteMap, {"sites": sites, "shown": drawn["shown"], "from": source})


def site_comparison(told: Histograms, found: Differences, here: int, there: int) -> SiteComparison:
    """How one site's patients differ from the asking site's, column by column, largest difference first."""
    distance = found.distance[:, here, there]
    certain = holm(np.nan_to_num(found.p[:, here, there], nan=1.0)) < 0.05
    order = [int(index) for index in np.argsort(-np.nan_to_num(distance)) if np.isfinite(distance[index])]
    return SiteComparison(
        site=told.sites[there],
        words=" ".join(sentences(told, found, here, there)),
        features=tuple(
            FeatureDifference(
                feature=told.columns[index].name,
                distance=plain(distance[index]),
                words=sentence(told, index, here, there),
                beyond_chance=bool(certain[index]),
            )
            for index in order[:8]
        ),
    )


def feedback(
    study: Study,
    setting: Setting,
    question: Question,
    evidence: Evidence,
    chosen: Sequence[int],
    moved: Transfer,
    told: Histograms,
    found: Differences,
) -> list[dict[str, Any]]:
    """What each site is told about itself."""
    federation, names = setting.federation, tuple(setting.federation.sites)
    columns = columns_of(federation.features)
    if len(federation.task.shape) != 1 or not columns or len(question.everyone) < 2:
        return []
    recorded = np.array(question.engine.ask(recorded_columns(columns=columns), Message({}))["recorded"], bool)
    own = {"models": moved.models, "spread": moved.spread, "rows": moved.rows}
    classes = federation.task.classes
    said = []
    for site in question.everyone:
        tried = plan_trials(federation.features, columns, recorded, site)
        state: Any = {name: np.zeros((len(names), 1)) for name in ("loss", "gain_error")} | {
            "rows": np.zeros(len(names))
        }
        if tried.further:
            state = question.probe(
                feature_gains(question.model), {"params": question.params, "keep": tried.keep}, question.everyone
            )
        peers = [other for other in question.everyone if other != site]
        weights = differing_weights(
            own,
            federation.features,
            columns,
            recorded,
            site,
            target=federation.task.target,
            classes=classes,
            positive=classes[setting.positive] if len(classes) == 2 else None,
            peers=peers,
        )
        further = further_features(state, tried, columns, recorded, site)
        numbers = site_feedback(site, names, question.user, evidence, chosen, weights=weights, further=further)
        said.append(feedback_text(numbers, shifts(told, found, site, peers)))
    return said


def shifts(told: Histograms, found: Differences, site: int, peers: Sequence[int]) -> list[dict[str, Any]]:
    """Columns in which a site differs from most of its peers, beyond chance."""
    rows = []
    for index, column in enumerate(told.columns):
        certain = [
            other for other in peers if np.nan_to_num(found.p[index, other, site], nan=1.0) < 0.05 / len(told.columns)
        ]
        if len(peers) > 1 and len(certain) > len(peers) / 2:
            nearest = min(certain, key=lambda other: found.distance[index, other, site])
            rows.append(
                {
                    "feature": column.name,
                    "distance": plain(float(np.median([found.distance[index, other, site] for other in certain]))),
                    "words": unlike_most(told.sites[nearest], sentence(told, index, nearest, site)),
                }
            )
    return rows


def plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
