"""Conducts an analysis over real sites: the offer, the agreement on columns, exchange after exchange, the result.

The agreement is on the disk before the first exchange, and a site gives the same bytes for the same request: begun
again after a crash, the loop runs through the answers that there were and comes to the same state.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wardround.core.analysis import Agreed, AgreedColumn, Analysis
from wardround.core.components.recipes import Recipe, recipe_of, to_json
from wardround.core.contracts import Message, Query, Report, RoundRecord
from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.data.column_agreement import agree_on_columns, no_rows
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.coordinator.events import Observer, RoundDone, ignore
from wardround.deploy.coordinator.gather import Gatherer
from wardround.deploy.coordinator.secure_round import refuse_strangers, repeat_attempts, secure_round
from wardround.deploy.coordinator.studies.offers import Standing, gather_approvals
from wardround.deploy.coordinator.studies.submission import Submission, policy_of
from wardround.deploy.fault_points import point
from wardround.deploy.protocol.replies import Reply
from wardround.deploy.protocol.reply_form import largest_reply
from wardround.deploy.protocol.requests import AgreeColumns, AskAnalysis, Topic, TrainRound
from wardround.deploy.transport.contract import Transport
from wardround.engine.analyse import Exchange, analyse, combine_answers
from wardround.privacy.secure_sum.wide_point import PRECISION, entries_of, from_digits
from wardround.runs.analyses.analysis_result import AnalysisResult
from wardround.runs.folder import RunFolder
from wardround.runs.read import has_manifest
from wardround.study.analyses.analysis import analysis_from, analysis_recipe, declared_levels, refuse_unfit
from wardround.study.analyses.analysis_noise import analysis_noise, is_noised, privacy_sentence, with_deviation
from wardround.study.file import Study
from wardround.study.transform_chain import links_of
from wardround.workflows.analysis import keep_model, record_of, result_of
from wardround.workflows.expert import FolderExpert, keep_functions, recorded_expert, with_judges

AGREEMENT = "columns.json"
HUGE_SUM = 1e100
"""What no sum over patients is; beyond, sums and squares of a few sites overflow."""


@dataclass(frozen=True)
class ColumnAgreement:
    """What the sites agreed on, and how many rows each said it has."""

    agreed: Agreed
    rows: Mapping[str, int]
    cells: Mapping[str, int]

    @property
    def few(self) -> list[str]:
        """Sites that have fewer rows than their smallest cell and add nothing."""
        return [site for site, rows in self.rows.items() if not rows]


def refuse_analysis(submission: Submission, transport: Transport) -> tuple[Recipe, Analysis]:
    """What cannot be done over real sites, told before anything is offered; gives the analysis."""
    study = submission.study
    recipe = analysis_recipe(study)
    analysis = analysis_from(recipe)
    refuse_unfit(study, analysis)
    refuse_simulated(study)
    if study.transforms:
        refuse_strangers(submission.sites, transport.certificates())
    return recipe, analysis


def conduct_analysis(
    submission: Submission,
    folder: RunFolder,
    transport: Transport,
    observer: Observer = ignore,
    standing: Standing | None = None,
) -> AnalysisResult:
    """Offer the study, wait for approval, agree on columns, ask until there is an answer; gives the result."""
    study = submission.study
    recipe, analysis = refuse_analysis(submission, transport)
    engine = Deployment(
        sites=tuple(sorted(submission.sites)),
        gatherer=Gatherer(submission.id, transport, policy_of(submission), observer),
        seed=study.study.seed,
        transforms=links_of(study, sorted(submission.sites)),
        sums=folder.path / "sums",
    )
    resume = has_manifest(folder.path)
    manifest = folder.begin(study.model_dump(mode="json"), submission.id, kind="analysis", resume=resume)
    began = (folder.path / AGREEMENT).exists()
    gather_approvals(engine.gatherer, submission, standing, began=began)
    point("coordinator.offer.approved")
    agreement = settle_columns(engine, study, analysis, folder.path)
    engine.introductions = [question_of(agreement.agreed)]
    records = ExchangeRecords(recipe.name, analysis.most, folder, observer)
    noise = analysis_noise(study, analysis, agreement.agreed)
    ask_sites = exchange_over(engine, analysis, recipe, agreement.agreed, records)

    def exchange(number: int, asked: Message) -> Message:
        return with_deviation(ask_sites(number, asked), noise, len(engine.sites))

    report = analyse(
        analysis,
        agreement.agreed,
        exchange,
        lambda found: keep_model(folder, study, recipe, found),
        recorded_expert(folder, FolderExpert(folder.path, transport.stopped.is_set)),
    )
    report = with_judges(folder, report)
    keep_functions(folder, report)
    result = result_of(
        study,
        recipe,
        agreement.agreed,
        agreement.rows,
        report,
        folder.records(),
        notes=notes_of(agreement),
        deployed=True,
        privacy=privacy_sentence(study, noise),
    )
    point("coordinator.result.before_save")
    folder.write_result(result)
    folder.finish(manifest, sites=list(engine.sites))
    point("coordinator.result.saved")
    return result


def refuse_simulated(study: Study) -> None:
    """What only a simulation can do."""
    if study.data.partition is not None:
        raise Refusal(
            "real sites bring their own rows, so there is nothing to partition",
            where="[data.partition]",
            remedy="remove this table; it is for simulation only",
        )
    if study.deploy.quorum is not None:
        raise Refusal(
            "an analysis is the sum over all of its sites, so all of them must answer",
            where="[deploy] quorum",
            remedy="remove it, and name the sites that take part in [deploy] sites",
        )


def settle_columns(engine: Deployment, study: Study, analysis: Analysis, folder: Path) -> ColumnAgreement:
    """Ask the sites what their columns hold and tell them what was agreed; made once, then read from the disk."""
    path = folder / AGREEMENT
    if path.exists():
        return agreement_from_json(json.loads(path.read_bytes()))

    def ask(query: Query, message: Message) -> Report:
        return engine.query(query, message, on="raw")

    columns = agree_on_columns(
        ask,
        engine.sites,
        analysis.columns,
        declared=declared_levels(study, analysis),
        smallest_cell=study.data.preparation.smallest_cell,
        private=is_noised(study, analysis),
        texts=analysis.texts,
    )
    agreed = Agreed(engine.sites, columns)
    analysis.begin(agreed)  # what cannot be computed is refused before any site is asked for sums
    replies = engine.ask_members(question_of(agreed))
    agreement = ColumnAgreement(
        agreed,
        {site: int(np.asarray(replies[site].message.arrays["rows"])) for site in engine.sites},
        {site: int(replies[site].header.get("cell", 1)) for site in engine.sites},
    )
    point("coordinator.agreement.before_save")
    write_whole(path, json.dumps(agreement_to_json(agreement)).encode())
    point("coordinator.agreement.saved")
    return agreement


def question_of(agreed: Agreed) -> AgreeColumns:
    kinds: dict[str, str] = {name: one.kind for name, one in agreed.columns.items()}
    levels = {name: list(one.levels) for name, one in agreed.columns.items() if one.levels}
    return AgreeColumns(kinds, levels, list(agreed.sites))


def agreement_to_json(agreement: ColumnAgreement) -> dict[str, Any]:
    words = question_of(agreement.agreed).words()
    return {**words, "told": dict(agreement.rows), "cells": dict(agreement.cells)}


def agreement_from_json(words: Mapping[str, Any]) -> ColumnAgreement:
    columns = {name: AgreedColumn(kind, tuple(words["levels"].get(name, ()))) for name, kind in words["kinds"].items()}
    return ColumnAgreement(Agreed(tuple(words["numbers"]), columns), words["told"], words["cells"])


def notes_of(agreement: ColumnAgreement) -> list[str]:
    return [
        f"{site} has fewer than {agreement.cells.get(site, 1)} rows, its smallest cell, and adds nothing."
        for site in agreement.few
    ]


@dataclass(frozen=True)
class ExchangeRecords:
    """Writes down what an exchange took, once, and tells whoever watches."""

    name: str
    most: int
    folder: RunFolder
    observer: Observer

    def add(self, record: RoundRecord) -> None:
        self.folder.record(self.name, 0, record)
        self.folder.sync_rounds()
        point("coordinator.round.recorded")
        self.observer(RoundDone(record.round, self.most, record.sites, record.measures))


def exchange_over(
    engine: Deployment, analysis: Analysis, recipe: Recipe, agreed: Agreed, records: ExchangeRecords
) -> Exchange:
    """Real sites: every one of them answers, in arrays of the shapes that the question has for no patients."""

    def exchange(number: int, asked: Message) -> Message:
        started, cpu = time.perf_counter(), time.process_time()
        pattern = pattern_of(analysis, agreed, asked)
        sizes = [int(leaf.nbytes) for leaf in jax.tree.leaves(pattern)]
        point("coordinator.round.before_asking")
        if engine.transform.sum_only:
            method = TrainRound(to_json(recipe), [to_json(recipe_of(one)) for one in engine.transforms], engine.seed)
            one = secure_round(engine, method, number, asked, entries_of(pattern), PRECISION)
            found = repeat_attempts(engine, one, engine.sites, lambda here: {})
            took = time.perf_counter() - started, time.process_time() - cpu
            record = record_of(number, asked, dict.fromkeys(engine.sites, pattern), *took)
            records.add(replace(record, bytes_up=sum(found.bytes_up.values())))
            return from_digits(found.total, pattern)

        def check(reply: Reply) -> str | None:
            return sums_problem(reply, pattern)

        replies = engine.gatherer.ask_everyone(
            engine.sites,
            AskAnalysis(to_json(recipe)),
            asked,
            check,
            number=number,
            most=largest_reply(Topic.ANALYSIS, sizes),
        )
        point("coordinator.round.all_answered")
        answers = {site: replies[site].message for site in engine.sites}
        combined = combine_answers(analysis, answers)
        took = time.perf_counter() - started, time.process_time() - cpu
        records.add(record_of(number, asked, answers, *took))
        return combined

    return exchange


def pattern_of(analysis: Analysis, agreed: Agreed, asked: Message) -> Message:
    """The answer of a site without patients: names, types and shapes of all others."""
    found = analysis.ask(agreed, asked, no_rows(agreed))
    arrays = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), found.arrays)
    return Message(arrays)


def sums_problem(reply: Reply, pattern: Message) -> str | None:
    """Why an answer cannot be added up: other arrays than asked for, or numbers that are not finite."""
    given, found = jax.tree.flatten(reply.message.arrays)
    if str(found) != str(jax.tree.structure(pattern.arrays)):
        return "its answer does not have the arrays of the analysis"
    for got, want in zip(given, jax.tree.leaves(pattern.arrays), strict=True):
        array = np.asarray(got)
        if array.shape != want.shape or array.dtype != np.float64:
            return f"its answer has an array of shape {array.shape} where {want.shape} was expected"
        if not np.isfinite(array).all():
            return "its answer is not finite"
        if array.size and np.abs(array).max() > HUGE_SUM:
            return f"its answer has numbers beyond {HUGE_SUM:g}"
    return None
