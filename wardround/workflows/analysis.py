"""Runs an analysis on this machine: reads the rows, agrees on the columns, asks every site until there is an answer."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from wardround.core.analysis import Agreed, Analysis, FoundModel
from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Message, Query, Report, RoundRecord, Site
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.core.text import counted
from wardround.data.column_agreement import (
    agree_on_columns,
    columns_of_analysis,
    no_rows,
    rows_of_analysis,
    unknown_words,
)
from wardround.data.load import fingerprint_of, split_table
from wardround.data.query import ask_all
from wardround.data.table import Table
from wardround.engine import registry
from wardround.engine.analyse import Exchange, Expert, analyse, combine_answers, no_expert
from wardround.engine.checks import refuse_few
from wardround.privacy.secure_sum.wide_point import from_digits, to_digits
from wardround.queries.columns import list_some
from wardround.runs.analyses.analysis_result import (
    AnalysisResult,
    ColumnSummary,
    ContributorSummary,
    ResultChart,
    ResultTable,
)
from wardround.runs.fields import part_of
from wardround.runs.folder import RunFolder
from wardround.study import assemble
from wardround.study.analyses.analysis import (
    WHERE,
    all_settings,
    analysis_from,
    analysis_recipe,
    declared_levels,
    refuse_unfit,
)
from wardround.study.analyses.analysis_model import analysis_facts
from wardround.study.analyses.analysis_noise import (
    AnalysisNoise,
    analysis_noise,
    is_noised,
    privacy_sentence,
    with_deviation,
    with_noise,
)
from wardround.study.data_rules import refuse_dropped_rows
from wardround.study.file import Study
from wardround.study.transform_chain import transform_of
from wardround.workflows.expert import keep_functions, recorded_expert, with_judges

MOST_TOLD = 20
"""Sites whose rows a note lists."""
NO_TARGET = "(an analysis names its columns)"
"""Sources want the name of an outcome, of which an analysis has none."""


@dataclass(frozen=True)
class AnalysisPlan:
    """A study that was checked: the method, what the sites agreed on, and their rows."""

    study: Study
    recipe: Recipe
    analysis: Analysis
    agreed: Agreed
    sites: tuple[Site, ...]
    fingerprint: str
    notes: tuple[str, ...]


def check_analysis(study: Study) -> AnalysisPlan:
    """Read the rows and agree on the columns; what cannot be computed is refused before anybody is asked."""
    recipe = analysis_recipe(study)
    analysis = analysis_from(recipe)
    refuse_unfit(study, analysis)
    refuse_dropped_rows(study)
    table = table_of(study)
    refuse_few(transform_of(study, tuple(table.sites)), len(table.sites), "[[transforms]]")
    where = [f"site {name}, {table.origin}" for name in table.sites]
    noised = is_noised(study, analysis)
    tables = [
        Site(name, columns_of_analysis(frame, analysis.columns, place, noised=noised))
        for (name, frame), place in zip(table.sites.items(), where, strict=True)
    ]

    def ask(query: Query, message: Message) -> Report:
        return ask_all(query, message, tables)

    columns = agree_on_columns(
        ask,
        list(table.sites),
        analysis.columns,
        declared=declared_levels(study, analysis),
        smallest_cell=study.data.preparation.smallest_cell,
        private=noised,
        texts=analysis.texts,
    )
    agreed = Agreed(tuple(table.sites), columns)
    rows = tuple(rows_of_analysis(site, agreed) for site in tables)
    analysis.begin(agreed)
    lost: dict[str, int] = {}
    for site, own in zip(tables, rows, strict=True):
        for name, count in unknown_words(site.table, own, agreed).items():
            lost[name] = lost.get(name, 0) + count
    unknown = [f"Words of {name} that are too rare to be told count as missing: {lost[name]}." for name in lost]
    few = few_notes({site.name: len(site.table) for site in rows}, study.data.preparation.smallest_cell)
    gaps = gap_notes(analysis, agreed, rows) if study.privacy is None else []
    notes = (*table.notes, *unknown, *few, *gaps)
    return AnalysisPlan(study, recipe, analysis, agreed, rows, fingerprint_of(table), notes)


def table_of(study: Study) -> Table:
    """The sites' rows, dealt out by a partition where the study has one."""
    data = study.data
    raw = assemble.read_rows(data, NO_TARGET)
    if isinstance(raw, Federation):
        raise Refusal(
            f"the data set '{data.source}' consists of images, and an analysis reads columns",
            where="[data]",
            remedy="choose a table",
        )
    if data.partition is None:
        return raw
    partition = registry.find("partition", data.partition.name, where="[data.partition]").build(
        where="[data.partition]", **data.partition.settings
    )
    if raw.target != NO_TARGET:
        return split_table(raw, partition, study.study.seed)
    named = {name: frame.assign(**{NO_TARGET: 0}) for name, frame in raw.sites.items()}
    dealt = split_table(replace(raw, sites=named), partition, study.study.seed)
    return replace(dealt, sites={name: frame.drop(columns=NO_TARGET) for name, frame in dealt.sites.items()})


def few_notes(rows: Mapping[str, int], cell: int) -> list[str]:
    """Who contributes nothing, since its patients are fewer than its smallest cell."""
    few = [site for site, count in rows.items() if count < cell]
    return (
        [f"Fewer than {cell} rows at {list_some(few)}: nothing is told of so few, so they add nothing."] if few else []
    )


def gap_notes(analysis: Analysis, agreed: Agreed, sites: Sequence[Site]) -> list[str]:
    """How many rows of each site are looked at; the others lack a value that is needed, or are not asked about."""
    told = []
    for site in sites:
        whole = [site.table[list(analysis.columns)].notna().all(axis=1).to_numpy()]
        flags = whole if analysis.covers is None else analysis.covers(agreed, site)
        looked = [int(np.count_nonzero(one)) for one in flags]
        if looked and min(looked) < len(site.table):
            upto = f"{min(looked):,}" if min(looked) == max(looked) else f"{min(looked):,} to {max(looked):,}"
            told.append(f"{site.name} {upto} of {len(site.table):,}")
    rest = "The others lack a value that is needed, or are not asked about; nothing is filled in."
    return [f"Rows that are looked at: {'; '.join(told[:MOST_TOLD])}. {rest}"] if told else []


def run_analysis(
    plan: AnalysisPlan, folder: RunFolder, *, resume: bool = False, expert: Expert = no_expert
) -> AnalysisResult:
    """Ask until there is an answer, and write manifest, exchanges and result; gives the result."""
    study = plan.study
    manifest = folder.begin(study.model_dump(mode="json"), plan.fingerprint, kind="analysis", resume=resume)
    cell = study.data.preparation.smallest_cell
    sites = [site if len(site.table) >= cell else no_rows(plan.agreed, site.name) for site in plan.sites]
    noise = analysis_noise(study, plan.analysis, plan.agreed)
    exchange = recorded_exchange(plan, sites, folder, noise)
    report = analyse(
        plan.analysis,
        plan.agreed,
        exchange,
        lambda found: keep_model(folder, study, plan.recipe, found),
        recorded_expert(folder, expert),
    )
    report = with_judges(folder, report)
    keep_functions(folder, report)
    rows = {site.name: len(site.table) for site in plan.sites}
    result = result_of(
        study,
        plan.recipe,
        plan.agreed,
        rows,
        report,
        folder.records(),
        notes=plan.notes,
        deployed=False,
        privacy=privacy_sentence(study, noise),
    )
    folder.write_result(result)
    folder.finish(manifest)
    return result


def keep_model(folder: RunFolder, study: Study, recipe: Recipe, found: FoundModel) -> None:
    """Into the run folder, with all that a prediction needs."""
    folder.write_model(found.params, analysis_facts(study, recipe, found, rounds=len(folder.records())))


def recorded_exchange(
    plan: AnalysisPlan, sites: Sequence[Site], folder: RunFolder, noise: AnalysisNoise | None
) -> Exchange:
    """Sites on this machine, each shown its own table only; what an exchange took is written down.

    Under a secure sum the masks are left out, which cancel; the whole numbers that it adds are not.
    """
    analysis, agreed, name, study = plan.analysis, plan.agreed, plan.recipe.name, plan.study
    seed = study.study.seed if study.privacy is not None and study.privacy.seeded else None

    def exchange(number: int, asked: Message) -> Message:
        started, cpu = time.perf_counter(), time.process_time()
        if analysis.together is not None and noise is None and not study.transforms:
            combined = analysis.together(agreed, asked, sites)
            sizes = dict.fromkeys((site.name for site in sites), combined)  # an answer is as large as the sum
            taken = time.perf_counter() - started, time.process_time() - cpu
            folder.record(name, 0, record_of(number, asked, sizes, *taken))
            return combined
        answers = {site.name: analysis.ask(agreed, asked, site) for site in sites}
        if noise is not None:
            answers = {one: with_noise(told, noise, seed, one, str(number)) for one, told in answers.items()}
        combined = summed_digits(answers) if study.transforms else combine_answers(analysis, answers)
        folder.record(
            name, 0, record_of(number, asked, answers, time.perf_counter() - started, time.process_time() - cpu)
        )
        return with_deviation(combined, noise, len(answers))

    return exchange


def summed_digits(answers: Mapping[str, Message]) -> Message:
    """The sum as a secure sum opens it."""
    vectors = [to_digits(answer) for answer in answers.values()]
    total = np.stack(vectors).sum(axis=0, dtype=np.uint64)
    return from_digits(np.asarray(total), next(iter(answers.values())))


def record_of(
    number: int, asked: Message, answers: Mapping[str, Message], seconds: float, cpu_seconds: float
) -> RoundRecord:
    """An exchange as a run folder keeps it."""
    sent = max((numbers_in(answer.arrays) for answer in answers.values()), default=0)
    return RoundRecord(
        round=number,
        sites=tuple(answers),
        count=len(answers),
        rows=0,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        bytes_down=8 * numbers_in(asked.arrays) * len(answers),
        bytes_up=8 * sum(numbers_in(answer.arrays) for answer in answers.values()),
        measures={"numbers": sent},
    )


def numbers_in(arrays: Any) -> int:
    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(arrays))


def result_of(
    study: Study,
    recipe: Recipe,
    agreed: Agreed,
    rows: Mapping[str, int],
    report: Report,
    records: Sequence[Mapping[str, Any]],
    *,
    notes: Sequence[str],
    deployed: bool,
    privacy: str | None = None,
) -> AnalysisResult:
    """What is written down of an analysis that has come to its end."""
    settings = {key: value for key, value in all_settings(recipe).items() if value is not None}
    return AnalysisResult(
        study=study.study.name,
        kind="analysis",
        analysis=recipe.name,
        label=registry.find("analysis", recipe.name, where=WHERE).label,
        settings=settings,
        deployed=deployed,
        sums_only=bool(study.transforms),
        sites=tuple(ContributorSummary(name=site, rows=rows.get(site)) for site in agreed.sites),
        columns={
            name: ColumnSummary(kind=column.kind, levels=tuple(column.levels))
            for name, column in agreed.columns.items()
        },
        exchanges=len(records),
        numbers_sent=sum(int(one["measures"].get("numbers", 0)) for one in records),
        words=tuple(report["words"]),
        tables=tuple(part_of(ResultTable, one) for one in report["tables"]),
        charts=tuple(part_of(ResultChart, one) for one in report["charts"]),
        numbers=report["numbers"],
        notes=tuple(notes),
        **({} if privacy is None else {"privacy": privacy}),
    )


def exchanges_in_words(result: AnalysisResult) -> str:
    """How often sites were asked, and what left each."""
    return (
        f"{counted(result.exchanges or 0, 'exchange')} with {counted(len(result.sites), 'site')}; each sent"
        f" {result.numbers_sent or 0:,} numbers in all."
    )
