"""The clinical figures of a method: calibration, decision curve, operating point, and what the model looks at.

Of the first split, whose models are kept in the run folder. The operating point is chosen, and columns are shuffled, on
validation patients; every other figure is about test patients.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.engine import predictions
from wardround.evaluate.clinical.calibration_fit import CalibrationFit, fit_risks, fit_values
from wardround.evaluate.clinical.decision_curve import decision_curve
from wardround.evaluate.clinical.importance import (
    affordable_rows,
    feature_groups,
    linear_weights,
    permutation_importance,
    standardised_coefficients,
)
from wardround.evaluate.clinical.operating_point import (
    OperatingRule,
    choose_threshold,
    count_flags,
    flags_by_class,
    flags_by_site,
)
from wardround.evaluate.survival.horizons import horizon_figures
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.fields import part_of
from wardround.study.file import Study
from wardround.workflows.training_plan import TrainingPlan, main_metric

if TYPE_CHECKING:
    from wardround.workflows.run import TrainedModel

MOST_SITES = 200
"""Sites up to which each is told of by itself."""
MOST_TRAINING_ROWS = 50_000
"""Training rows over which the spread of a column is taken."""
Numbers = np.ndarray[Any, Any]
OWN_MODELS = "every hospital has a model of its own"


def clinical_figures(
    study: Study, plans: Sequence[TrainingPlan], trained: "Sequence[TrainedModel]", scores: Scores
) -> ClinicalFigures:
    """Of one method on one split: `plans` are one, or one for each site that asks; `scores` are the test patients'."""
    first = plans[0]
    task, positive = first.federation.task, first.setting.positive
    told: dict[str, Any] = {}
    if len(scores.actual) and np.isfinite(scores.predicted).all() and not task.segmentation:
        if task.survival:
            told["horizons"] = horizon_figures(scores, task)
        else:
            told["calibration"] = calibration_of(scores, task, trained[0].sites, positive)
        if task.binary:
            told |= binary_figures(study, plans, trained, scores)
        elif task.classification:
            told["classes"] = flags_by_class(scores.predicted, scores.actual, task)
        told["importance"] = importance_of(study, plans, trained[0])
    return part_of(ClinicalFigures, told)


def binary_figures(
    study: Study, plans: Sequence[TrainingPlan], trained: "Sequence[TrainedModel]", scores: Scores
) -> dict[str, Any]:
    look = None if operating_rule(study).name == "threshold" else validation_scores(plans, trained)
    return flag_figures(study, scores, look, trained[0].sites, plans[0].setting.positive)


def flag_figures(
    study: Study, scores: Scores, look: Scores | None, names: Sequence[str], positive: int
) -> dict[str, Any]:
    """Decision curve and operating point of test patients, chosen by a `look` at validation patients."""
    risk, ill = risks_of(scores, positive)
    curve = decision_curve(risk, ill, resamples=study.evaluation.resamples, seed=study.study.seed)
    rule = operating_rule(study)
    chosen = choose_threshold(rule, *(risks_of(look, positive) if look is not None else (risk[:0], ill[:0])))
    few = len(names) <= MOST_SITES
    return {
        "decision_curve": curve,
        "operating_point": {
            "threshold": chosen.value,
            "rule": rule.name,
            **({} if rule.name == "youden" else {"target": rule.target}),
            "validation_rows": 0 if look is None else len(look.actual),
            "fallback": chosen.fallback,
            "all": count_flags(risk >= chosen.value, ill),
            "sites": flags_by_site(risk, ill, chosen.value, scores.first, names) if few else {},
        },
    }


def operating_rule(study: Study) -> OperatingRule:
    """As [evaluation] operating_point says, else by Youden's index."""
    said = study.evaluation.operating_point
    return OperatingRule() if said is None else OperatingRule(*said.rule)


def risks_of(scores: Scores, positive: int) -> tuple[Numbers, Numbers]:
    """The predicted risk of every patient, and whether the outcome came (0 or 1)."""
    return np.asarray(scores.predicted[:, positive], np.float64), np.asarray(scores.actual == positive, np.int64)


def validation_scores(plans: Sequence[TrainingPlan], trained: "Sequence[TrainedModel]") -> Scores:
    """Validation patients as predicted by the model that each site would use."""
    each = [
        predictions.scores(
            plan.algorithm,
            one.fitted.progress,
            plan.federation,
            "validation",
            plan.evaluated,
            seed=plan.seed,
            personal=one.personal,
        )
        for plan, one in zip(plans, trained, strict=True)
    ]
    return each[0] if len(each) == 1 else own_predictions(each)


def own_predictions(each: Sequence[Scores]) -> Scores:
    """Models for each site in turn: every site's patients as predicted by the model trained for it."""
    first = each[0].first
    own = [one.predicted[first[at] : first[at + 1]] for at, one in enumerate(each)]
    return each[0]._replace(predicted=np.concatenate(own))


def calibration_of(scores: Scores, task: Task, sites: Sequence[str], positive: int) -> dict[str, Any]:
    """All patients as one, and every site; of more than two classes the confidence in the predicted one."""
    fit: Callable[[Numbers, Numbers], CalibrationFit] = fit_values if task.regression else fit_risks
    if task.regression:
        claimed, true = np.asarray(scores.predicted, np.float64), np.asarray(scores.actual, np.float64)
    elif task.binary:
        claimed, true = risks_of(scores, positive)
    else:
        claimed = np.asarray(scores.predicted.max(axis=1), np.float64)
        true = np.asarray(scores.predicted.argmax(axis=1) == scores.actual, np.int64)
    few = list(sites) if 1 < len(sites) <= MOST_SITES else []
    rows = {name: slice(int(scores.first[at]), int(scores.first[at + 1])) for at, name in enumerate(few)}
    return {
        **plain_fit(fit(claimed, true)),
        "predicted": float(claimed.mean()),
        "observed": float(true.mean()),
        "sites": {name: plain_fit(fit(claimed[own], true[own])) for name, own in rows.items()},
    }


def plain_fit(fit: CalibrationFit) -> dict[str, Any]:
    return {"in_the_large": fit.in_the_large.plain(), "slope": fit.slope.plain()}


def importance_of(study: Study, plans: Sequence[TrainingPlan], trained: "TrainedModel") -> dict[str, Any] | None:
    """Of the one model that all sites share; none for images, whose single points mean nothing."""
    plan = plans[0]
    federation, task = plan.federation, plan.federation.task
    if not federation.features:
        return None
    metric = main_metric(study, plan.setting)
    if len(plans) > 1 or (plan.algorithm.personal is not None and trained.personal is None):
        return {"kind": "", "rows": 0, "reason": OWN_MODELS}
    groups = feature_groups(raw_columns(plan), federation.features)
    weights = linear_weights(trained.params, task, plan.setting.positive)
    if plan.algorithm.personal is None and weights is not None:
        rows = drawn(federation.rows_of("train"), MOST_TRAINING_ROWS, plan.seed)
        found = standardised_coefficients(weights, federation.x[rows], groups, federation.features)
        return {"kind": "standardised coefficient", "rows": len(rows), "columns": found}
    owner, rows = validation_rows(plan, affordable_rows(len(federation.features), len(groups)))
    if not len(rows):
        return {"kind": "permutation", "rows": 0, "reason": "there are no validation patients"}
    predict = partial(predict_copies, plan, trained, owner)
    x, y = np.asarray(federation.x[rows]), federation.y[rows]
    found = permutation_importance(predict, x, y, groups, task, metric, positive=plan.setting.positive, seed=plan.seed)
    reason = {} if found else {"reason": f"{metric} is not defined for the validation patients"}
    return {"kind": "permutation", "metric": metric, "rows": len(rows), "columns": found, **reason}


def validation_rows(plan: TrainingPlan, most: int) -> tuple[Numbers, Numbers]:
    """Of the evaluated sites, at most so many: the site of each row, by its place among them, and its number."""
    first, count = (part[plan.evaluated] for part in plan.federation.part("validation"))
    rows = predictions.row_numbers(first, count)
    kept = drawn(np.arange(len(rows)), most, plan.seed)
    return np.repeat(np.arange(len(count)), count)[kept], rows[kept]


def raw_columns(plan: TrainingPlan) -> list[str]:
    """The columns of the data, in the order in which the preparation takes them."""
    preparation = plan.setting.preparation
    return list(plan.federation.features) if preparation is None else [one.name for one in preparation.columns]


def drawn(rows: Numbers, most: int, seed: int) -> Numbers:
    """At most so many of the rows."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng((seed, 0xC11)).choice(rows, most, replace=False))


def predict_copies(plan: TrainingPlan, trained: "TrainedModel", owner: Numbers, x: Numbers) -> Numbers:
    """Copies of validation rows as predicted by the models of the sites that own them (`owner`, for one copy)."""
    evaluated = plan.evaluated
    place = np.tile(owner, len(x) // len(owner))
    order = np.argsort(place, kind="stable")
    counts = np.zeros_like(plan.federation.counts)
    counts[evaluated, 1] = np.bincount(place, minlength=len(evaluated))
    rows = counts.sum(axis=1)
    # The copies stand in for the sites' validation rows; models are fitted already.
    copies = replace(
        plan.federation,
        x=x[order],
        y=np.zeros(len(x), plan.federation.y.dtype),
        first=np.cumsum(rows) - rows,
        counts=counts,
        times=None,
    )
    scores = predictions.scores(
        plan.algorithm,
        trained.fitted.progress,
        copies,
        "validation",
        evaluated,
        seed=plan.seed,
        personal=trained.personal,
    )
    predicted = np.empty_like(scores.predicted)
    predicted[order] = scores.predicted
    return predicted
