"""What a result says: the sites, every method's figures, and how sure the differences are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wardround.evaluate.block import result_block
from wardround.evaluate.calibration import reliability_curve
from wardround.evaluate.comparison import PairedDifference, apply_holm, paired_differences
from wardround.evaluate.metrics import names_with
from wardround.runs.fields import part_of
from wardround.runs.result import ALL, MethodDifference, MethodResult
from wardround.runs.scores import FairnessScores, ScoreBlock
from wardround.runs.sites import SiteSummary
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method
from wardround.study.model_facts import prediction_task
from wardround.workflows.fairness import by_group, fairness_of

if TYPE_CHECKING:
    from wardround.workflows.run import TrainedModel

MOST_COMPARED = 20
"""Sites up to which differences are also told site by site."""
MOST_PAIRED = 4
"""Methods up to which every pair is compared."""


def data_summary(setting: Setting) -> dict[str, Any]:
    """The task and the sites, in numbers that reveal no patient."""
    federation, task = setting.federation, setting.federation.task
    first, count = federation.part("train")
    sites = []
    for index in range(min(len(federation.sites), 10_000)):
        rows = slice(int(first[index]), int(first[index] + count[index]))
        share = None
        if not task.regression and count[index]:
            share = float((federation.y[rows] == setting.positive).mean())
        train, validation, test = (int(number) for number in federation.counts[index])
        sites.append(
            SiteSummary(
                name=federation.sites[index],
                train=train,
                validation=validation,
                test=test,
                prevalence=share if len(task.classes) == 2 else None,
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
    study: Study, settings: Sequence[Setting], trained: "Sequence[TrainedModel]", meters: dict[str, Any]
) -> MethodResult:
    """One method: its course, its cost, and its figures on held-out patients, averaged over repeats."""
    first = trained[0]
    blocks = []
    for one in trained:
        setting = settings[one.repeat]
        blocks.append(
            result_block(
                one.scores,
                setting.federation.task,
                one.sites,
                metrics=names_with(setting.federation.task, study.study.metric),
                positive=setting.positive,
                resamples=study.evaluation.resamples,
                seed=study.study.seed,
            )
        )
    scores = average(blocks)
    task = settings[0].federation.task
    if len(task.classes) == 2:
        scores["reliability"] = reliability_curve(first.scores, task, positive=settings[0].positive)
    groups = fairness_of(study, settings, trained)
    if groups is not None:
        scores["groups"] = by_group(groups)
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
        **({} if groups is None else {"fairness": part_of(FairnessScores, groups)}),
    )


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
    """Paired differences over all sites and site by site, patient by patient, corrected for their number (Holm)."""
    scores = {method.name: [one.scores for one in trained if one.method == method] for method in methods}
    federation = settings[0].federation
    places: list[tuple[str, Any]] = [(ALL, "weighted")]
    # Where only some sites are evaluated, other repeats draw others: there is nothing to pair site by site.
    if len(trained[0].sites) == len(federation.sites) <= MOST_COMPARED:
        places += list(zip(federation.sites, range(len(federation.sites)), strict=True))
    share = float(federation.counts[:, 2].sum() / federation.counts.sum()) if len(settings) > 1 else 0.0
    found: dict[Any, PairedDifference] = {}
    for method, against in pairs_of(study, methods):
        differences = paired_differences(
            scores[method],
            scores[against],
            federation.task,
            metric,
            [of for _, of in places],
            positive=settings[0].positive,
            resamples=max(1, study.evaluation.resamples),
            test_share=share,
            seed=study.study.seed,
        )
        found |= {(method, against, name): one for (name, _), one in zip(places, differences, strict=True)}
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
        for (method, against, place), one in apply_holm(found).items()
    )
