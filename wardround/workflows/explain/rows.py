"""Every site's training, validation and test rows as classifiers see them: columns as recorded, outcomes as 0 and 1."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.classifiers.exchange import AskedTask
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.data.load import LoadedData, load
from wardround.data.preparation import Preparation, TextColumn
from wardround.data.table import Table
from wardround.engine import registry
from wardround.queries.columns import as_text
from wardround.study.assemble import read_rows
from wardround.study.data_rules import refuse_dropped_rows
from wardround.study.file import Study

Values = np.ndarray[Any, Any]


class SitePart(NamedTuple):
    """Rows of one part: features as recorded, 1 for the positive outcome, and whose rows they are."""

    frame: pd.DataFrame
    outcome: Values
    patients: Values


class SiteParts(NamedTuple):
    """One site's rows."""

    name: str
    train: SitePart
    validation: SitePart
    test: SitePart


class ExplainRows(NamedTuple):
    """All sites' rows of one split, and what is asked of them."""

    asked: AskedTask
    sites: tuple[SiteParts, ...]
    preparation: Preparation
    """The common one, by which new tables are aligned with those of training."""
    fingerprint: str
    notes: tuple[str, ...]
    truth: dict[str, Any]


def read_table(study: Study) -> Table:
    """The rows as they are read; images and regressions have no rules in words."""
    refuse_dropped_rows(study)
    raw = read_rows(study.data)
    if isinstance(raw, Federation):
        raise Refusal(
            f"the data set '{study.data.source}' consists of images, and rules are about columns",
            where="[data]",
            remedy="choose a table",
        )
    return raw


def split_rows(study: Study, raw: Table, seed: int, *, by_patient: bool = True) -> ExplainRows:
    """Split by patient where [data] says who that is, or by row."""
    data = study.data
    partition = None
    if data.partition is not None:
        partition = registry.find("partition", data.partition.name, where="[data.partition]").build(
            where="[data.partition]", **data.partition.settings
        )
    by = data.split_by or ""
    if by and not by_patient:
        # The patient's number is no feature of a split by row either.
        raw = replace(raw, aside=tuple(dict.fromkeys((*raw.aside, by))))
    loaded = load(
        raw,
        seed=seed,
        shares=tuple(data.shares),
        partition=partition,
        by=by if by_patient else "",
        missing_columns=data.missing_columns,
        missing_target=data.missing_target,
        empty_sites=data.empty_sites,
        **data.preparation.model_dump(),
    )
    return rows_of(loaded, by if by_patient else "")


def rows_of(loaded: LoadedData, by: str) -> ExplainRows:
    task, table = loaded.federation.task, loaded.table
    if not task.binary:
        kind = "a number" if task.regression else f"one of {len(task.classes)} outcomes"
        raise Refusal(
            f"{task.target!r} is {kind}, and rules are about classifiers of two outcomes",
            where="[data] target",
            remedy='choose a target with two outcomes, or name one of several with positive = "..."',
        )
    positive = table.positive if table.positive in task.classes else task.classes[-1]
    assert positive is not None
    columns = {one.name: "category" if isinstance(one, TextColumn) else "number" for one in loaded.preparation.columns}
    asked = AskedTask(task.target, tuple(task.classes), positive, columns)
    sites = []
    for place, (name, frame) in enumerate(table.sites.items()):
        ends = np.cumsum(loaded.federation.counts[place])
        order = loaded.order[place]
        outcome = (as_text(frame[task.target]) == positive).astype(np.int64)
        who = pd.factorize(as_text(frame[by]))[0] if by else np.arange(len(frame))
        features = frame[list(columns)]
        parts = [
            SitePart(features.iloc[rows].reset_index(drop=True), outcome[rows], who[rows])
            for rows in np.split(order, ends[:-1])
        ]
        sites.append(SiteParts(name, *parts))
    return ExplainRows(asked, tuple(sites), loaded.preparation, loaded.fingerprint, loaded.notes, dict(table.truth))
