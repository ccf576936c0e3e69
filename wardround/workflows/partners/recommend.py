"""`wardround partners`: whose patients help the asking site's, why, and whether joining helps it at all.

Over several splits of the patients, partners are judged on training rows only, and the model trained with them is
compared with the site's own on patients that neither has seen (the validation rows; test rows are not looked at). What
is told at the end is the mean over the splits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wardround.core.contracts import Scores
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.fit import Schedule, fit
from wardround.engine.participation import everyone, restrict
from wardround.engine.simulate import Simulation
from wardround.evaluate.comparison import PairedDifference, paired_difference
from wardround.evaluate.metrics import measure_sites
from wardround.incentives.statement import DilutionOutcome, settle_dilution
from wardround.partners.choice import Evidence, Question, select_partners
from wardround.report.partners.recommendation import gain_words, headline
from wardround.runs.fields import part_of
from wardround.runs.folder import RunFolder
from wardround.runs.partners_result import ChoiceCost, PartnersVerdict, TrainingShare
from wardround.runs.result import PartnersResult
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import PartnersSection, Study
from wardround.study.methods import method_of, own_method
from wardround.workflows.partners.choose import PartnerSelection, choose, question_of, refuse_user, user_of
from wardround.workflows.partners.compare_sites import likeness_of
from wardround.workflows.results import data_summary
from wardround.workflows.run import train
from wardround.workflows.training_plan import TrainingPlan, check_methods, main_metric, plan_training

Step = Callable[[str], None]


@dataclass(frozen=True)
class Split:
    """One split of the patients: what the choice said, and how three ways to train predict the held-out ones."""

    setting: Setting
    chosen: PartnerSelection
    alone: Scores
    together: Scores
    everyone: Scores


@dataclass(frozen=True)
class Advice:
    """What all splits together say: the mean evidence, whom it takes, and what that gains."""

    splits: tuple[Split, ...]
    evidence: Evidence
    settlement: DilutionOutcome
    gain: dict[str, Any]


def advise(plan: TrainingPlan, step: Step = lambda words: None) -> Advice:
    """Judge the partners over the study's splits; `plan` is that of its own method on the first of them."""
    study, said = plan.study, plan.study.partners
    assert said is not None
    splits = []
    for number in range(said.repeats):
        step(f"split {number + 1} of {said.repeats}")
        splits.append(judge_split(plan if number == 0 else plan_for_split(plan, number)))
    evidence = average_evidence([one.chosen.evidence for one in splits])
    settlement = settle_partners(study, said, plan.setting, evidence, splits[0].chosen)
    gain = measure_gain(study, splits, user_of(study, plan.setting.federation))
    if not settlement.partners:
        gain["helps"] = "no"
    return Advice(tuple(splits), evidence, settlement, gain)


def partners(plan: TrainingPlan, folder: RunFolder, *, step: Step = lambda words: None) -> PartnersResult:
    """Judge the partners of the asking site and write the result; gives it.

    `plan` is that of the study's own method on the first split.
    """
    study, first = plan.study, plan.setting
    said = study.partners
    assert said is not None
    manifest = folder.begin(study.model_dump(mode="json"), first.fingerprint, kind="partners", resume=False)
    splits = []
    for number in range(said.repeats):
        step(f"split {number + 1} of {said.repeats}")
        splits.append(judge_split(plan if number == 0 else plan_for_split(plan, number)))
    evidence = average_evidence([one.chosen.evidence for one in splits])
    user, names = user_of(study, first.federation), first.federation.sites
    settlement = settle_partners(study, said, first, evidence, splits[0].chosen)
    step("other measures")
    told = likeness_of(plan, evidence, [list(names).index(name) for name in settlement.partners])
    metric = main_metric(study, first)
    result = PartnersResult(
        study=study.study.name,
        kind="partners",
        metric=metric,
        **data_summary(first),
        asking=names[user],
        repeats=said.repeats,
        verdict=part_of(PartnersVerdict, verdict(study, splits, evidence, settlement, told)),
        **told.parts,
        dilution=tuple(part_of(TrainingShare, one) for one in settlement.table),
        cost=part_of(ChoiceCost, cost(splits, told.records)),
        notes=tuple(first.notes),
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
    return plan_for_all(plan)


def plan_for_all(plan: TrainingPlan) -> TrainingPlan:
    """With the patients of all sites predicted, however few [evaluation] asks for: the asking site must be there."""
    return replace(plan, evaluated=np.arange(len(plan.federation.sites)))


def plan_for_split(plan: TrainingPlan, number: int) -> TrainingPlan:
    setting = assemble.load_setting(plan.study, plan.study.study.seed + number)
    return plan_for_all(plan_training(plan.study, setting, plan.method, number))


def refuse_without_validation(study: Study, setting: Setting) -> None:
    user = user_of(study, setting.federation)
    if not setting.federation.part("validation")[1][user]:
        raise Refusal(
            "the asking site has no validation patients to measure whether joining helps",
            where="[data] shares",
            remedy="give validation a share, such as shares = [0.6, 0.2, 0.2]",
        )


def judge_split(plan: TrainingPlan) -> Split:
    """Judge the partners on the training rows, and train alone, with the chosen ones, and with everybody."""
    study, setting, participation = plan.study, plan.setting, plan.participation
    with plan.engine() as engine:
        asked = question_of(study, setting, engine, plan.algorithm, plan.first_params(), participation)
        question = replace(asked, seed=plan.seed)
        chosen = choose(question, plan.method)
        together = train_among(engine, question, [chosen.user, *chosen.partners])
        everyone = train_among(engine, question, participation.cohort(1).tolist())
    known = {parameter.name for parameter in registry.find("algorithm", "local").parameters}
    inherited = {key: value for key, value in study.algorithm.settings.items() if key in known}
    own = plan_training(study, setting, method_of("local", "local", inherited), plan.repeat)
    alone = train(plan_for_all(own), None, part="validation").scores
    return Split(setting, chosen, alone, together, everyone)


def train_among(engine: Simulation, question: Question, sites: Sequence[int]) -> Scores:
    """Predictions of the validation rows after training among these sites only."""
    participation = restrict(everyone(len(engine.sites)), sites)
    fitted = fit(question.algorithm, engine, question.params, participation, Schedule(question.rounds))
    return engine.predict(question.algorithm, fitted.progress, "validation")


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
    return Evidence(score, np.sqrt(squares), float(np.mean([one.cut for one in found])), found[0].details)


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


def verdict(
    study: Study, splits: Sequence[Split], evidence: Evidence, settlement: DilutionOutcome, told: Any
) -> dict[str, Any]:
    """The answer in words: with whom, with whom not, why, and whether it helps."""
    setting, user = splits[0].setting, splits[0].chosen.user
    names = setting.federation.sites
    judged = [site for site in range(len(names)) if np.isfinite(evidence.score[site])]
    taken = list(settlement.partners)
    others = [names[site] for site in sorted(judged, key=lambda s: -evidence.score[s]) if names[site] not in taken]
    withdrawn = list(settlement.reasons)
    others = [name for name in others if name not in withdrawn]
    unanswered = [
        name for site, name in enumerate(names) if site != user and site not in judged and name not in withdrawn
    ]
    gain = measure_gain(study, splits, user)
    helps = gain.pop("helps")
    if not taken:
        helps = "no"
    return {
        "helps": helps,
        "partners": taken,
        "others": others,
        "headline": headline(names[user], taken, others, helps, settlement.advice),
        "reasons": {**told.reasons(taken, others), **settlement.reasons},
        "unanswered": unanswered,
        "withdrawn": withdrawn,
        "gain": gain,
    }


def measure_gain(study: Study, splits: Sequence[Split], user: int) -> dict[str, Any]:
    """What training with the chosen partners gains on the asking site's held-out patients, against training alone."""
    setting = splits[0].setting
    task = setting.federation.task
    metric = "rmse" if task.regression else "log_loss"
    share = float(setting.federation.counts[user, 1] / setting.federation.counts[user].sum())
    difference: PairedDifference = paired_difference(
        [one.together for one in splits],
        [one.alone for one in splits],
        task,
        metric,
        of=user,
        positive=setting.positive,
        resamples=max(200, study.evaluation.resamples),
        test_share=share if len(splits) > 1 else 0.0,
        seed=study.study.seed,
    )

    def mean_of(scores: Sequence[Scores], of: str) -> float | None:
        values = [measure_sites(one, task, [of], positive=setting.positive).measure(of, user).value for one in scores]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    ways = {"alone": [one.alone for one in splits], "together": [one.together for one in splits]}
    ways["everyone"] = [one.everyone for one in splits]
    main = main_metric(study, setting)
    figures = {name: mean_of(scores, metric) for name, scores in ways.items()}
    also = {name: mean_of(scores, main) for name, scores in ways.items()}
    low, high = difference.low, difference.high
    helps = "unclear"
    if low is not None and high is not None:  # a loss: less is better
        helps = "yes" if high < 0 else "no" if low > 0 else "unclear"
    patients = int(setting.federation.counts[user, 1])
    return {
        "helps": helps,
        "metric": metric,
        **figures,
        "difference": difference.value,
        "low": low,
        "high": high,
        "also": {"metric": main, **also},
        "patients": patients,
        "words": gain_words(setting.federation.sites[user], helps, main, also, len(splits), patients),
    }


def cost(splits: Sequence[Split], further: Sequence[Any]) -> dict[str, Any]:
    """What one choice takes, and what the further measures took."""
    records = [splits[0].chosen.record, *further]
    return {
        "bytes_up": sum(record.bytes_up for record in records),
        "bytes_down": sum(record.bytes_down for record in records),
        "rounds": int(splits[0].chosen.record.measures["told"]["probes"]) + len(further),
        "seconds": sum(record.seconds for record in records),
    }
