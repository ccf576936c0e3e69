"""What a result says: the sites, every method's figures, and how sure the differences are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wardround.evaluate.block import pooled_block, result_block
from wardround.evaluate.calibration import reliability_curve
from wardround.evaluate.comparison import PairedDifference, apply_holm, paired_differences
from wardround.evaluate.intervals import affordable_resamples, fewer_note
from wardround.evaluate.metrics import names_with
from wardround.evaluate.out_of_fold import Predicted, out_of_fold
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.fields import part_of
from wardround.runs.result import ALL, MethodDifference, MethodResult
from wardround.runs.scores import FairnessScores, ScoreBlock
from wardround.runs.sites import SiteSummary
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method
from wardround.study.model_facts import prediction_task
from wardround.workflows.fairness import by_group, fairness_of
from wardround.workflows.predictions import held_out_rows

if TYPE_CHECKING:
    from wardround.workflows.run import TrainedModel

MOST_COMPARED = 20
"""Sites up to which differences are also told site by site."""
MOST_PAIRED = 4
"""Methods up to which every pair is compared."""


def data_summary(setting: Setting, *, course: bool = False) -> dict[str, Any]:
    """The task and the sites, in numbers that reveal no patient.

    For the `course` of accuracy also how many test patients have the outcome: always saying yes is right so often.
    """
    federation, task = setting.federation, setting.federation.task
    draws = course and task.binary
    first, count = federation.part("train")
    test_first, test_count = federation.part("test")
    sites = []
    for index in range(min(len(federation.sites), 10_000)):
        rows = slice(int(first[index]), int(first[index] + count[index]))
        share, tested = None, federation.y[int(test_first[index]) : int(test_first[index] + test_count[index])]
        if task.binary and count[index]:
            share = float((federation.y[rows] == setting.positive).mean())
        train, validation, test = (int(number) for number in federation.counts[index])
        sites.append(
            SiteSummary(
                name=federation.sites[index],
                train=train,
                validation=validation,
                test=test,
                prevalence=share,
                **({"test_prevalence": float((tested == setting.positive).mean())} if draws and len(tested) else {}),
            )
        )
    described: dict[str, Any] = {
        "task": prediction_task(task, federation.features, setting.positive),
        "sites": tuple(sites),
    }
    if setting.truth:
        described["truth"] = setting.truth
    return described


def method_block(
    study: Study,
    settings: Sequence[Setting],
    trained: "Sequence[TrainedModel]",
    meters: dict[str, Any],
    clinical: ClinicalFigures | None = None,
) -> MethodResult:
    """One method: its course, its cost, and its figures on held-out patients.

    Repeats are folds: their patients are put together, each predicted by a model that had not seen it. Where patients
    were predicted more than once, figures are averaged over the passes.
    """
    first, task, positive = trained[0], settings[0].federation.task, settings[0].positive
    metrics = names_with(task, study.study.metric)
    joined = out_of_fold(predicted_of(settings, trained))
    blocks = []
    for one in joined:
        settled: dict[str, Any] = {
            "metrics": metrics,
            "positive": positive,
            "resamples": resamples_for(study, len(one.scores.actual)),
            "seed": study.study.seed,
            "fold": one.fold,
        }
        block = result_block(one.scores, task, first.sites, **settled)
        blocks.append({**block, "pooled": pooled_block(one.scores, task, **settled)})
    scores = average(blocks)
    if not task.segmentation:
        scores["reliability"] = reliability_curve(joined[0].scores, task, positive=positive)
    groups = fairness_of(study, settings, trained)
    if groups is not None:
        scores["groups"] = by_group(groups)
    further: dict[str, Any] = {"fairness": None if groups is None else part_of(FairnessScores, groups)}
    further["clinical"] = clinical
    return MethodResult(
        name=first.method.name,
        label=first.method.label,
        algorithm=first.method.algorithm,
        settings=dict(first.method.settings),
        rounds=first.fitted.rounds,
        user=first.user,
        partners=first.partners,
        best_round=first.fitted.best_round,
        stopped_early=first.fitted.stopped_early,
        seconds=first.seconds,
        compile_seconds=first.fitted.first_call_seconds,
        meters=meters,
        scores=part_of(ScoreBlock, scores),
        **{key: part for key, part in further.items() if part is not None},
    )


def predicted_of(settings: Sequence[Setting], trained: "Sequence[TrainedModel]") -> list[Predicted]:
    """What a method predicted in each repeat, and for whom."""
    found = []
    for one in trained:
        setting = settings[one.repeat]
        place = {name: number for number, name in enumerate(setting.federation.sites)}
        found.append(Predicted(one.scores, np.concatenate([held_out_rows(setting, place[site]) for site in one.sites])))
    return found


def resamples_for(study: Study, patients: int) -> int:
    """As many as the study says; by default fewer for very many patients, which a note tells."""
    asked = study.evaluation.resamples
    return asked if "resamples" in study.evaluation.model_fields_set else affordable_resamples(asked, patients)


def resample_notes(study: Study, settings: Sequence[Setting]) -> list[str]:
    """What a reader must know about the intervals."""
    patients = int(settings[0].federation.counts.sum()) if len(settings) > 1 else 0
    patients = max(patients, int(settings[0].federation.counts[:, 2].sum()))
    taken, asked = resamples_for(study, patients), study.evaluation.resamples
    return [fewer_note(taken, asked, patients)] if taken < asked else []


def average(blocks: Sequence[Any]) -> Any:
    """The mean over repeats of every figure; where it is undefined in some repeats, of the others.

    Intervals are averaged end by end: they stay as wide as those of one test set, since repeats share patients.
    """
    first = blocks[0]
    if len(blocks) == 1:
        return first
    if isinstance(first, dict):
        # The keys of all repeats: a figure that is undefined in the first has its interval from the others.
        keys = dict.fromkeys(key for block in blocks for key in block)
        merged = {key: average([block[key] for block in blocks if key in block]) for key in keys}
        for reason, figure in (("undefined", "value"), ("no_interval", "low")):
            if merged.get(figure) is not None:
                merged.pop(reason, None)
        return merged
    numbers = [block for block in blocks if isinstance(block, int | float) and not isinstance(block, bool)]
    if isinstance(first, bool) or not numbers:
        return first
    return numbers[0] if len(set(numbers)) == 1 else float(np.mean(numbers))


def pairs_of(study: Study, methods: Sequence[Method]) -> list[tuple[str, str]]:
    """Which methods are compared: all pairs when few, else each with the one the study names (or the first)."""
    names = [method.name for method in methods]
    said = study.compare.against if study.compare else None
    if said is None and len(names) <= MOST_PAIRED:
        return [(later, earlier) for index, later in enumerate(names) for earlier in names[:index]]
    against = said or names[0]
    return [(name, against) for name in names if name != against]


def comparison_of(
    study: Study, settings: Sequence[Setting], trained: "Sequence[TrainedModel]", methods: Sequence[Method], metric: str
) -> tuple[MethodDifference, ...]:
    """Paired differences over all sites and site by site, patient by patient.

    Whether methods differ at all is one question, and where they do another: each is corrected for the number of its
    own comparisons (Holm).
    """
    scores = {method.name: [one.scores for one in trained if one.method == method] for method in methods}
    patients = [one.patients for one in predicted_of(settings, [one for one in trained if one.method == methods[0]])]
    federation = settings[0].federation
    places: list[tuple[str, Any]] = [(ALL, "weighted")]
    if len(trained[0].sites) == len(federation.sites) <= MOST_COMPARED:
        places += list(zip(federation.sites, range(len(federation.sites)), strict=True))
    found: dict[Any, PairedDifference] = {}
    for method, against in pairs_of(study, methods):
        differences = paired_differences(
            scores[method],
            scores[against],
            federation.task,
            metric,
            [of for _, of in places],
            patients=patients,
            positive=settings[0].positive,
            resamples=max(1, study.evaluation.resamples),
            seed=study.study.seed,
        )
        found |= {(method, against, name): one for (name, _), one in zip(places, differences, strict=True)}
    overall, by_site = ({key: one for key, one in found.items() if (key[2] == ALL) == whole} for whole in (True, False))
    corrected = {**apply_holm(overall), **apply_holm(by_site)}
    return tuple(
        MethodDifference(
            metric=metric,
            site=place,
            method=method,
            against=against,
            difference=one.value,
            low=one.low,
            high=one.high,
            p_value=one.p_value,
            verdict=one.verdict,
            wins=one.wins,
            ties=one.ties,
            losses=one.losses,
            repeats=one.repeats,
            reason=one.reason,
        )
        for (method, against, place), one in ((key, corrected[key]) for key in found)
    )
