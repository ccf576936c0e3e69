"""What `result.json` says: the sites, every method's figures, and how sure the differences are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wardround.evaluate.block import result_block
from wardround.evaluate.comparison import Difference, paired_difference
from wardround.study.assemble import Method, Setting
from wardround.study.file import Study

if TYPE_CHECKING:
    from wardround.study.run import Trained

MOST_COMPARED = 20
"""Sites up to which differences are also told site by site."""


def described(setting: Setting) -> dict[str, Any]:
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
            {
                "name": federation.sites[index],
                "train": train,
                "validation": validation,
                "test": test,
                "prevalence": share if len(task.classes) == 2 else None,
            }
        )
    words: dict[str, Any] = {
        "kind": "regression" if task.regression else "classification",
        "target": task.target,
        "classes": list(task.classes),
        "features": list(federation.features),
    }
    if len(task.classes) == 2:
        words["positive"] = task.classes[setting.positive]
    described: dict[str, Any] = {"task": words, "sites": sites}
    if setting.truth:
        described["truth"] = setting.truth
    return described


def method_block(
    study: Study, settings: Sequence[Setting], trained: "Sequence[Trained]", meters: dict[str, Any]
) -> dict[str, Any]:
    """One method: its course, its cost, and its figures on held-out patients, averaged over repeats."""
    first = trained[0]
    blocks = []
    for one in trained:
        setting = settings[one.repeat]
        sites = setting.federation.sites
        named = sites if len(one.scores.first) - 1 == len(sites) else [str(i) for i in range(len(one.scores.first) - 1)]
        blocks.append(
            result_block(
                one.scores,
                setting.federation.task,
                named,
                positive=setting.positive,
                resamples=study.evaluation.resamples,
                seed=study.study.seed,
            )
        )
    return {
        "name": first.method.name,
        "label": first.method.label,
        "algorithm": first.method.algorithm,
        "settings": dict(first.method.settings),
        "rounds": first.fitted.records[-1].round if first.fitted.records else study.study.rounds,
        "best_round": first.fitted.best_round,
        "stopped_early": first.fitted.stopped_early,
        "seconds": sum(one.seconds for one in trained),
        "compile_seconds": first.fitted.first_call_seconds,
        "meters": meters,
        "scores": averaged(blocks),
    }


def averaged(blocks: Sequence[Any]) -> Any:
    """The mean over repeats of every figure; where it is undefined in some repeats, of the others.

    Intervals are averaged end by end: they stay as wide as those of one test set, since repeats share patients.
    """
    first = blocks[0]
    if len(blocks) == 1:
        return first
    if isinstance(first, dict):
        merged = {key: averaged([block[key] for block in blocks if key in block]) for key in first}
        if "undefined" in first and any(block.get("value") is not None for block in blocks):
            merged.pop("undefined")
        return merged
    numbers = [block for block in blocks if isinstance(block, int | float) and not isinstance(block, bool)]
    if isinstance(first, bool) or not numbers:
        return first
    return first if len(set(numbers)) == 1 else float(np.mean(numbers))


def comparison_of(
    study: Study, settings: Sequence[Setting], trained: "Sequence[Trained]", methods: Sequence[Method], metric: str
) -> list[dict[str, Any]]:
    """Every other method against one, over all sites and site by site, paired patient by patient."""
    if len(methods) < 2:
        return []
    against = (study.compare.against if study.compare else None) or methods[0].name
    scores = {method.name: [one.scores for one in trained if one.method == method] for method in methods}
    federation = settings[0].federation
    places: list[tuple[str, Any]] = [("all sites", "weighted")]
    if len(federation.sites) <= MOST_COMPARED:
        places += list(zip(federation.sites, range(len(federation.sites)), strict=True))
    rows = federation.counts.sum()
    share = float(federation.counts[:, 2].sum() / rows) if len(settings) > 1 else 0.0
    told = []
    for method in methods:
        if method.name == against:
            continue
        for place, of in places:
            difference: Difference = paired_difference(
                scores[method.name],
                scores[against],
                federation.task,
                metric,
                of=of,
                positive=settings[0].positive,
                resamples=max(1, study.evaluation.resamples),
                test_share=share,
                seed=study.study.seed,
            )
            words = {"metric": metric, "site": place, "method": method.name, "against": against}
            figures = difference._asdict()
            told.append({**words, "difference": figures.pop("value"), **figures})
    return told
