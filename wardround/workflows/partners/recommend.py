"""`wardround partners`: whose patients help the asking site's, why, and whether joining helps it at all.

Over several splits of the patients, partners are judged on training rows only, and the model trained with them is
compared with the site's own on patients that neither has seen (the validation rows; test rows are not looked at). What
is told at the end is the mean over the splits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wardround.core.errors import Refusal
from wardround.incentives.statement import DilutionOutcome, settle_dilution
from wardround.partners.choice import Evidence, select_partners
from wardround.report.partners.recommendation import copied, headline, impossible, method_advice, overwhelming
from wardround.runs.fields import part_of
from wardround.runs.folder import RunFolder
from wardround.runs.partners_result import ChoiceCost, PartnersVerdict, TrainingShare
from wardround.runs.result import PartnersResult
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import PartnersSection, Study
from wardround.study.methods import own_method
from wardround.workflows.partners.choose import PartnerSelection, choose, question_of, refuse_user, user_of
from wardround.workflows.partners.compare_sites import likeness_of
from wardround.workflows.partners.gain import measure_gain, predict_all_sites, train_ways
from wardround.workflows.results import data_summary
from wardround.workflows.training_plan import TrainingPlan, check_methods, main_metric, plan_training

Step = Callable[[str], None]

COPIED = 0.5
"""Share of the smaller site's rows that another holds too, above which the two are said to hold the same patients."""
OVERWHELMING = 0.9
"""Share of the training rows above which one partner's model is all that the others get."""
FEWEST_COPIES, UNIQUE = 10, 0.9
"""Rows of a site, and the share of them that is unlike all others of it, below which sites may share them by chance."""


@dataclass(frozen=True)
class Advice:
    """What all splits together say: the mean evidence, whom it takes, and what that gains."""

    first: PartnerSelection
    """The choice on the first split."""
    evidence: Evidence
    settlement: DilutionOutcome
    gain: dict[str, Any]


def advise(plan: TrainingPlan, step: Step = lambda words: None) -> Advice:
    """Judge the partners over the study's splits; `plan` is that of its own method on the first of them.

    The gain is that of the set that is advised, on every split; where nobody is advised, of the most promising site.
    """
    study, said = plan.study, plan.study.partners
    assert said is not None
    plans, chosen = [], []
    for number in range(said.repeats):
        step(f"split {number + 1} of {said.repeats}")
        plans.append(plan if number == 0 else plan_for_split(plan, number))
        chosen.append(judge_split(plans[-1]))
    evidence = average_evidence([one.evidence for one in chosen])
    settlement = settle_partners(study, said, plan.setting, evidence, chosen[0])
    names, user = list(plan.federation.sites), chosen[0].user
    evidence = without_withdrawn(evidence, [site for site, name in enumerate(names) if name not in settlement.reasons])
    tried = settlement.partners or tuple(most_promising(evidence, names, settlement))
    step("what it gains")
    ways = [train_ways(one, user, [names.index(name) for name in tried]) for one in plans]
    gain = measure_gain(study, ways, user, tried, bool(settlement.partners))
    return Advice(chosen[0], evidence, settlement, gain)


def most_promising(evidence: Evidence, names: Sequence[str], settlement: DilutionOutcome) -> list[str]:
    """The site that was judged best among those that have not withdrawn; none where nobody was judged."""
    judged = [site for site in range(len(names)) if np.isfinite(evidence.score[site])]
    left = [site for site in judged if names[site] not in settlement.reasons]
    return [names[max(left, key=lambda site: float(evidence.score[site]))]] if left else []


def without_withdrawn(evidence: Evidence, left: Sequence[int]) -> Evidence:
    """Scores among those that are left; whoever withdrew keeps the one it had before."""
    among = evidence.with_candidates(left)
    known = np.isfinite(among.score)
    return evidence._replace(
        score=np.where(known, among.score, evidence.score), error=np.where(known, among.error, evidence.error)
    )


def partners(plan: TrainingPlan, folder: RunFolder, *, step: Step = lambda words: None) -> PartnersResult:
    """Judge the partners of the asking site and write the result; gives it.

    `plan` is that of the study's own method on the first split.
    """
    study, first = plan.study, plan.setting
    said = study.partners
    assert said is not None
    manifest = folder.begin(study.model_dump(mode="json"), first.fingerprint, kind="partners", resume=False)
    advice = advise(plan, step)
    user, names = advice.first.user, first.federation.sites
    step("other measures")
    told = likeness_of(plan, advice.evidence, [list(names).index(name) for name in advice.settlement.partners])
    result = PartnersResult(
        study=study.study.name,
        kind="partners",
        metric=main_metric(study, first),
        **data_summary(first),
        asking=names[user],
        repeats=said.repeats,
        verdict=part_of(PartnersVerdict, verdict(plan, advice, told)),
        **told.parts,
        dilution=tuple(part_of(TrainingShare, one) for one in advice.settlement.table),
        cost=part_of(ChoiceCost, cost(advice.first, told.records)),
        notes=(
            *first.notes,
            *copied_rows(first),
            *large_partners(advice.settlement, names[user]),
            *(impossible(site) for site in (advice.evidence.details or {}).get("impossible", ())),
        ),
    )
    folder.write_result(result)
    folder.finish(manifest)
    return result


def check_partners(study: Study, setting: Setting) -> TrainingPlan:
    """The plan of a study whose asking site can be helped; a study without [partners] gets the usual ones."""
    study = study.model_copy(update={"partners": study.partners or PartnersSection()})
    refuse_user(study, setting)
    refuse_without_validation(study, setting)
    ((plan,),) = check_methods(study, setting, [own_method(study)])
    return predict_all_sites(plan)


def plan_for_split(plan: TrainingPlan, number: int) -> TrainingPlan:
    setting = assemble.load_setting(plan.study, plan.study.study.seed + number)
    return predict_all_sites(plan_training(plan.study, setting, plan.method, number))


def refuse_without_validation(study: Study, setting: Setting) -> None:
    user = user_of(study, setting.federation)
    if not setting.federation.part("validation")[1][user]:
        raise Refusal(
            "the asking site has no validation patients to measure whether joining helps",
            where="[data] shares",
            remedy="give validation a share, such as shares = [0.6, 0.2, 0.2]",
        )


def judge_split(plan: TrainingPlan) -> PartnerSelection:
    """Judge the partners on the training rows of one split."""
    with plan.engine() as engine:
        asked = question_of(plan.study, plan.setting, engine, plan.algorithm, plan.first_params(), plan.participation)
        return choose(replace(asked, seed=plan.seed), plan.method)


def average_evidence(found: Sequence[Evidence]) -> Evidence:
    """The mean over the splits. Errors stay as large as those of one split, since splits share patients."""
    scores = np.array([one.score for one in found])
    errors = np.array([one.error for one in found])
    known = np.isfinite(scores)
    counts = known.sum(axis=0)
    score = np.divide(
        np.where(known, scores, 0.0).sum(axis=0), counts, out=np.full(scores.shape[1], np.nan), where=counts > 0
    )
    there = np.isfinite(errors)
    squares = np.divide(
        np.where(there, errors, 0.0).__pow__(2).sum(axis=0),
        there.sum(axis=0),
        out=np.full(scores.shape[1], np.nan),
        where=there.any(axis=0),
    )
    again = [one.among for one in found if one.among is not None]

    def among(candidates: Sequence[int]) -> Evidence:
        return average_evidence([judge(candidates) for judge in again])

    cut = float(np.mean([one.cut for one in found]))
    return Evidence(score, np.sqrt(squares), cut, found[0].details, among if len(again) == len(found) else None)


def settle_partners(
    study: Study, said: PartnersSection, setting: Setting, evidence: Evidence, chosen: PartnerSelection
) -> DilutionOutcome:
    """Whom the mean evidence takes, once those who find their share too large have withdrawn."""
    federation = setting.federation
    names = list(federation.sites)
    rows = {name: int(count) for name, count in zip(names, federation.part("train")[1], strict=True)}

    def taken(candidates: tuple[str, ...]) -> list[str]:
        among_them = tuple(names.index(name) for name in candidates if names.index(name) != chosen.user)
        by_hand = None if said.by_hand is None else tuple(name for name in said.by_hand if name in candidates)
        found = select_partners(evidence, said.rule._replace(by_hand=by_hand), names, among_them)
        return [names[site] for site in found]

    return settle_dilution(taken, rows, said.limits, names[chosen.user], withdrawn=said.withdrawn)


def verdict(plan: TrainingPlan, advice: Advice, told: Any) -> dict[str, Any]:
    """The answer in words: with whom, with whom not, why, and whether it helps."""
    names, user, evidence = plan.federation.sites, advice.first.user, advice.evidence
    settlement, gain = advice.settlement, dict(advice.gain)
    judged = [site for site in range(len(names)) if np.isfinite(evidence.score[site])]
    taken, withdrawn = list(settlement.partners), list(settlement.reasons)
    ranked = [names[site] for site in sorted(judged, key=lambda s: -evidence.score[s])]
    others = [name for name in ranked if name not in taken and name not in withdrawn]
    unanswered = [
        name for site, name in enumerate(names) if site != user and site not in judged and name not in withdrawn
    ]
    helps = gain.pop("helps")
    own = int(plan.federation.counts[user, :2].sum())
    return {
        "helps": helps,
        "partners": taken,
        "others": others,
        "headline": headline(
            names[user], taken, others, helps, settlement.advice, own=own, needed=gain["patients_needed"]
        ),
        "reasons": {**told.reasons(taken, others), **settlement.reasons},
        "unanswered": unanswered,
        "withdrawn": withdrawn,
        "gain": gain,
        "method": method_advice(plan.study.privacy is not None),
    }


def cost(chosen: PartnerSelection, further: Sequence[Any]) -> dict[str, Any]:
    """What one choice takes, and what the further measures took."""
    records = [chosen.record, *further]
    return {
        "bytes_up": sum(record.bytes_up for record in records),
        "bytes_down": sum(record.bytes_down for record in records),
        "rounds": int(chosen.record.measures["told"]["probes"]) + len(further),
        "seconds": sum(record.seconds for record in records),
    }


def large_partners(settlement: DilutionOutcome, asking: str) -> list[str]:
    """Partners beside which all others together hardly count, said in words."""
    shares = {part["site"]: float(part["row_share"]) for part in settlement.table if not part["over"]}
    return [overwhelming(site, asking, share) for site, share in shares.items() if share > OVERWHELMING]


def copied_rows(setting: Setting) -> list[str]:
    """Sites that hold the same patients as another, said in words: what the two say is then said by one, twice.

    Only where rows are nearly unique within a site: a few yes or no answers are the same for many patients.
    """
    federation = setting.federation
    table = np.concatenate([federation.x.reshape(len(federation.x), -1), federation.y[:, None]], axis=1)
    keys = [row.tobytes() for row in np.ascontiguousarray(table, np.float32)]
    sizes = federation.counts.sum(axis=1)
    held = [set(keys[first : first + size]) for first, size in zip(federation.first, sizes, strict=True)]
    telling = [size >= FEWEST_COPIES and len(own) > UNIQUE * size for own, size in zip(held, sizes, strict=True)]
    found = []
    for site, own in enumerate(held):
        for other in range(site):
            shared = len(own & held[other]) / max(1, min(len(own), len(held[other])))
            if telling[site] and telling[other] and shared > COPIED:
                found.append(copied(federation.sites[site], federation.sites[other], shared))
    return found
