"""Conducts one study over real sites, from the offer to the report. Begun again after a crash, it goes on by itself.

All that matters is in the study's folder before it is told to anybody: the agreement, a checkpoint of every round, the
records. So the process may die at any point; started anew it finds its place and asks the sites again, who give the
same answers.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from wardround.core.contracts import Algorithm, RoundRecord, Task
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.deploy.coordinator import privacy_plan
from wardround.deploy.coordinator.answer_bounds import RowLimits, validation_notes
from wardround.deploy.coordinator.engine import Deployment, refuse_pooled
from wardround.deploy.coordinator.events import ApprovalPending, Observer, RoundDone, ignore
from wardround.deploy.coordinator.gather import Absences, Gatherer, WaitPolicy, reasons_of
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
from wardround.deploy.coordinator.transcript_record import close_transcript, keep_witnesses, open_transcript
from wardround.deploy.coordinator.two_servers.approval import offer_to_second, refuse_second, refuse_unreadable
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import too_few_usable
from wardround.deploy.protocol.reply_form import figures_of
from wardround.deploy.protocol.requests import OfferStudy, PrepareRows, RequestBody, SettleSchema, Topic
from wardround.deploy.protocol.robust_choice import rule_of
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.transport.contract import Transport
from wardround.deploy.trust.pins import needs_pins, smallest_roster
from wardround.deploy.trust.transcript.entries import TranscriptSigner
from wardround.engine.checkpoint import read_header
from wardround.engine.checks import refuse_unseen
from wardround.engine.fit import FitResult, Schedule, fit
from wardround.evaluate.combined_block import combined_blocks
from wardround.evaluate.metrics import names_with
from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.fields import part_of
from wardround.runs.folder import RunFolder, digest
from wardround.runs.read import has_manifest
from wardround.runs.result import MethodResult, MonitorResult, RunResult
from wardround.runs.scores import ScoreBlock
from wardround.runs.sites import SiteSummary
from wardround.study import assemble
from wardround.study.file import PrivacySection, Study
from wardround.study.methods import own_method
from wardround.study.model_facts import model_facts, prediction_task
from wardround.study.sections.votes import sketch_task
from wardround.workflows.run import meters_of, underfit_notes
from wardround.workflows.training_plan import stopping_of

PAUSE = 0.5
FINAL = (Status.DENIED, Status.WITHDRAWN, Status.REFUSED)
"""What ends a study when a site says it to the offer."""


@dataclass(frozen=True)
class Submission:
    """A study as it was submitted: to which sites, by whom; `known_rows` are training rows told in studies before."""

    study: Study
    sites: tuple[str, ...]
    submitter: str = ""
    known_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return study_id(self.study)

    def offer_to(self, site: str) -> OfferStudy:
        """With the rows of the other sites together, which tells none of them unless there are two."""
        others = [one for one in self.sites if one != site]
        known = all(one in self.known_rows for one in others)
        return self.offer(sum(self.known_rows[one] for one in others) if known else None)

    def offer(self, others: int | None = None) -> OfferStudy:
        return OfferStudy(self.study.model_dump(mode="json"), self.submitter, others)


def conduct(
    submission: Submission,
    folder: RunFolder,
    transport: Transport,
    observer: Observer = ignore,
    signer: TranscriptSigner | None = None,
) -> RunResult | MonitorResult | AnalysisResult:
    """Offer the study, wait for approval, agree, train, and let every site judge; gives the result.

    With a `signer` a transcript of the training is kept, and given to every site with the model. A study with [monitor]
    asks one question and trains nothing.
    """
    study = submission.study
    if study.analysis is not None:
        from wardround.deploy.coordinator.analyses.conduct import conduct_analysis  # which offers studies as we do

        return conduct_analysis(submission, folder, transport, observer)
    engine = Deployment(
        sites=tuple(sorted(submission.sites)),
        gatherer=Gatherer(submission.id, transport, policy_of(submission), observer),
        seed=study.study.seed,
        transforms=assemble.links_of(study.transforms),
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
    approved = offer_study(engine, submission, wait=not began)
    if engine.second is not None and not began:
        offer_to_second(engine.gatherer, engine.second, submission.offer())
    point("coordinator.offer.approved")
    if study.monitor is not None:
        return ask_windows(engine, study, study.monitor, folder, approved, manifest)
    agreement, noisy = settle_agreement(engine, study, folder.path, approved)
    engine.introductions = introductions(engine, submission, agreement)
    algorithm, fitted = train(engine, (study, noisy), folder, agreement)
    return finish(engine, study, folder, agreement, algorithm, fitted, manifest)


def policy_of(submission: Submission) -> WaitPolicy:
    study, sites = submission.study, len(submission.sites)
    quorum = privacy_plan.quorum_of(study, sites)
    if quorum > sites:
        raise Refusal(
            f"{quorum} sites must answer each round, but only {sites} take part",
            where="[deploy] quorum",
            remedy="lower the quorum",
        )
    # Sites refuse a sum of fewer than they approved, so there is no use in asking.
    fewest = max(privacy_plan.fewest_of(study, sites), smallest_roster(study) if needs_pins(study) else 1)
    return WaitPolicy(quorum, floor=study.deploy.deadline, fewest=fewest)


def refuse_early(study: Study, engine: Deployment) -> None:
    """What cannot be done over real sites, told before anything is offered or compiled."""
    if study.monitor is not None:
        refuse_monitor(study.monitor)
        return
    table_without_rows(study)
    privacy_plan.refuse_early(study)
    refuse_partners(study, engine.sites, sum_only=engine.transform.must_be_last)
    algorithm = sketch_of(study, engine.sites)
    if study.privacy is not None and study.privacy.level == "site":
        noise = study.privacy.model_copy(update={"noise_multiplier": study.privacy.noise_multiplier or 1.0})
        sketch_of(study, engine.sites, noise)  # what such noise cannot cover is refused before anybody is asked
    refuse_pooled(algorithm)
    refuse_unseen(engine.transform, algorithm.aggregator)
    if engine.transform.sum_only:
        refuse_strangers(engine.sites, engine.gatherer.transport.certificates())
        refuse_changing_cohorts(study, engine.sites)
    if engine.transform.products_only:
        refuse_second(study, engine.sites, engine.gatherer.transport.certificates())
        refuse_unreadable(engine.transforms)
        engine.rule = rule_of(study, engine.sites)


def sketch_of(study: Study, sites: Sequence[str], noise: PrivacySection | None = None) -> Algorithm:
    """The study's algorithm with this noise and for any task: what can be told before the sites have agreed."""
    plain, method = study.model_copy(update={"privacy": noise}), own_method(study)
    try:
        return assemble.build(plain, method, sketch_task(study), sites)
    except Refusal as refusal:
        try:  # a model may be for regression only
            return assemble.build(plain, method, Task((1,)), sites)
        except Refusal:
            raise refusal from None


def offer_study(engine: Deployment, submission: Submission, *, wait: bool = True) -> set[str]:
    """Put the study before every site and wait until all have approved it; one that denies it ends the study.

    With a quorum, those who have not approved it some time after the others are not waited for: they may join later.
    """
    gatherer = engine.gatherer
    transport, deadline = gatherer.transport, submission.study.deploy.deadline
    waiting = set(engine.sites)
    since = time.monotonic()
    while waiting:
        waiting -= transport.revoked().keys()
        here = sorted(waiting & transport.present())
        answers, absent = gatherer.ask_once(here, submission.offer_to)
        waiting -= set(answers)
        if not wait:
            break
        for site, absence in absent.items():
            if absence.unusable:
                raise too_few_usable({site: absence}, 0, Topic.OFFER)
            if absence.status in FINAL:
                raise Refusal(
                    f"the study is {absence}", where=f"site {site}", remedy="change the study, or leave the site out"
                )
        approved = len(engine.sites) - len(waiting) - len(transport.revoked().keys() & set(engine.sites))
        if approved < gatherer.policy.quorum:
            since = time.monotonic()
        elif time.monotonic() - since > deadline:
            break
        if waiting:
            gatherer.observer(ApprovalPending(tuple(sorted(waiting)), reasons_of(absent)))
            gatherer.rest(PAUSE)
    return set(engine.sites) - waiting - transport.revoked().keys()


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
        "figures", algorithm, fitted.progress, number=fitted.rounds, check=engine.limits.figures_problem
    )
    transcript, more = engine.transcript, {}
    if transcript is not None and engine.signer is not None:
        more = close_transcript(transcript, engine.signer, algorithm, fitted)
    kept = restrict_to_partners(engine, folder.path).ask_about_model(
        "finish", algorithm, fitted.progress, number=fitted.rounds, more=more
    )
    if transcript is not None:
        keep_witnesses(transcript, kept, engine.gatherer.transport.certificates())
    method, task = own_method(study), agreement.task
    names = names_with(task, study.study.metric)
    blocks = {site: block for site, one in sorted(told.items()) if (block := figures_of(one, names))}
    default = "rmse" if task.regression else "roc_auc" if len(task.classes) == 2 else "accuracy"
    result = RunResult(
        study=study.study.name,
        kind="deployed",
        metric=study.study.metric or default,
        task=prediction_task(task, agreement.preparation.features, agreement.positive),
        sites=tuple(
            SiteSummary(name=site, train=rows[0], validation=rows[1], test=rows[2], prevalence=None)
            for site, rows in {**agreement.rows, **engine.joined}.items()
        ),
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
                meters=meters_of(folder, method, study),
                scores=part_of(ScoreBlock, combined_blocks(blocks) if blocks else {}),
            ),
        ),
        comparison=(),
        notes=(
            *agreement.notes,
            *privacy_plan.spent_notes(folder.records()),
            *validation_notes(folder.records()),
            *choice_notes(folder.path),
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


def missing_figures_note(sites: Sequence[str], blocks: Mapping[str, Any], absent: Absences, why: str) -> list[str]:
    bad = {site: why for site, why in absent.items() if why.unusable and site not in blocks}
    missing = [site for site in sites if site not in blocks and site not in bad]
    few = [f"No figures from {', '.join(missing)}: {why}."]
    return [*(few if missing else []), *(f"The figures of {site} were left out: {bad[site]}." for site in sorted(bad))]
