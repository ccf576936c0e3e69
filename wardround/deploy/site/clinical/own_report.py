"""A site's own report of a finished study: all figures of its own patients, exact, made there and sent to nobody.

The report over all sites has what sites tell, coarsely. Whoever works at a site may know everything about its patients:
who was included, who they are, whom the model flags, whether its risks are right, whether acting on it pays, and what
it looks at. Rows are split and prepared as the sites agreed, and the model is the one that the study left here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wardround.core.contracts import Scores
from wardround.core.errors import Refusal
from wardround.data.table import Table
from wardround.deploy.home import SiteHome, SiteSettings
from wardround.deploy.party.decisions import Offer, read_decision, study_of
from wardround.deploy.site.datasets import table_for
from wardround.deploy.site.own_model import own_figures, own_model
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.studies.own_energy import own_energy
from wardround.deploy.site.study_worker import StudyWorker
from wardround.engine.predictions import score_rows
from wardround.evaluate.block import pooled_block, result_block
from wardround.evaluate.calibration import reliability_curve
from wardround.evaluate.clinical.importance import (
    affordable_rows,
    feature_groups,
    linear_weights,
    permutation_importance,
    standardised_coefficients,
)
from wardround.evaluate.clinical.operating_point import flags_by_class
from wardround.evaluate.metrics import default_metric, names_with
from wardround.evaluate.survival.horizons import horizon_figures
from wardround.predict.predictor import Predictor, read_predictor
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.clinical.patient_table import PatientFlow, RowFlow
from wardround.runs.fields import part_of
from wardround.runs.result import MethodResult, RunResult
from wardround.runs.scores import ScoreBlock
from wardround.runs.sites import SiteSummary
from wardround.study.file import Study
from wardround.study.methods import own_method
from wardround.study.model_facts import prediction_task
from wardround.workflows.clinical import calibration_of, drawn, flag_figures
from wardround.workflows.patient_table import patient_table

KIND = "site"


def own_report(home: SiteHome, offer: Offer) -> RunResult:
    """The figures of a study's model for this site's own patients; refused before the study has ended."""
    return figures_of(*own_rows(home, offer), home.folder(offer.id), home.settings)


def own_rows(home: SiteHome, offer: Offer) -> tuple[Study, StudyWorker, Predictor]:
    """What a report is made from: the site's rows as the sites agreed on them, and the model that was left here."""
    study = study_of(offer)
    predictor = read_predictor(own_model(home.folder(offer.id), offer.id))
    return study, rows_of(home, offer, study), predictor


def figures_of(
    study: Study, worker: StudyWorker, predictor: Predictor, folder: Path, settings: SiteSettings
) -> RunResult:
    """The report without pictures."""
    assert worker.task is not None
    own, task = worker.own, worker.task
    assert own is not None
    scores = {part: scores_of(predictor, worker, part) for part in ("validation", "test")}
    counts = [len(worker.parts[part][1]) for part in ("train", "validation", "test")]
    method, used = own_method(study), own_energy(folder, settings)
    y = worker.parts["train"][1]
    share = float((y == worker.positive).mean()) if task.binary and len(y) else None
    return RunResult(
        study=study.study.name,
        kind=KIND,
        metric=study.study.metric or default_metric(task),
        task=prediction_task(task, predictor.preparation.features, worker.positive),
        sites=(SiteSummary(name=worker.site, train=counts[0], validation=counts[1], test=counts[2], prevalence=share),),
        flow=flow_of(worker.table, sum(counts)),
        patient_table=patient_table(worker.table, task.classes, 1),
        repeats=1,
        methods=(
            MethodResult(
                name=method.name,
                label=method.label,
                algorithm=method.algorithm,
                settings=dict(method.settings),
                rounds=predictor.facts.rounds,
                user=None,
                partners=None,
                best_round=None,
                stopped_early=False,
                seconds=None,
                compile_seconds=None,
                meters={} if used is None else {"energy": used},
                scores=score_block(study, worker, scores["test"]),
                clinical=clinical_of(study, worker, predictor, scores),
            ),
        ),
        comparison=(),
        notes=changed_notes(own_figures(folder), counts[2]),
    )


def rows_of(home: SiteHome, offer: Offer, study: Study) -> StudyWorker:
    """The site's rows, split and prepared as the sites agreed; read where they lie."""
    decision, policy = read_decision(home, offer.id), read_policy(home.policy_path)
    if decision is None:
        raise Refusal("nobody has approved this study here", where=offer.id, remedy="see `wardround site studies`")
    worker = StudyWorker(
        site=home.settings.name,
        study=study,
        table=table_for(home, decision.data, study, policy, decision.columns),
        folder=home.folder(offer.id),
        allow=lambda recipe: None,  # nothing is asked for: no answer leaves
        smallest_cell=policy.smallest_cell,
    )
    worker.recall()
    if worker.task is None:
        raise Refusal(
            "what the sites agreed on is no longer stored here",
            where=str(worker.folder),
            remedy="restore the folder of the study from a backup",
        )
    return worker


def scores_of(predictor: Predictor, worker: StudyWorker, part: str) -> Scores:
    x, y = worker.parts[part]
    assert worker.task is not None
    if worker.task.segmentation:
        return score_rows(predictor.algorithm, predictor.params, x, y, worker.task)
    return Scores(predictor.predict_prepared(x), y, np.array([0, len(y)]), worker.times_of(part))


def flow_of(table: Table, used: int) -> PatientFlow:
    ((site, frame),) = table.sites.items()
    unknown = int(frame[table.target].isna().sum())
    whole = RowFlow(read=len(frame), without_outcome=unknown, left_out=max(0, len(frame) - unknown - used), used=used)
    return PatientFlow(all=whole, sites={site: whole})


def score_block(study: Study, worker: StudyWorker, scores: Scores) -> ScoreBlock:
    assert worker.task is not None
    task, said = worker.task, study.evaluation
    if not len(scores.actual):
        return part_of(ScoreBlock, {})
    settled: dict[str, Any] = {
        "metrics": names_with(task, study.study.metric),
        "positive": worker.positive,
        "resamples": said.resamples,
        "seed": study.study.seed,
    }
    block = result_block(scores, task, [worker.site], **settled)
    pooled = pooled_block(scores, task, **settled)
    if task.segmentation:
        return part_of(ScoreBlock, {**block, "pooled": pooled})
    curve = reliability_curve(scores, task, positive=worker.positive)
    return part_of(ScoreBlock, {**block, "pooled": pooled, "reliability": curve})


def clinical_of(
    study: Study, worker: StudyWorker, predictor: Predictor, scores: Mapping[str, Scores]
) -> ClinicalFigures | None:
    task, test = worker.task, scores["test"]
    assert task is not None
    if not len(test.actual) or not np.isfinite(test.predicted).all() or task.segmentation:
        return None
    if task.survival:
        told: dict[str, Any] = {"horizons": horizon_figures(test, task)}
    else:
        told = {"calibration": calibration_of(test, task, [worker.site], worker.positive)}
    if task.binary:
        told |= flag_figures(study, test, scores["validation"], [worker.site], worker.positive)
    elif task.classification:
        told["classes"] = flags_by_class(test.predicted, test.actual, task)
    told["importance"] = importance_of(study, worker, predictor)
    return part_of(ClinicalFigures, told)


def importance_of(study: Study, worker: StudyWorker, predictor: Predictor) -> dict[str, Any]:
    """What the model looks at, among this site's patients."""
    assert worker.task is not None
    task, features, seed = worker.task, predictor.preparation.features, study.study.seed
    groups = feature_groups([column.name for column in predictor.preparation.columns], features)
    weights = linear_weights(predictor.params, task, worker.positive)
    if weights is not None and predictor.algorithm.personal is None:
        x = worker.parts["train"][0]
        found = standardised_coefficients(weights, x, groups, features)
        return {"kind": "standardised coefficient", "rows": len(x), "columns": found}
    x, y = worker.parts["validation"]
    if not len(y):
        return {"kind": "permutation", "rows": 0, "reason": "there are no validation patients"}
    rows = drawn(np.arange(len(y)), affordable_rows(len(features), len(groups)), seed)
    metric = study.study.metric or default_metric(task)
    found = permutation_importance(
        predictor.predict_prepared, x[rows], y[rows], groups, task, metric, positive=worker.positive, seed=seed
    )
    reason = {} if found else {"reason": f"{metric} is not defined for the validation patients"}
    return {"kind": "permutation", "metric": metric, "rows": len(rows), "columns": found, **reason}


def changed_notes(kept: Mapping[str, Any] | None, tested: int) -> tuple[str, ...]:
    """What a reader must know where the table is no longer the one of the study."""
    if kept is None or kept.get("rows") == tested:
        return ()
    return (
        f"The table has changed since the study: it had {kept.get('rows'):,} test patients then and has {tested:,} now,"
        " and patients of training may be among them. The figures that were told are in `wardround site studies`.",
    )
