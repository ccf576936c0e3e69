"""From raw tables to a federation ready to train: partition, check, split, prepare.

Every statistic that leaves a site is asked for through a query; rows are only ever put side by side because the
simulation holds all sites on one machine.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count
from wardround.core.contracts import Message, Query, Report, Site, Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation, assemble, task_of
from wardround.core.text import counted
from wardround.data.noised_preparation import Categories, Ranges, StatisticsNoise
from wardround.data.pooled.rows import PooledRows, pool_rows, pooled_cards, pooled_fingerprint
from wardround.data.pooled.statistics import pooled_ask
from wardround.data.preparation import Preparation
from wardround.data.preparation_fit import Impute, Scale, check_choice, fit_preparation
from wardround.data.query import Ask, ask_all
from wardround.data.row_split import check_shares, generator
from wardround.data.schema import (
    EmptySites,
    MissingColumns,
    MissingTarget,
    Schema,
    against_the_rest,
    agree,
    question_note,
)
from wardround.data.site_rows import (
    SiteRows,
    encode_labels,
    frame_for_schema,
    known_rows,
    one_against_the_rest,
    split_site_rows,
    strata_of,
)
from wardround.data.survival.follow_up import horizon_notes
from wardround.data.table import Partition, SlicedSites, Table
from wardround.queries.cards import cards, cards_of
from wardround.queries.columns import as_codes, as_numbers, as_text, kind_of, suggest_name

Rows = np.ndarray[Any, Any]

__all__ = ["LoadedData", "ask_all", "fingerprint_of", "load"]


@dataclass(frozen=True)
class LoadedData:
    """A federation and all that is known about how it came to be.

    `table` holds the raw rows after partition and checks, its task and positive label settled; row `order[i][k]` of
    site i's frame is the k-th of its rows in the federation. `fingerprint` is over the raw rows as they were given.
    """

    federation: Federation
    table: Table
    preparation: Preparation
    notes: tuple[str, ...]
    fingerprint: str
    order: tuple[Rows, ...]
    rows_read: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of every site as it was given, before a partition: its rows, and how many of them have no known target."""


def load(
    table: Table,
    *,
    seed: int,
    fold: int = 0,
    dealt_by: int | None = None,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    shares_at: Mapping[str, Sequence[float]] = MappingProxyType({}),
    impute: Impute = "median",
    scale: Scale = "standard",
    indicators: bool = False,
    partition: Partition | None = None,
    by: str = "",
    missing_columns: MissingColumns = "refuse",
    missing_target: MissingTarget = "refuse",
    empty_sites: EmptySites = "refuse",
    most_categories: Count = 200,
    smallest_cell: Count = 1,
    ranges: Ranges = MappingProxyType({}),
    categories: Categories = MappingProxyType({}),
    private: StatisticsNoise | None = None,
    blank: float = 0.0,
) -> LoadedData:
    """The table's sites with their rows split and prepared; `by` names the patient, who is then in one part only.

    A `fold` of the split has other test patients; `dealt_by` is the seed of the partition, by default the split's.
    `shares_at` are those of single sites, by name.

    Of a `private` study neither the split nor the preparation tells anything exact about a patient; rows whose target
    is unknown are blank ones there (see `frame_for_schema`).
    """
    for each in (shares, *shares_at.values()):
        check_shares(each, trains=not table.is_unlabelled)
    check_choice("missing_columns", missing_columns, ("refuse", "fill"))
    check_choice("missing_target", missing_target, ("refuse", "drop"))
    check_choice("empty_sites", empty_sites, ("refuse", "keep"))
    raw = pool_rows(table.sites)
    fingerprint, rows_read = fingerprint_of(table, raw), count_rows(table, raw)
    notes: list[str] = []
    if by:
        table = set_patient(table, by)
    policy: dict[str, Any] = {
        "missing_columns": missing_columns,
        "missing_target": missing_target,
        "smallest_cell": smallest_cell,
        "private": private is not None,
    }
    if partition is not None:
        agree_schema(table, raw, empty_sites="keep", **policy)
        if len(table.sites) > 1:
            notes.append(f"The rows of {len(table.sites)} sites were pooled and dealt out anew by the partition.")
        table = split_table(settle_targets(table), partition, seed if dealt_by is None else dealt_by)
        raw = pool_rows(table.sites)
    schema = agree_schema(table, raw, empty_sites=empty_sites, **policy)
    notes += [*table.notes, *schema.notes]
    if private is not None and not table.is_unlabelled:
        notes += remark_on_blank_rows(table)
    table = apply_schema(table, schema, raw, private=private is not None, blank=blank)
    if by:
        notes += warn_of_shared_patients(table, by)

    exact = private is None and smallest_cell == 1
    pool = pool_rows(table.sites) if exact else None
    strata = outcome_strata(pool, table) if pool is not None and schema.classes else None
    sites = [
        split_site_rows(
            name,
            frame,
            table,
            schema,
            seed=seed,
            shares=shares_at.get(name, shares),
            by=by,
            stratify=private is None,
            fold=fold,
            strata=None if strata is None else strata[number],
        )
        for number, (name, frame) in enumerate(table.sites.items())
    ]
    preparation, remarks = fit_preparation(
        ask_training_rows(sites, pool),
        schema.kinds,
        impute=impute,
        scale=scale,
        indicators=indicators,
        most_categories=most_categories,
        smallest_cell=smallest_cell,
        ranges=ranges,
        categories=categories,
        private=private,
    )
    notes += remarks

    task = task_of(schema.task, preparation.shape, schema.classes, table.target, schema.horizons)
    order = tuple(site.order for site in sites)
    groups = {group: group_values(table, group, order) for group in table.groups}
    times = np.concatenate([site.times(site.order) for site in sites]) if table.time else None
    federation = replace(prepare_sites(sites, preparation, pool, task, table.origin), groups=groups, times=times)
    if times is not None and exact:  # else it would tell of single patients
        notes += horizon_notes(times, federation.y, task.horizons)
    return LoadedData(federation, table, preparation, tuple(notes), fingerprint, order, rows_read)


def outcome_strata(pool: PooledRows, table: Table) -> list[Rows]:
    """For every site the outcomes of its rows as numbers in the order of the texts, by which they are split."""
    ranks = np.unique(strata_of(pool.frame[table.target], table.horizons), return_inverse=True)[1]
    return np.split(ranks, pool.first[1:-1])


def count_rows(table: Table, pool: PooledRows | None = None) -> dict[str, tuple[int, int]]:
    """Rows of every site, and how many of them have no known target."""
    target = table.target
    if pool is not None and target in pool.frame.columns:
        missing = pool.add(pool.frame[target].isna().to_numpy().astype(np.int64)).tolist()
        rows = np.diff(pool.first).tolist()
        return {name: (table.read.get(name, rows[n]), missing[n]) for n, name in enumerate(table.sites)}
    return {
        name: (table.read.get(name, len(frame)), int(frame[target].isna().sum()) if target in frame.columns else 0)
        for name, frame in table.sites.items()
    }


def ask_training_rows(sites: Sequence[SiteRows], pool: PooledRows | None) -> Ask:
    """How the training rows are asked about: site by site, or where all lie in one table at once."""
    if pool is None:
        return local_ask([site.training for site in sites])
    rows = np.concatenate([begin + site.parts[0] for begin, site in zip(pool.first, sites, strict=False)])
    first = np.cumsum([0, *(len(site.parts[0]) for site in sites)])
    one_by_one: list[Ask] = []

    def ask(query: Query, message: Message) -> Report:
        one_by_one.extend([local_ask([site.training for site in sites])] if not one_by_one else [])
        return one_by_one[0](query, message)

    return pooled_ask(pool.take(rows, first), ask)


def prepare_sites(
    sites: Sequence[SiteRows], preparation: Preparation, pool: PooledRows | None, task: Task, origin: str
) -> Federation:
    """All sites' rows as numbers, site after site and part after part."""
    features = preparation.features
    if preparation.image is not None:  # site by site: all of them at once might not fit into the memory
        pool = None
    if pool is not None:
        try:
            x = preparation.apply(pool.frame)
        except Refusal:  # a site by itself can say which one it is
            pool = None
    if pool is None:
        pieces = [(site.name, site.prepare(preparation, f"site {site.name}, {origin}")) for site in sites]
        return assemble(pieces, task, features)
    outcome = pool.frame[sites[0].target]
    y = encode_labels(outcome, sites[0].schema.labels) if task.classes else as_numbers(outcome)
    rows = np.concatenate([begin + site.order for begin, site in zip(pool.first, sites, strict=False)])
    counts = np.array([[len(part) for part in site.parts] for site in sites], np.int64)
    return Federation(
        sites=tuple(site.name for site in sites),
        x=x[rows],
        y=np.ascontiguousarray(y[rows], task.label_type),
        first=np.cumsum(counts.sum(axis=1)) - counts.sum(axis=1),
        counts=counts,
        task=task,
        features=features,
    )


def local_ask(sites: Sequence[Site]) -> Ask:
    def ask(query: Query, message: Message) -> Report:
        return ask_all(query, message, sites)

    return ask


def agree_schema(
    table: Table, pool: PooledRows | None, *, smallest_cell: int, private: bool = False, **policy: Any
) -> Schema:
    if pool is not None and smallest_cell == 1 and not private:
        return agree(pooled_cards(pool, list(table.sites), table.target, table.task), table, **policy)
    sites = [Site(name, frame) for name, frame in table.sites.items()]
    query = cards(target=table.target, task=table.task, smallest_cell=smallest_cell, private=private)
    return agree(cards_of(ask_all(query, Message({}), sites)) if sites else [], table, **policy)


def set_patient(table: Table, by: str) -> Table:
    """The patient's identifier is no feature, and every row must have one."""
    for name, frame in table.sites.items():
        where = f"site {name}, {table.origin}"
        if by not in frame.columns:
            raise Refusal(
                f"column {by!r}, which should name the patient, is missing; {suggest_name(by, frame.columns)}",
                where=where,
                remedy="correct the name; the column must not be in drop, it is kept from the model anyway",
            )
        nameless = int(frame[by].isna().sum())
        if nameless:
            raise Refusal(
                f"{nameless} rows do not say which patient they belong to (column {by!r})",
                where=where,
                remedy="fill the column in, or remove these rows",
            )
    return replace(table, aside=tuple(dict.fromkeys((*table.aside, by))))


def settle_targets(table: Table) -> Table:
    """Before rows are dealt out anew: without unknown targets, and with the labels of the question that is asked."""
    if table.is_unlabelled:
        return table
    known = {name: known_rows(frame, table.target) for name, frame in table.sites.items()}
    labels = {label for frame in known.values() for label in as_text(frame[table.target])} if table.positive else set()
    if table.positive is None or len(labels) <= 2 or table.horizons:
        return replace(table, sites=known)
    asked = {
        name: frame.assign(**{table.target: one_against_the_rest(frame[table.target], table.positive)})
        for name, frame in known.items()
    }
    note = question_note(table.target, table.positive, labels - {table.positive})
    return replace(table, sites=asked, notes=(*table.notes, note))


def remark_on_blank_rows(table: Table) -> list[str]:
    unknown = sum(int(frame[table.target].isna().sum()) for frame in table.sites.values())
    if not unknown:
        return []
    return [f"{unknown} rows without a known {table.target} count as blank rows, since the study is private."]


def apply_schema(table: Table, schema: Schema, pool: PooledRows | None, *, private: bool, blank: float = 0.0) -> Table:
    """Every site with the same columns, task and positive label as they will be used."""
    positive = table.positive
    if positive is None and schema.task == "classification" and len(schema.classes) == 2:
        positive = schema.classes[-1]
    settled = pool is not None and not private and is_settled(pool, table, schema)
    sites = (
        table.sites
        if settled
        else {
            name: frame_for_schema(frame, table, schema, private=private, blank=blank)
            for name, frame in table.sites.items()
        }
    )
    return replace(table, sites=sites, task=schema.task, positive=positive)


def is_settled(pool: PooledRows, table: Table, schema: Schema) -> bool:
    """Whether every site's rows are already as the schema wants them: its columns in order, every outcome a class."""
    outcome = pool.frame[table.target]
    columns = list(dict.fromkeys((*schema.kinds, *table.groups, *table.aside, table.target)))
    if list(pool.frame.columns) != columns or outcome.isna().any():
        return False
    rest = table.positive is not None and schema.classes == against_the_rest(table.positive)
    return not rest and (not schema.classes or set(as_codes(outcome)[1].astype(str)) <= set(schema.labels))


def split_table(table: Table, partition: Partition, seed: int) -> Table:
    """One pool as several sites, named site-1, site-2, ..."""
    pool = pd.concat([f for f in table.sites.values() if len(f)], ignore_index=True)
    features, target = pool.drop(columns=table.target), pool[table.target]
    positions = partition.split(features, target, generator(seed, "partition"))
    taken = np.concatenate(positions) if positions else np.empty(0, np.int64)
    if len(np.unique(taken)) != len(taken):
        raise Refusal("the partition put a row at two sites", remedy="use a partition that deals every row out once")
    if partition.alter is None:
        names = [f"site-{index + 1}" for index in range(len(positions))]
        first = np.cumsum([0, *map(len, positions)])
        whole = features.assign(**{table.target: target}).iloc[taken.astype(np.int64)]
        return replace(table, sites=SlicedSites(whole, names, first))
    sites = {}
    for index, rows in enumerate(positions):
        x, y = features.iloc[rows].reset_index(drop=True), target.iloc[rows].reset_index(drop=True)
        if partition.alter is not None:
            x, y = partition.alter(index, len(positions), x, y, generator(seed, "alter", str(index)))
        sites[f"site-{index + 1}"] = x.assign(**{table.target: y})
    return replace(table, sites=sites)


def warn_of_shared_patients(table: Table, by: str) -> list[str]:
    homes = pd.concat([pd.Series(frame[by].astype(str).unique()) for frame in table.sites.values()])
    shared = int((homes.value_counts() > 1).sum())
    if not shared:
        return []
    return [
        f"{counted(shared, 'patient')} ({by}) {'occurs' if shared == 1 else 'occur'} at more than one site, so they may"
        " be trained on at one and tested at another."
    ]


def group_values(table: Table, group: str, order: Sequence[Rows]) -> Rows:
    """The group of every row of the federation as text; an unknown one is "missing"."""
    values = [as_text(frame[group])[rows] for frame, rows in zip(table.sites.values(), order, strict=True)]
    joined = np.concatenate(values)
    return np.array(["missing" if value is None else value for value in joined], dtype=str)


def fingerprint_of(table: Table, pool: PooledRows | None = None) -> str:
    """SHA-256 over names and values of all sites; it does not depend on how pandas stores them."""
    if pool is not None:
        return pooled_fingerprint(pool, list(table.sites), table.target)
    digest = hashlib.sha256()
    for name in sorted(table.sites):
        frame = table.sites[name]
        digest.update(json.dumps([name, table.target, len(frame), list(map(str, frame.columns))]).encode())
        for column in frame.columns:
            series = frame[column]
            kind = kind_of(series)
            digest.update(kind.encode())
            if kind in ("number", "flag"):
                values = as_numbers(series)
                # One bit pattern for all missing values, and for both zeros.
                digest.update(np.where(np.isnan(values), np.nan, values + 0.0).astype("<f8").tobytes())
            elif kind == "image":
                for one in series.dropna():
                    digest.update(one.pixels.tobytes())
            elif kind != "empty":
                codes, distinct = as_codes(series)
                digest.update(codes.astype("<i8").tobytes())
                digest.update(json.dumps([str(value) for value in distinct]).encode())
    return digest.hexdigest()
