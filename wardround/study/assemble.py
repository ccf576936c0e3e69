"""From the words of a study to the things they name: data, model, methods, participation."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Algorithm, Model, Site, Task
from wardround.core.errors import Refusal
from wardround.core.federation import PARTS, Federation
from wardround.data.assembly import as_names
from wardround.data.cleanup import Cleanup
from wardround.data.inspection.findings import Finding, find_in_rows
from wardround.data.load import LoadedData, load
from wardround.data.preparation import Preparation
from wardround.data.row_split import check_shares, folds, window
from wardround.data.table import Partition, Table
from wardround.engine import registry
from wardround.engine.participation import Participation, everyone, pattern, random_cohort, random_fraction
from wardround.runs.folder import digest
from wardround.study import privacy as privately
from wardround.study.data_rules import (
    OF_TABLE,
    clean_rows,
    inspect_table,
    refuse_dropped_rows,
    refuse_for_survival,
    refuse_monitor,
    refuse_unknown_units,
    refuse_user_shares,
    shares_by_role,
)
from wardround.study.file import CleaningSection, DataSection, ParticipationSection, Settings, Study
from wardround.study.methods import Method, asking_site, site_settings
from wardround.study.release_noise import statistics_noise, statistics_steps
from wardround.study.sections.votes import model_said, vote_notes


@dataclass(frozen=True)
class Setting:
    """The data of a study, split and prepared, with what a reader of its report needs to know about them."""

    federation: Federation
    fingerprint: str
    positive: int = 1
    notes: tuple[str, ...] = ()
    truth: dict[str, Any] = field(default_factory=dict)
    tables: tuple[Site, ...] = ()
    whole: LoadedData | None = None
    """All rows as they were read and checked; of the study's first split only, for the table of its patients."""
    findings: tuple[Finding, ...] = ()
    """What may be wrong with the rows."""
    preparation: Preparation | None = None
    """How columns became numbers; none where rows came as arrays."""
    order: tuple[np.ndarray[Any, Any], ...] = ()
    """Row k of a site's rows in the federation is row `order[site][k]` of its table; none for arrays."""


def load_repeat(study: Study, repeat: int) -> Setting:
    """The data as a repeat of a comparison has them: the same sites, and other test patients.

    Repeats are folds: with a fifth for testing, five of them test every patient once; the next are folds anew.
    """
    again, fold = divmod(repeat, folds(study.data.user_shares or study.data.shares))
    return load_setting(study, study.study.seed + again, fold=fold, dealt_by=study.study.seed)


def load_setting(
    study: Study,
    seed: int,
    on_rows: Callable[[Table], None] = lambda table: None,
    *,
    fold: int = 0,
    dealt_by: int | None = None,
) -> Setting:
    """Read, check, partition, split and prepare the data; a new seed splits anew.

    The rows are inspected on the first split only. `on_rows` is called with them before anything is refused.
    """
    data = study.data
    refuse_monitor(study)
    refuse_dropped_rows(study)
    refuse_user_shares(study)
    raw = read_rows(data)
    partition = None
    if data.partition is not None:
        partition = registry.find("partition", data.partition.name, where="[data.partition]").build(
            where="[data.partition]", **data.partition.settings
        )
    if isinstance(raw, Federation):
        return array_setting(raw, partition, seed, data, fold, dealt_by)
    on_rows(raw)
    refuse_unknown_units(study, (str(name) for frame in raw.sites.values() for name in frame.columns))
    voted, inspects = vote_notes(study, raw), seed == study.study.seed and not fold
    found = inspect_table(study, raw) if inspects else []
    loaded = load(
        raw,
        seed=seed,
        fold=fold,
        dealt_by=dealt_by,
        shares=tuple(data.shares),
        shares_at=shares_by_role(study),
        partition=partition,
        by=data.split_by or "",
        missing_columns=data.missing_columns,
        missing_target=data.missing_target,
        empty_sites=data.empty_sites,
        private=statistics_noise(study, seed),
        blank=study.privacy.blank if study.privacy else 0.0,
        **data.preparation.model_dump(),
    )
    found += find_in_rows(loaded) if inspects else []
    # Exact figures of a private study's patients are for whoever has the rows, not for its report.
    told = [*voted, *(one.note for one in found)] if study.privacy is None else []
    classes = loaded.federation.task.classes
    images = loaded.preparation.image is not None
    positive = classes.index(loaded.table.positive) if loaded.table.positive in classes else max(0, len(classes) - 1)
    return Setting(
        federation=loaded.federation,
        fingerprint=loaded.fingerprint,
        positive=positive,
        notes=(*loaded.notes, *told),
        truth=dict(loaded.table.truth),
        tables=() if images else training_tables(loaded),
        whole=loaded if inspects and not images else None,
        findings=tuple(found),
        preparation=None if images else loaded.preparation,
        order=loaded.order,
    )


def training_tables(loaded: LoadedData) -> tuple[Site, ...]:
    """What queries may look at: the raw training rows, so that no question ever touches a held-out patient.

    Columns that are set aside (a patient's number) are no features, and nobody is asked about them.
    """
    counts, aside = loaded.federation.counts[:, 0], list(loaded.table.aside)
    return tuple(
        Site(name, frame.iloc[order[:count]].drop(columns=aside, errors="ignore").reset_index(drop=True))
        for (name, frame), order, count in zip(loaded.table.sites.items(), loaded.order, counts, strict=True)
    )


def read_rows(data: DataSection, target: str | None = None) -> Table | Federation:
    """What the named source or data set gives; `target` is the outcome where the study names none and needs none."""
    known = {name: kind for kind in ("source", "dataset") for name in registry.names(kind)}
    known.pop("frame", None)  # takes a data frame, which no file can hold
    if data.source not in known:
        remedy = registry.suggest_name(data.source, tuple(known))
        raise Refusal(f"there is no source or data set called '{data.source}'", where="[data]", remedy=remedy)
    component = registry.find(known[data.source], data.source, where="[data]")
    said, settings = data.cleaning, data.settings
    cleanup, dropped = cleanup_of(said), settings.get("drop", ())
    # Rows are left out, and days counted, by columns that may be dropped afterwards.
    later = [column for column in as_names(dropped) if column in cleanup.references]
    if later:
        settings["drop"] = [column for column in as_names(dropped) if column not in later]
    if target is not None and known[data.source] == "source":
        settings.setdefault("target", target)
    named = known[data.source] == "dataset"
    if data.survival is not None and named:  # a data set tells no outcome of its own then
        settings = {key: value for key, value in settings.items() if key not in OF_TABLE}
    rows: Table | Federation = component.build(where="[data]", **settings)
    if named and said == CleaningSection() and data.survival is None:
        return rows  # data sets that come by name are clean
    if isinstance(rows, Federation):
        raise Refusal(
            f"the data set '{data.source}' consists of images, which have no columns to clean",
            where="[data.cleaning]",
            remedy="remove this table",
        )
    return clean_rows(rows, data, cleanup, later, named=named)


def cleanup_of(said: CleaningSection) -> Cleanup:
    return Cleanup(**said.model_dump())


def array_setting(
    federation: Federation,
    partition: Partition | None,
    seed: int,
    data: DataSection,
    fold: int = 0,
    dealt_by: int | None = None,
) -> Setting:
    """Data that come as arrays (images) need no preparation; a partition deals their rows out anew."""
    if data.user_shares is not None:
        raise Refusal("images come in parts of their own", where="[data] user_shares", remedy="remove user_shares")
    if partition is not None:
        federation = deal_rows(federation, partition, seed, tuple(data.shares), fold, dealt_by)
    sample = np.linspace(0, len(federation.x) - 1, min(1000, len(federation.x))).astype(int)
    labels = getattr(federation.y, "mark", "") or sha256(np.ascontiguousarray(federation.y).tobytes()).hexdigest()
    rows = federation.x[sample].tobytes().hex()
    fingerprint = digest([federation.x.shape, federation.counts[:1000].tolist(), rows, labels])
    return Setting(federation, fingerprint, positive=max(0, len(federation.task.classes) - 1))


def deal_rows(
    federation: Federation,
    partition: Partition,
    seed: int,
    shares: Sequence[float],
    fold: int = 0,
    dealt_by: int | None = None,
) -> Federation:
    if partition.alter is not None:
        raise Refusal(
            "this partition changes columns, and the data set consists of images",
            where="[data.partition]",
            remedy="choose a partition that only deals rows out, such as iid or by_label_dirichlet",
        )
    check_shares(shares)
    generator = np.random.default_rng((seed if dealt_by is None else dealt_by, 0xDEA1))
    rows = np.concatenate([federation.rows_of(part) for part in PARTS])
    target = pd.Series(federation.y[rows])
    positions = partition.split(pd.DataFrame(index=range(len(rows))), target, generator)
    if dealt_by not in (None, seed):
        generator = np.random.default_rng((seed, 0xDEA1))
    order, counts = [], []
    for position in positions:
        mixed = generator.permutation(rows[position])
        first, end, validation = window(len(mixed), shares, fold)
        order.append(np.roll(mixed, len(mixed) - end))
        counts.append([len(mixed) - (end - first) - validation, validation, end - first])
    index = np.concatenate(order)
    table = np.array(counts, np.int64)
    totals = table.sum(axis=1)
    return replace(
        federation,
        sites=tuple(f"site-{number + 1}" for number in range(len(positions))),
        x=federation.x[index],
        y=federation.y[index],
        first=np.cumsum(totals) - totals,
        counts=table,
        groups={name: column[index] for name, column in federation.groups.items()},
        times=None if federation.times is None else federation.times[index],
    )


def model_of(study: Study, task: Task) -> Model:
    component = registry.find("model", study.model.name, where="[model]")
    given = [p for p in inspect.signature(component.factory).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(given) > 1:
        raise Refusal(
            f"the model '{component.name}' takes a Python object, which no study file can hold",
            where="[model]",
            remedy="use it from Python, or name another model (see wardround list model)",
        )
    settings = model_said(study).settings
    registry.check_settings(component, settings, "[model]")
    return _model(component, freeze(settings), task)


def build(study: Study, method: Method, task: Task, sites: Sequence[str] = ()) -> Algorithm:
    """The method's algorithm; the same words give the same object, so that repeats share compiled programs."""
    words = words_of(study, method, task, sites)
    return _algorithm(*words) if study.privacy is None else privately.protect(study.privacy, _algorithm, words)


def private_from(recipe: Recipe) -> Algorithm:
    """The algorithm that a recipe of the kind "private" names: at a site, whose noise nobody else knows."""
    privacy, words = privately.words_in(recipe)
    return privately.protect(privacy, _algorithm, words)


def steps_of(recipe: Recipe, row: tuple[Any, Any], rows: int, sites: int) -> privately.Steps:
    """What a site of so many rows does in one round of such an algorithm: noised sums, the noise left open."""
    privacy, words = privately.words_in(recipe)
    return privately.round_steps(privacy, _algorithm, words, row, rows, sites)


def with_noise(
    study: Study, method: Method, federation: Federation, participation: Participation
) -> tuple[Study, privately.Protection | None]:
    """The study with the noise that its [privacy] needs for this method, and what its rounds will cost."""
    if study.privacy is None:
        return study, None
    # Images come as arrays, which need no preparation.
    before = statistics_steps(study) if federation.features else ()
    patients = privately.patients_of(federation)
    return plan_noise(study, method, federation.task, patients, participation, before=before)


def refuse_uncovered(study: Study, method: Method, federation: Federation) -> None:
    """Refuse, before anything is compiled, an algorithm that the study's [privacy] cannot protect."""
    assert study.privacy is not None
    privately.refuse_split_by(study)
    privately.refuse_choice(method.choice)
    patients = privately.patients_of(federation)
    words = words_of(study, method, federation.task, patients.sites)
    privately.refuse_uncovered(study.privacy, _algorithm, words, patients)


def plan_noise(
    study: Study,
    method: Method,
    task: Task,
    patients: privately.Patients,
    participation: Participation,
    quorum: int | None = None,
    before: privately.Steps = (),
) -> tuple[Study, privately.Protection | None]:
    """The same where only the numbers of patients are known, as by the coordinator of real sites.

    `before` is what the statistics of the preparation cost training patients.
    """
    privately.refuse_choice(method.choice)
    words = words_of(study, method, task, patients.sites)
    return privately.plan_noise(study, words, _algorithm, patients, participation, quorum=quorum, before=before)


def words_of(study: Study, method: Method, task: Task, sites: Sequence[str]) -> privately.Words:
    """All that the method's algorithm is made from, checked."""
    refuse_for_survival(study, method, task)
    component = registry.find("algorithm", method.algorithm, where="[algorithm]")
    settings = {**dict(method.settings), **asking_site(study, component, sites)}
    settings |= site_settings(study.deploy.sites, component, settings, sites, "[algorithm]")
    aggregator = registry.find("aggregator", study.aggregator.name, where="[aggregator]")
    # Checked before they become the key of a cache: a table where a number belongs could not even be looked up.
    registry.check_settings(component, settings, "[algorithm]")
    registry.check_settings(aggregator, study.aggregator.settings, "[aggregator]")
    return component, freeze(settings), aggregator, freeze(study.aggregator.settings), model_of(study, task)


def freeze(settings: Settings) -> tuple[tuple[str, Any], ...]:
    """Settings as something that can be looked up in a cache."""

    def frozen(value: Any) -> Any:
        return tuple(frozen(part) for part in value) if isinstance(value, list | tuple) else value

    return tuple(sorted((key, frozen(value)) for key, value in settings.items()))


@lru_cache(maxsize=64)
def _model(component: registry.Component, settings: tuple[tuple[str, Any], ...], task: Task) -> Model:
    model: Model = component.build(task, where="[model]", **dict(settings))
    return model


@lru_cache(maxsize=64)
def _algorithm(
    component: registry.Component,
    settings: tuple[tuple[str, Any], ...],
    aggregator: registry.Component,
    aggregator_settings: tuple[tuple[str, Any], ...],
    model: Model,
) -> Algorithm:
    combined = aggregator.build(where="[aggregator]", **dict(aggregator_settings))
    algorithm: Algorithm = component.build(model, combined, where="[algorithm]", **dict(settings))
    return algorithm


def participation_of(study: Study, sites: Sequence[str], seed: int) -> Participation:
    return participation_from(study.participation, sites, study.study.rounds, seed)


def participation_from(said: ParticipationSection, sites: Sequence[str], rounds: int, seed: int) -> Participation:
    if sum(value is not None for value in (said.fraction, said.cohort, said.present)) > 1:
        remedy = "keep one of fraction, cohort and present"
        raise Refusal("participation is said in two ways", where="[participation]", remedy=remedy)
    if said.fraction is not None:
        return random_fraction(len(sites), said.fraction, seed)
    if said.cohort is not None:
        return random_cohort(len(sites), said.cohort, seed)
    if said.present is not None:
        return pattern(sites, said.present, rounds)
    return everyone(len(sites))
