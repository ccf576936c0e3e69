"""Runs a study, one method or several on the same splits, into a run folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import numpy as np

from wardround.core.components.packages import OWN, in_a_line
from wardround.core.contracts import Params, RoundRecord, Scores
from wardround.core.federation import Federation
from wardround.engine import registry
from wardround.engine.fit import FitResult, Schedule, fit, words_of_stop
from wardround.engine.participation import restrict
from wardround.report.notes import compression_notes, underfit_note
from wardround.runs.clinical.figures import ClinicalFigures
from wardround.runs.file_names import MODEL, PERSONAL, method_file
from wardround.runs.folder import RunFolder, digest
from wardround.runs.result import RunResult
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method, site_number
from wardround.study.model_facts import model_facts
from wardround.study.privacy_cost import with_privacy_cost
from wardround.workflows.clinical import clinical_figures
from wardround.workflows.cost.budget import energy_settings
from wardround.workflows.cost.equal_cost import budgets, trainer_of
from wardround.workflows.cost.operations import with_operations
from wardround.workflows.loss_course import is_still_falling, validation_losses
from wardround.workflows.partners.choose import choose, question_of
from wardround.workflows.patient_table import patients_of
from wardround.workflows.predictions import predictions_table
from wardround.workflows.results import average, comparison_of, data_summary, method_block, resample_notes
from wardround.workflows.self_adjustment import adjust
from wardround.workflows.training_plan import (
    Plans,
    TrainingPlan,
    has_validation,
    main_metric,
    plan_methods,
    planned_budget,
    stopping_of,
)

OnRound = Callable[[Method, int, RoundRecord], None]


@dataclass(frozen=True)
class TrainedModel:
    """One method, one repeat: what it learned and how it predicts held-out patients."""

    method: Method
    repeat: int
    fitted: FitResult
    params: Params
    scores: Scores
    sites: Sequence[str]
    """Those evaluated, in the order of the scores."""
    seconds: float
    user: str | None = None
    """The site it was trained for."""
    partners: tuple[str, ...] | None = None
    """Whom the method chose to train with it."""
    personal: Params | None = None
    """The models that the sites use themselves, along a first axis in the order of `sites`."""


def run(
    study: Study,
    folder: RunFolder,
    methods: Sequence[Method],
    *,
    kind: str,
    repeats: int = 1,
    plans: Plans | None = None,
    resume: bool = False,
    on_round: OnRound = lambda method, repeat, record: None,
    notes: Sequence[str] = (),
    load: Callable[[Study, int], Setting] = assemble.load_repeat,
) -> RunResult:
    """Train every method on every split, and write manifest, rounds, models and result; gives the result.

    `plans` are those of the first split, as `check_methods` gives them for a study that can work; `load` reads the
    data of the other repeats.
    """
    first = plans or plan_methods(study, load(study, 0), methods, 0)
    manifest = folder.begin(study.model_dump(mode="json"), first[0][0].setting.fingerprint, kind=kind, resume=resume)
    study, methods, first, remarks = adjust(study, methods, first, folder)
    settings: list[Setting] = []
    trained: list[TrainedModel] = []
    clinical: list[ClinicalFigures] = []
    for repeat in range(repeats):
        planned = plan_methods(study, load(study, repeat), methods, repeat) if repeat else first
        settings.append(planned[0][0].setting)
        for of_method in planned:
            each = [train(plan, folder, resume=resume, on_round=on_round) for plan in of_method]
            trained.append(each[0] if len(each) == 1 else join_askings(each))
            if repeat == 0:
                clinical.append(clinical_figures(study, of_method, each, trained[-1].scores))
                write_models(folder, of_method, each, alone=len(methods) == 1, threshold=clinical[-1].threshold)
    if study.evaluation.keep_predictions:
        folder.write_predictions(predictions_table(settings, trained).to_csv(index=False).encode())
    metric = main_metric(study, settings[0])
    result = RunResult(
        study=study.study.name,
        kind=kind,
        metric=metric,
        **data_summary(settings[0], course=study.evaluation.course),
        **patients_of(study, settings[0]),
        repeats=repeats,
        methods=tuple(
            method_block(
                study,
                settings,
                [one for one in trained if one.method == method],
                average([meters_of_plan(folder, plan) for plan in of_method]),
                own,
            )
            for method, of_method, own in zip(methods, first, clinical, strict=True)
        ),
        comparison=comparison_of(study, settings, trained, methods, metric),
        notes=(
            *settings[0].notes,
            *notes,
            *remarks,
            *resample_notes(study, settings),
            *filter(None, [first[0][0].transform.words]),
            *compression_notes(folder.records()),
            *dict.fromkeys(note for one in trained for note in budget_notes(study, one.fitted, one.method.label)),
            *underfit_notes(study, {plan.method.label: recorded_rounds(plan, folder) for plan, *_ in first}),
        ),
    )
    if study.budget is not None and len(methods) > 1:
        rows = {site.name: site.train or 0 for site in result.sites}
        trainers = [trainer_of(of_method[0]) for of_method in first]
        result = result.model_copy(update={"budgets": budgets(folder.records(), trainers, rows)})
    folder.write_result(result)
    folder.finish(manifest)
    return result


def join_askings(each: Sequence[TrainedModel]) -> TrainedModel:
    """One method trained for each site in turn: every site's patients as predicted by the model trained for it."""
    first = each[0].scores.first
    own = [one.scores.predicted[first[i] : first[i + 1]] for i, one in enumerate(each)]
    scores = each[0].scores._replace(predicted=np.concatenate(own))
    return replace(each[0], scores=scores, seconds=sum(one.seconds for one in each), user=None, partners=None)


def write_models(
    folder: RunFolder,
    plans: Sequence[TrainingPlan],
    each: Sequence[TrainedModel],
    *,
    alone: bool,
    threshold: float = 0.5,
) -> None:
    """Every model that was scored, as it was scored: the common one, and those of single sites.

    From a predicted risk of `threshold` on a patient is flagged.

    A method for one site gives that site's model; where sites ask in turn, each has its own.
    """
    plan, first = plans[0], each[0]
    method = plan.method

    def write(name: str, params: Params, sites: Sequence[str]) -> None:
        facts = model_facts(
            plan.study,
            method,
            plan.algorithm,
            plan.federation.task,
            positive=plan.setting.positive,
            preparation=plan.setting.preparation,
            rounds=first.fitted.rounds,
            sites=sites,
            threshold=threshold,
        )
        folder.write_model(params, facts, name if alone else method_file(name, method.name))

    if len(each) > 1:
        together = jax.tree.map(lambda *arrays: np.stack(arrays), *[own_params(one) for one in each])
        write(PERSONAL, together, [str(one.user) for one in each])
        return
    if first.personal is not None:
        write(PERSONAL, first.personal, first.sites)
    if not (plan.algorithm.silent and plan.algorithm.personal is not None):  # alone there is no common model
        write(MODEL, first.params, ())


def own_params(one: TrainedModel) -> Params:
    """The model of the site that asked."""
    if one.personal is None:
        return one.params
    place = list(one.sites).index(str(one.user))
    own: Params = jax.tree.map(lambda array: array[place], one.personal)
    return own


def train(
    plan: TrainingPlan,
    folder: RunFolder | None,
    *,
    resume: bool = False,
    on_round: OnRound = lambda method, repeat, record: None,
    part: str = "test",
) -> TrainedModel:
    """Train one method on one split and predict the held-out patients."""
    started = time.perf_counter()
    study, method, repeat, federation = plan.study, plan.method, plan.repeat, plan.federation
    algorithm, participation, evaluated = plan.algorithm, plan.participation, plan.evaluated
    user = study.study.user if method.for_one_site else None

    def report(record: RoundRecord) -> None:
        if plan.protection is not None:
            record = with_privacy_cost(record, plan.protection)
        if folder is not None:
            folder.record(method.name, repeat, record, user=asking_in_turn(study, method))
        on_round(method, repeat, record)

    with plan.engine() as engine:
        params = plan.first_params()
        partners = None
        if method.choice:
            chosen = choose(question_of(study, plan.setting, engine, algorithm, params, participation), method)
            participation = restrict(participation, [chosen.user, *chosen.partners])
            partners = tuple(federation.sites[site] for site in chosen.partners)
            report(chosen.record)
        suffix = checkpoint_suffix(study, method, federation)
        checkpoint = folder.checkpoint(method.name, repeat, suffix) if folder else None
        fitted = fit(
            algorithm,
            engine,
            params,
            participation,
            Schedule(study.study.rounds, study.evaluation.every, study.evaluation.every),
            validates=has_validation(plan),
            course="test" if study.evaluation.course and folder is not None else None,
            stopping=stopping_of(study),
            checkpoint=checkpoint,
            identity=digest([study.model_dump(mode="json"), method, plan.setting.fingerprint]),
            resume=resume,
            on_round=report,
            budget=planned_budget(plan, engine, params),
        )
        personal = engine.personal_models(algorithm, fitted.progress)
        scores = engine.predict(algorithm, fitted.progress, part, personal)
    params = jax.device_get(algorithm.params(fitted.progress.server))
    return TrainedModel(
        method=method,
        repeat=repeat,
        fitted=fitted,
        params=params,
        scores=scores,
        sites=[federation.sites[int(index)] for index in evaluated],
        seconds=time.perf_counter() - started,
        user=user,
        partners=partners,
        personal=personal,
    )


def budget_notes(study: Study, fitted: FitResult, label: str) -> list[str]:
    """Where a budget ended this training, if it did."""
    if study.budget is None or not fitted.ended_by:
        return []
    return [f"{label}: {words_of_stop(fitted, study.budget.limits, study.study.rounds)}"]


def asking_in_turn(study: Study, method: Method) -> str | None:
    """The asking site, where sites take turns and records must tell whose they are."""
    takes_turns = study.compare is not None and study.compare.users == "each" and method.for_one_site
    return study.study.user if takes_turns else None


def checkpoint_suffix(study: Study, method: Method, federation: Federation) -> str:
    """What tells the checkpoints of sites that take turns apart; names of sites may hold anything, numbers do not."""
    user = asking_in_turn(study, method)
    return "" if user is None else f"-for-{site_number(user, federation.sites)}"


def recorded_rounds(plan: TrainingPlan, folder: RunFolder) -> list[dict[str, Any]]:
    return list(folder.rounds(plan.method.name, 0, user=asking_in_turn(plan.study, plan.method)))


def underfit_notes(study: Study, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """A note about the methods (by label) whose loss still fell at the end; a private study's losses are too noisy."""
    rounds = study.study.rounds
    falling = [label for label, of in records.items() if is_still_falling(validation_losses(of), rounds)]
    return [underfit_note(falling, rounds)] if falling and study.privacy is None else []


def records_of(folder: RunFolder, method: Method, study: Study) -> list[RoundRecord]:
    """The method's first repeat, as it was recorded."""
    return [
        RoundRecord(**{key: value for key, value in entry.items() if key not in ("method", "repeat", "user")})
        for entry in folder.rounds(method.name, 0, user=asking_in_turn(study, method))
    ]


def meters_of_plan(folder: RunFolder, plan: TrainingPlan) -> dict[str, Any]:
    """With the operations, where the study has a [budget]."""
    told, records = meters_of(folder, plan.method, plan.study), records_of(folder, plan.method, plan.study)
    return with_operations(told, plan.study, plan.algorithm, plan.federation.task, records)


def meters_of(folder: RunFolder, method: Method, study: Study, computing: str = "everybody") -> dict[str, Any]:
    """What every meter says about the method's first repeat, from the recorded rounds; `computing`: whose they tell."""
    recorded = records_of(folder, method, study)
    reports = {}
    for name, component in registry.components("meter").items():
        try:
            meter = component.build(**({**energy_settings(study), "computing": computing} if name == "energy" else {}))
            reports[name] = meter.report(reduce(meter.observe, recorded, meter.init()))
        except Exception as error:
            if component.package == OWN:
                raise
            # The model is trained: what somebody else's meter cannot say must not cost it.
            reports[name] = {"words": f"The meter {name} of {component.package} failed ({in_a_line(error)})."}
    return reports
