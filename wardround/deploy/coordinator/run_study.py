"""Conducts one study over real sites, from the offer to the report. Begun again after a crash, it goes on by itself.

All that matters is in the study's folder before it is told to anybody: the agreement, a checkpoint of every round, the
records. So the process may die at any point; started anew it finds its place and asks the sites again, who give the
same answers.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from wardround.core.contracts import Algorithm, Message, RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.coordinator import privacy_plan
from wardround.deploy.coordinator.answer_bounds import RowLimits, row_notes, validation_notes
from wardround.deploy.coordinator.clinical.cohort import patient_fields
from wardround.deploy.coordinator.clinical.risk_table import end_check, score_fields
from wardround.deploy.coordinator.engine import Deployment, model_arrays, refuse_pooled
from wardround.deploy.coordinator.events import Observer, RoundDone, ignore
from wardround.deploy.coordinator.gather import Absences, Gatherer
from wardround.deploy.coordinator.monitor.question import ask_windows, refuse_monitor
from wardround.deploy.coordinator.partner_choice import (
    choice_notes,
    choose_partners,
    partner_fields,
    refuse_partners,
    restrict_to_partners,
)
from wardround.deploy.coordinator.schema_agreement import (
    SchemaAgreement,
    agree_on_schema,
    agreement_from_json,
    agreement_to_json,
    table_without_rows,
)
from wardround.deploy.coordinator.secure_round import refuse_changing_cohorts, refuse_strangers
from wardround.deploy.coordinator.studies.errands import keep_model_for
from wardround.deploy.coordinator.studies.first_round import first_costs
from wardround.deploy.coordinator.studies.offers import Standing, gather_approvals
from wardround.deploy.coordinator.studies.submission import Submission, policy_of
from wardround.deploy.coordinator.transcript_record import close_transcript, keep_witnesses, open_transcript
from wardround.deploy.coordinator.two_servers.approval import refuse_second, refuse_unreadable
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.reply_form import figures_of
from wardround.deploy.protocol.requests import AboutModel, PrepareRows, RequestBody, SettleSchema, Topic, request_of
from wardround.deploy.protocol.robust_choice import rule_of
from wardround.deploy.transport.contract import Transport
from wardround.deploy.trust.transcript.entries import TranscriptSigner
from wardround.engine.checkpoint import read_header
from wardround.engine.checks import refuse_unseen
from wardround.engine.fit import FitResult, Schedule, fit
from wardround.evaluate.combined_block import combined_blocks
from wardround.evaluate.metrics import default_metric, names_with
from wardround.report.notes import compression_notes
from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.folder import RunFolder, digest
from wardround.runs.read import has_manifest
from wardround.runs.result import MethodResult, MonitorResult, RunResult
from wardround.runs.sites import SiteSummary
from wardround.study import assemble
from wardround.study.data_rules import example_shape
from wardround.study.file import PrivacySection, Study
from wardround.study.methods import own_method
from wardround.study.model_facts import model_facts, prediction_task
from wardround.study.sections.votes import sketch_task
from wardround.study.transform_chain import links_of
from wardround.workflows.cost.budget import budget_of, refuse_unknown_factors
from wardround.workflows.cost.operations import with_operations
from wardround.workflows.run import budget_notes, meters_of, records_of, underfit_notes
from wardround.workflows.training_plan import stopping_of


def conduct(
    submission: Submission,
    folder: RunFolder,
    transport: Transport,
    observer: Observer = ignore,
    signer: TranscriptSigner | None = None,
    standing: Standing | None = None,
) -> RunResult | MonitorResult | AnalysisResult:
    """Offer the study, wait for approval, agree, train, and let every site judge; gives the result.

    With a `standing` it was offered before, and is begun with those who have approved it.
    With a `signer` a transcript of the training is kept, and given to every site with the model. A study with [monitor]
    asks one question and trains nothing.
    """
    study = submission.study
    if study.analysis is not None:
        from wardround.deploy.coordinator.analyses.conduct import conduct_analysis  # which offers studies as we do

        return conduct_analysis(submission, folder, transport, observer, standing)
    engine = Deployment(
        sites=tuple(sorted(submission.sites)),
        gatherer=Gatherer(submission.id, transport, policy_of(submission), observer),
        seed=study.study.seed,
        transforms=links_of(study, sorted(submission.sites)),
        sums=folder.path / "sums",
        limits=RowLimits(folder.path / "limits.json"),
        noised=study.privacy is not None,
        signer=signer,
        second=study.deploy.second,
    )
    refuse_early(study, engine)
    resume = has_manifest(folder.path)
    kind = "deployed" if study.monitor is None else "monitor"
    manifest = folder.begin(study.model_dump(mode="json"), submission.id, kind=kind, resume=resume)
    began = (folder.path / "agreement.json").exists()
    approved = gather_approvals(engine.gatherer, submission, standing, began=began)
    point("coordinator.offer.approved")
    if study.monitor is not None:
        return ask_windows(engine, study, study.monitor, folder, approved, manifest)
    agreement, noisy = settle_agreement(engine, study, folder.path, approved)
    engine.introductions = introductions(engine, submission, agreement)
    algorithm, fitted = train(engine, (study, noisy), folder, agreement)
    return finish(engine, study, folder, agreement, algorithm, fitted, manifest)


def refuse_impossible(submission: Submission, transport: Transport) -> None:
    """What cannot be conducted, whoever approves it."""
    study = submission.study
    if study.analysis is not None:
        from wardround.deploy.coordinator.analyses.conduct import refuse_analysis

        refuse_analysis(submission, transport)
        return
    engine = Deployment(
        sites=tuple(sorted(submission.sites)),
        gatherer=Gatherer(submission.id, transport, policy_of(submission)),
        seed=study.study.seed,
        transforms=links_of(study, sorted(submission.sites)),
        second=study.deploy.second,
    )
    refuse_early(study, engine)


def refuse_early(study: Study, engine: Deployment) -> None:
    """What cannot be done over real sites, told before anything is offered or compiled."""
    if study.monitor is not None:
        refuse_monitor(study.monitor)
        return
    table_without_rows(study)
    privacy_plan.refuse_early(study)
    refuse_unknown_factors(study, engine.sites)
    refuse_partners(study, engine.sites, sum_only=engine.transform.must_be_last)
    algorithm = sketch_of(study, engine.sites)
    if study.privacy is not None and study.privacy.level == "site":
        noise = study.privacy.model_copy(update={"noise_multiplier": study.privacy.noise_multiplier or 1.0})
        sketch_of(study, engine.sites, noise)  # what such noise cannot cover is refused before anybody is asked
    refuse_pooled(algorithm)
    refuse_unseen(engine.transform, algorithm)
    if engine.transform.sum_only:
        refuse_strangers(engine.sites, engine.gatherer.transport.certificates())
        refuse_changing_cohorts(study, engine.sites)
    if engine.transform.products_only:
        refuse_second(study, engine.sites, engine.gatherer.transport.certificates())
        refuse_unreadable(engine.transforms)
        engine.rule = rule_of(study, engine.sites)


def sketch_of(study: Study, sites: Sequence[str], noise: PrivacySection | None = None) -> Algorithm:
    """The study's algorithm with this noise and for any task: what can be told before the sites have agreed."""
    plain, method, shape = study.model_copy(update={"privacy": noise}), own_method(study), example_shape(study)
    try:
        return assemble.build(plain, method, sketch_task(study), sites)
    except Refusal as refusal:
        try:  # a model may be for regression only
            return assemble.build(plain, method, Task(shape), sites)
        except Refusal:
            raise refusal from None


def settle_agreement(
    engine: Deployment, study: Study, folder: Path, approved: set[str]
) -> tuple[SchemaAgreement, Study]:
    """The agreement of those who approved at first, and the study with its noise: made once, then read from disk."""
    path = folder / "agreement.json"
    if path.exists():
        words = json.loads(path.read_bytes())
        agreement, study = agreement_from_json(words), privacy_plan.restore_noise(study, words.get("privacy"))
    else:
        engine.members = approved
        agreement = agree_on_schema(study, engine)
        study, _ = privacy_plan.plan_noise(study, agreement.task, engine.sites, agreement.rows)
        assemble.build(study, own_method(study), agreement.task, engine.sites)  # what noise cannot cover is refused
        point("coordinator.agreement.before_save")
        write_whole(
            path, json.dumps({**agreement_to_json(agreement), "privacy": privacy_plan.noise_to_json(study)}).encode()
        )
        point("coordinator.agreement.saved")
    engine.members = set(agreement.rows)
    engine.task = agreement.task
    return agreement, study


def introductions(engine: Deployment, submission: Submission, agreement: SchemaAgreement) -> list[RequestBody]:
    """What a site is asked that joins after the others have agreed: the same as they, in the same order."""
    words = agreement_to_json(agreement)
    return [
        submission.offer(),
        SettleSchema(words["schema"], submission.study.study.seed),
        PrepareRows(words["preparation"], words["positive"], list(engine.sites)),
    ]


def drop_unfinished_rounds(folder: RunFolder, checkpoint: Path) -> RunFolder:
    """Take records of rounds away whose state was never saved: they will be done again, perhaps by other sites."""
    folder.drop_rounds_after(int(read_header(checkpoint)["round"]) if checkpoint.exists() else 0)
    return RunFolder.create(folder.path, resume=True)


def train(
    engine: Deployment, studies: tuple[Study, Study], folder: RunFolder, agreement: SchemaAgreement
) -> tuple[Algorithm, FitResult]:
    """Train the model; `studies` are the study as it was approved, and with its noise."""
    study = studies[1]
    method = own_method(study)
    algorithm = assemble.build(study, method, agreement.task, engine.sites)
    model = assemble.model_of(study, agreement.task)
    participation = assemble.participation_of(study, engine.sites, study.study.seed)
    checkpoint = folder.checkpoint(method.name, 0)
    folder = drop_unfinished_rounds(folder, checkpoint)
    accounts = privacy_plan.Accounts(study, agreement.task, engine.sites, folder.records())

    def record(one: RoundRecord) -> None:
        one = accounts.annotate(one, {**agreement.rows, **engine.joined})
        folder.record(method.name, 0, one)
        folder.sync_rounds()  # on the disk before the checkpoint that follows it
        point("coordinator.round.recorded")
        engine.gatherer.observer(RoundDone(one.round, study.study.rounds, one.sites, one.measures))

    params = model.init(jax.random.key(study.study.seed))
    stopping = stopping_of(study)
    engine.watches = stopping.site if stopping else None
    participation, choice = choose_partners(study, engine, folder.path, agreement, algorithm, params, participation)
    if choice is not None:
        record(choice)
    if engine.signer is not None:
        resumed = checkpoint.exists()
        engine.transcript = open_transcript(engine, studies, folder.path, agreement, algorithm, params, resumed=resumed)
    fitted = fit(
        algorithm,
        engine,
        params,
        participation,
        Schedule(study.study.rounds, study.evaluation.every),
        validates=any(rows[1] for rows in agreement.rows.values())
        and privacy_plan.makes_looks(study, algorithm, agreement.task),
        stopping=stopping,
        checkpoint=checkpoint,
        identity=digest([study.model_dump(mode="json"), list(engine.sites)]),
        resume=True,
        on_round=record,
        budget=budget_of(
            study,
            algorithm,
            agreement.task,
            first=first_costs(engine, algorithm, params, participation) if study.budget else (0, 0),
            rows_of=engine.limits.training_rows,
        ),
    )
    point("coordinator.checkpoint.saved")
    return algorithm, fitted


def finish(
    engine: Deployment,
    study: Study,
    folder: RunFolder,
    agreement: SchemaAgreement,
    algorithm: Algorithm,
    fitted: FitResult,
    manifest: Mapping[str, Any],
) -> RunResult:
    """Every site judges the model on its own test patients and keeps it; the figures become the result."""
    told, absent = engine.gather_about_model(
        "figures", algorithm, fitted.progress, number=fitted.rounds, check=end_check(study.evaluation, engine.limits)
    )
    transcript, more = engine.transcript, {}
    if transcript is not None and engine.signer is not None:
        more = close_transcript(transcript, engine.signer, algorithm, fitted)
    receivers = restrict_to_partners(engine, folder.path)
    kept = receivers.ask_about_model("finish", algorithm, fitted.progress, number=fitted.rounds, more=more)
    keep_for_latecomers(receivers, folder.path, algorithm, fitted, more, kept)
    if transcript is not None:
        keep_witnesses(transcript, kept, engine.gatherer.transport.certificates())
    method, task, seed = own_method(study), agreement.task, study.study.seed
    rest = engine.gatherer.traffic.take()
    folder.add_bytes(method.name, rest.down, rest.up)
    names = names_with(task, study.study.metric)
    blocks = {site: block for site, one in sorted(told.items()) if (block := figures_of(one, names))}
    result = RunResult(
        study=study.study.name,
        kind="deployed",
        metric=study.study.metric or default_metric(task),
        task=prediction_task(task, agreement.preparation.features, agreement.positive),
        sites=tuple(
            SiteSummary(name=site, train=rows[0], validation=rows[1], test=rows[2], prevalence=None)
            for site, rows in {**agreement.rows, **engine.joined}.items()
        ),
        **patient_fields(agreement.patients),
        repeats=1,
        methods=(
            MethodResult(
                name=method.name,
                label=method.label,
                algorithm=method.algorithm,
                settings=dict(method.settings),
                rounds=fitted.rounds,
                **partner_fields(study, folder.path),
                best_round=fitted.best_round,
                stopped_early=fitted.stopped_early,
                seconds=sum(float(one["seconds"]) for one in folder.rounds(method.name, 0)),
                compile_seconds=fitted.first_call_seconds,
                meters=with_operations(
                    meters_of(folder, method, study, computing="coordinator"),
                    *(study, algorithm, agreement.task, records_of(folder, method, study)),
                    rows_of=engine.limits.training_rows,
                ),
                **score_fields(combined_blocks(blocks) if blocks else {}, told, study.evaluation, engine.limits, seed),
            ),
        ),
        comparison=(),
        notes=(
            *agreement.notes,
            *(row_notes(engine.limits, {**agreement.rows, **engine.joined}) if study.privacy is None else ()),
            *privacy_plan.spent_notes(folder.records()),
            *validation_notes(folder.records()),
            *choice_notes(folder.path),
            *filter(None, [engine.transform.words]),
            *(*compression_notes(folder.records()), *budget_notes(study, fitted, method.label)),
            *underfit_notes(study, {method.label: folder.records()}),
            *missing_figures_note(engine.sites, blocks, absent, privacy_plan.untold_note(study)),
        ),
    )
    point("coordinator.result.before_save")
    params = jax.device_get(algorithm.params(fitted.progress.server))
    facts = model_facts(
        study,
        method,
        algorithm,
        task,
        positive=agreement.positive,
        preparation=agreement.preparation,
        rounds=fitted.rounds,
    )
    folder.write_model(params, facts)
    folder.write_result(result)
    folder.finish(manifest, sites=list(engine.sites))
    point("coordinator.result.saved")
    return result


def keep_for_latecomers(
    engine: Deployment,
    run: Path,
    algorithm: Algorithm,
    fitted: FitResult,
    more: Mapping[str, Any],
    kept: Mapping[str, Any],
) -> None:
    """Keep the model for members who were away at the end: it is brought to them when they come back."""
    members = set(engine.sites) & (engine.members or set(engine.sites))
    absent = members - kept.keys() - engine.gatherer.departed_sites().keys()
    if not absent:
        return
    message = Message({**model_arrays(algorithm, fitted.progress), **more})
    question = AboutModel(engine.method(algorithm), Topic.FINISH, "test")
    asked = request_of(question, message, study=engine.gatherer.study, number=fitted.rounds)
    keep_model_for(run, absent, asked.body)


def missing_figures_note(sites: Sequence[str], blocks: Mapping[str, Any], absent: Absences, why: str) -> list[str]:
    bad = {site: why for site, why in absent.items() if why.unusable and site not in blocks}
    missing = [site for site in sites if site not in blocks and site not in bad]
    few = [f"No figures from {', '.join(missing)}: {why}."]
    return [*(few if missing else []), *(f"The figures of {site} were left out: {bad[site]}." for site in sorted(bad))]
