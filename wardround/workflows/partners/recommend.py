"""`wardround partners`: whose patients help the asking site's, why, and whether joining helps it at all.

Over several splits of the patients, partners are judged on training rows only, and the model trained with them is
compared with the site's own on patients that neither has seen (the validation rows; test rows are not looked at). What
is told at the end is the mean over the splits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
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
from wardround.partners.choice import Evidence, Question, selected
from wardround.runs.folder import RunFolder, now
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import PartnersSection, Study
from wardround.study.methods import choosing, method_of
from wardround.workflows.partners.choose import Chosen, choose, question_of, refuse_user, user_of
from wardround.workflows.partners.compare_sites import likeness_of
from wardround.workflows.results import described
from wardround.workflows.run import main_metric, train

Step = Callable[[str], None]


@dataclass(frozen=True)
class Split:
    """One split of the patients: what the choice said, and how three ways to train predict the held-out ones."""

    setting: Setting
    chosen: Chosen
    alone: Scores
    together: Scores
    everyone: Scores


def partners(study: Study, folder: RunFolder, *, step: Step = lambda words: None) -> dict[str, Any]:
    """Judge the partners of the asking site and write result.json; gives the result."""
    said = study.partners or PartnersSection()
    study = study.model_copy(update={"partners": said})
    first = assemble.load_setting(study, study.study.seed)
    refuse_user(study, first)
    refuse_without_validation(study, first)
    manifest = folder.begin(study.model_dump(mode="json"), first.fingerprint, kind="partners", resume=False)
    splits = []
    for number in range(said.repeats):
        step(f"split {number + 1} of {said.repeats}")
        setting = first if number == 0 else assemble.load_setting(study, study.study.seed + number)
        splits.append(one_split(study, setting, number))
    evidence = averaged([one.chosen.evidence for one in splits])
    user, names = user_of(study, first.federation), first.federation.sites
    settlement = settled(study, said, first, evidence, splits[0].chosen)
    step("other measures")
    told = likeness_of(study, first, evidence, [list(names).index(name) for name in settlement.partners])
    metric = main_metric(study, first)
    result = {
        "study": study.study.name,
        "kind": "partners",
        "metric": metric,
        **described(first),
        "asking": names[user],
        "repeats": said.repeats,
        "verdict": verdict(study, splits, evidence, settlement, told),
        **told.parts,
        "dilution": settlement.table,
        "cost": cost(splits, told.records),
        "notes": list(first.notes),
    }
    folder.write("result.json", result)
    folder.write("manifest.json", {**manifest, "finished": now()})
    return result


def refuse_without_validation(study: Study, setting: Setting) -> None:
    user = user_of(study, setting.federation)
    if not setting.federation.part("validation")[1][user]:
        raise Refusal(
            "the asking site has no validation patients, on whom it could be seen whether joining helps",
            where="[data] shares",
            remedy="give validation a share, such as shares = [0.6, 0.2, 0.2]",
        )


def one_split(study: Study, setting: Setting, number: int) -> Split:
    """Judge the partners on the training rows, and train alone, with the chosen ones, and with everybody."""
    assert study.partners is not None
    seed = study.study.seed + number
    federation = setting.federation
    common = method_of(study.algorithm.name, study.algorithm.name, study.algorithm.settings)
    algorithm = assemble.build(study, common, federation.task, federation.sites)
    participation = assemble.participation_of(study, federation.sites, seed)
    method = choosing(common, study.partners.name, study.partners.settings, study.partners.rule)
    with Simulation(
        federation,
        seed=seed,
        transform=assemble.transform_of(study.transforms),
        tables=setting.tables,
        largest_cohort=participation.largest,
    ) as engine:
        params = assemble.model_of(study, federation.task).init(jax.random.key(seed))
        question = replace(question_of(study, setting, engine, algorithm, params, participation), seed=seed)
        chosen = choose(question, method)
        together = trained_among(question, [chosen.user, *chosen.partners])
        everyone = trained_among(question, participation.cohort(1).tolist())
    known = {parameter.name for parameter in registry.find("algorithm", "local").parameters}
    inherited = {key: value for key, value in study.algorithm.settings.items() if key in known}
    alone = train(study, setting, method_of("local", "local", inherited), number, None, part="validation").scores
    return Split(setting, chosen, alone, together, everyone)


def trained_among(question: Question, sites: Sequence[int]) -> Scores:
    """Predictions of the validation rows after training among these sites only."""
    participation = restrict(everyone(len(question.engine.sites)), sites)
    fitted = fit(question.algorithm, question.engine, question.params, participation, Schedule(question.rounds))
    return question.engine.evaluate(question.algorithm, fitted.progress, "validation")


def averaged(found: Sequence[Evidence]) -> Evidence:
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


def settled(
    study: Study, said: PartnersSection, setting: Setting, evidence: Evidence, chosen: Chosen
) -> DilutionOutcome:
    """Whom the mean evidence takes, once those who find their share too large have withdrawn."""
    federation = setting.federation
    names = list(federation.sites)
    rows = {name: int(count) for name, count in zip(names, federation.part("train")[1], strict=True)}

    def taken(candidates: tuple[str, ...]) -> list[str]:
        among_them = tuple(names.index(name) for name in candidates if names.index(name) != chosen.user)
        by_hand = None if said.by_hand is None else tuple(name for name in said.by_hand if name in candidates)
        found = selected(evidence, said.rule._replace(by_hand=by_hand), names, among_them)
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
    gain = gained(study, splits, user)
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


def headline(asking: str, taken: Sequence[str], others: Sequence[str], helps: str, advice: str) -> str:
    if not taken:
        return f"Joining does not help {asking}: no site is likely to. {advice[:1].upper()}{advice[1:]}.".replace(
            "..", "."
        )
    advice = f"Train with {listed(taken)}" + (f", not with {listed(others)}." if others else ".")
    if helps == "no":
        return f"Joining does not help {asking}: its own patients alone gave a better model. If it joins: {advice}"
    if helps == "unclear":
        return f"{advice} Whether that helps {asking} cannot be told from so few patients."
    return advice


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def gained(study: Study, splits: Sequence[Split], user: int) -> dict[str, Any]:
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


def gain_words(
    asking: str, helps: str, metric: str, figures: dict[str, float | None], splits: int, patients: int
) -> str:
    shown = {name: "unknown" if value is None else f"{value:.3f}" for name, value in figures.items()}
    label = {"roc_auc": "ROC-AUC"}.get(metric, metric)
    seen = (
        f"On {patients} held-out patients of {asking} in each of {splits} splits, {label} was {shown['alone']} with "
        f"its own patients only, {shown['together']} with the chosen partners and {shown['everyone']} with everybody."
    )
    meaning = {
        "yes": "The gain is more than chance would make it.",
        "no": "Training with partners did worse than training alone, more than chance would make it.",
        "unclear": "The difference could be chance.",
    }[helps]
    return f"{seen} {meaning}"


def cost(splits: Sequence[Split], further: Sequence[Any]) -> dict[str, Any]:
    """What one choice takes, and what the further measures took."""
    records = [splits[0].chosen.record, *further]
    return {
        "bytes_up": sum(record.bytes_up for record in records),
        "bytes_down": sum(record.bytes_down for record in records),
        "rounds": int(splits[0].chosen.record.measures["told"]["probes"]) + len(further),
        "seconds": sum(record.seconds for record in records),
    }
