"""The rows of many simulated sites as one table: what is said of each site is computed for all of them at once.

Only where it gives what every site by itself would give: all sites hold a column in the same type, as numbers or as
words. A simulation holds all sites on one machine anyway; a real site never takes part in this.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.contracts import TaskKind
from wardround.data.table import SlicedSites
from wardround.queries.cards import MOST_CLASSES, MOST_TOLD, Card
from wardround.queries.columns import as_numbers, as_text, is_measured, kind_of

Rows = np.ndarray[Any, Any]
MANY = 64
"""Sites from which on it is worth it."""


@dataclass(frozen=True)
class PooledRows:
    """All rows, one site's after another's; those of site i are `first[i]:first[i + 1]`."""

    frame: pd.DataFrame
    first: Rows

    @property
    def sites(self) -> int:
        return len(self.first) - 1

    @cached_property
    def site(self) -> Rows:
        """The number of every row's site."""
        return np.repeat(np.arange(self.sites), np.diff(self.first))

    def add(self, values: Rows) -> Rows:
        """Sums over the rows of every site."""
        sums = np.zeros((self.sites, *values.shape[1:]), values.dtype)
        there = np.flatnonzero(np.diff(self.first))
        if len(there):
            sums[there] = np.add.reduceat(values, self.first[there], axis=0)
        return sums

    def kinds(self, column: str) -> list[str]:
        """What the column holds at every site (see `kind_of`)."""
        series = self.frame[column]
        known = self.add(series.notna().to_numpy().astype(np.int64))
        kind = "text" if not is_measured(series.dtype) else "flag" if series.dtype == bool else "number"
        return ["empty" if not number else kind for number in known.tolist()]

    def take(self, rows: Rows, first: Rows) -> "PooledRows":
        return PooledRows(self.frame.iloc[rows].reset_index(drop=True), first)

    def codes(self, column: str) -> "SiteCodes":
        return site_codes(self, column)


@dataclass(frozen=True)
class SiteCodes:
    """What `as_codes` gives of one column at every site."""

    codes: Rows
    """Of every row its text's place among those of its site; -1 where it is missing."""
    texts: Rows
    begin: Rows
    """Where the texts of each site begin, and the number of all."""

    def of(self, site: int) -> Rows:
        found: Rows = self.texts[self.begin[site] : self.begin[site + 1]]
        return found


def site_codes(pool: PooledRows, column: str) -> SiteCodes:
    """The texts of every site in the order in which they first occur there."""
    places, distinct = pd.factorize(pool.frame[column])
    texts = np.array([*as_text(pd.Series(distinct)), None], dtype=object)
    known = np.flatnonzero(places >= 0)
    pair, where, own = np.unique(pool.site[known] * len(texts) + places[known], return_index=True, return_inverse=True)
    order = np.lexsort((where, pair // len(texts)))
    begin = np.searchsorted((pair // len(texts))[order], np.arange(pool.sites + 1))
    rank = np.empty(len(pair), np.int64)
    rank[order] = np.arange(len(pair)) - begin[(pair // len(texts))[order]]
    codes = np.full(len(places), -1, np.int64)
    codes[known] = rank[own]
    return SiteCodes(codes, texts[(pair % len(texts))[order]], begin)


def pool_rows(sites: Mapping[str, pd.DataFrame]) -> PooledRows | None:
    """All columns of all sites; none where sites are few, or hold a column in different types."""
    if len(sites) < MANY:
        return None
    if isinstance(sites, SlicedSites):
        return PooledRows(sites.whole, sites.first) if is_plain(sites.whole) else None
    frames = list(sites.values())
    first = frames[0].dtypes
    names, types = first.index.tolist(), first.tolist()
    if len(set(names)) < len(names) or any(
        frame.columns.tolist() != names or frame.dtypes.tolist() != types for frame in frames
    ):
        return None
    frame = pd.concat(frames, ignore_index=True)
    return PooledRows(frame, np.cumsum([0, *map(len, frames)])) if is_plain(frame) else None


def is_plain(frame: pd.DataFrame) -> bool:
    """Whether all columns are numbers or words."""
    return all(is_measured(frame[name].dtype) or kind_of(frame[name]) == "text" for name in frame.columns)


def pooled_cards(pool: PooledRows, names: Sequence[str], target: str, task: TaskKind | None) -> list[Card]:
    """Every site's card, as `queries.cards` describes it with a smallest cell of 1."""
    columns = [str(column) for column in pool.frame.columns]
    kinds = {column: pool.kinds(column) for column in columns}
    infinite = {
        column: pool.add(np.isinf(as_numbers(pool.frame[column])).astype(np.int64)).tolist()
        for column in columns
        if is_measured(pool.frame[column].dtype) and pool.frame[column].dtype != bool
    }
    outcome = outcomes(pool, target, task, kinds[target]) if target in kinds else [(0, 0, False, ())] * pool.sites
    rows = np.diff(pool.first).tolist()
    cards = []
    for number, name in enumerate(names):
        own = {column: kinds[column][number] for column in columns}
        beyond = {column: count[number] for column, count in infinite.items() if count[number]}
        missing, distinct, whole, labels = outcome[number]
        cards.append(Card(name, rows[number], own, beyond, missing, min(distinct, MOST_CLASSES + 1), whole, labels))
    return cards


def outcomes(
    pool: PooledRows, target: str, task: TaskKind | None, kinds: Sequence[str]
) -> list[tuple[int, int, bool, tuple[str, ...]]]:
    """Of every site how many rows have no outcome, how many there are, whether all are whole numbers, and labels."""
    series, codes = pool.frame[target], pool.codes(target)
    missing = pool.add(series.isna().to_numpy().astype(np.int64)).tolist()
    broken = np.zeros(pool.sites, np.int64)
    if is_measured(series.dtype):
        values = as_numbers(series)
        with np.errstate(invalid="ignore"):
            broken = pool.add((~np.isnan(values) & (values % 1 != 0)).astype(np.int64))
    found = []
    for site, kind in enumerate(kinds):
        number = kind == "number"
        whole, distinct = number and not broken[site], int(codes.begin[site + 1] - codes.begin[site])
        most = MOST_TOLD if task is None and number else MOST_CLASSES
        distinct = 0 if task == "survival" else distinct
        tells = (
            task not in ("regression", "survival") and distinct <= most and (whole or not number or task is not None)
        )
        labels = tuple(sorted(map(str, codes.of(site)))) if tells else ()
        found.append((missing[site], distinct, bool(whole), labels))
    return found


def pooled_fingerprint(pool: PooledRows, names: Sequence[str], target: str) -> str:
    """The fingerprint of a table whose rows these are (see `fingerprint_of`)."""
    columns = list(map(str, pool.frame.columns))
    parts = [column_bytes(pool, column) for column in pool.frame.columns]
    digest, ends = hashlib.sha256(), pool.first.tolist()
    for site in sorted(range(pool.sites), key=lambda number: names[number]):
        rows = slice(ends[site], ends[site + 1])
        digest.update(json.dumps([names[site], target, rows.stop - rows.start, columns]).encode())
        for kinds, written, texts in parts:
            digest.update(kinds[site].encode())
            if kinds[site] != "empty":
                digest.update(written[rows].tobytes())
                if texts is not None:
                    digest.update(json.dumps([str(value) for value in texts.of(site)]).encode())
    return digest.hexdigest()


def column_bytes(pool: PooledRows, column: Any) -> tuple[list[str], Rows, SiteCodes | None]:
    """The kind of a column at every site, its values as they are hashed, and its texts, if it has any."""
    kinds, series = pool.kinds(column), pool.frame[column]
    if is_measured(series.dtype):
        values = as_numbers(series)
        # One bit pattern for all missing values, and for both zeros.
        return kinds, np.where(np.isnan(values), np.nan, values + 0.0).astype("<f8"), None
    codes = pool.codes(column)
    return kinds, codes.codes.astype("<i8"), codes
