"""Who the patients of a result are: from rows read to rows used, and a table that describes them ("table 1").

The table is of all parts together and of the columns as they were read, before gaps are filled. Counts below the
study's smallest cell are not shown, nor others from which they could be worked out. Under [privacy] there is only
how many rows were used: every other number would have to be noised and charged. Of real sites see
`deploy/coordinator/clinical`, and each site's own report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from wardround.data.survival.intervals import label_names
from wardround.data.table import Table
from wardround.evaluate.clinical.cell_suppression import hidden_cells
from wardround.queries.columns import as_numbers, as_text, kind_of
from wardround.runs.clinical.patient_table import PatientCell, PatientColumn, PatientFlow, PatientTable, RowFlow
from wardround.study.assemble import Setting
from wardround.study.file import Study

MOST_SITES = 12
"""Sites up to which each has a column of its own in the table."""
MOST_FLOWS = 1000
"""Sites up to which each has a flow of its own."""
MOST_COLUMNS = 60
MOST_LEVELS = 8
MOST_CODES = 5
"""Different whole numbers up to which a column is counted like categories."""
OTHER = "other"
Numbers = np.ndarray[Any, Any]
Frames = Mapping[str, pd.DataFrame]


def patients_of(study: Study, setting: Setting) -> dict[str, Any]:
    """The keys of a result that tell of the patients, as far as they are known."""
    smallest = study.data.preparation.smallest_cell
    if study.privacy is not None:
        return {"flow": row_flow(replace(setting, whole=None))}
    told: dict[str, Any] = {"flow": row_flow(setting, smallest)}
    if setting.whole is not None:
        classes = setting.whole.federation.task.classes
        told["patient_table"] = patient_table(setting.whole.table, classes, smallest)
    return told


def row_flow(setting: Setting, smallest: int = 1) -> PatientFlow:
    """Rows read, without outcome, left out and used; where few were left out, only the rows used are told."""
    sites, used = setting.federation.sites, setting.federation.counts.sum(axis=1)
    read = dict(setting.whole.rows_read) if setting.whole is not None else {}
    few = range(len(sites)) if len(sites) <= MOST_FLOWS else range(0)
    if len(read) != len(sites) or set(read) != set(sites):  # dealt out anew, or not known
        counts = [sum(one) for one in zip(*read.values(), strict=True)]
        return PatientFlow(
            all=flow_of(counts, int(used.sum()), smallest),
            sites={sites[at]: RowFlow(used=int(used[at])) for at in few},
        )
    flows = {sites[at]: flow_of(read[sites[at]], int(used[at]), smallest) for at in range(len(sites))}
    away = [name for name, flow in flows.items() if flow.read is None]
    counts = [sum(one) for one in zip(*read.values(), strict=True)]
    total = flow_of(counts, int(used.sum()), smallest)
    if away and not is_protected(total, [flow for flow in flows.values() if flow.read is not None], away, smallest):
        total = RowFlow(used=total.used)
    return PatientFlow(all=total, sites={sites[at]: flows[sites[at]] for at in few})


def flow_of(read: Sequence[int], used: int, smallest: int) -> RowFlow:
    if not read:
        return RowFlow(used=used)
    rows, unknown = read
    left_out = rows - unknown - used
    if any(0 < count < smallest for count in (unknown, left_out)):
        return RowFlow(used=used)
    return RowFlow(read=rows, without_outcome=unknown, left_out=left_out, used=used)


def is_protected(total: RowFlow, told: Sequence[RowFlow], away: Sequence[str], smallest: int) -> bool:
    """Whether the total, less what single sites tell, leaves enough rows of several sites."""
    for name in ("without_outcome", "left_out"):
        rest = (getattr(total, name) or 0) - sum(getattr(flow, name) or 0 for flow in told)
        if 0 < rest < smallest:
            return False
    return len(away) > 1


def patient_table(table: Table, classes: Sequence[str], smallest: int) -> PatientTable:
    """Of all rows of the table; `classes` are the labels of the outcome, in their order. Pixels are no column of it."""
    frames = table.sites
    shown = frames if len(frames) <= MOST_SITES else {}
    classes = label_names(table.horizons) if table.horizons else classes
    hidden = [name for name in table.aside if name not in table.groups]
    first = next(iter(frames.values()))
    names = [table.target, *(name for name in first.columns if name != table.target and name not in hidden)]
    names = [name for name in names if not any(kind_of(frame[name]) == "image" for frame in frames.values())]
    columns = [
        _column(name, frames, shown, smallest, outcome=name == table.target, labels=classes)
        for name in names[:MOST_COLUMNS]
    ]
    return PatientTable(
        smallest_cell=smallest,
        patients=sum(len(frame) for frame in frames.values()),
        sites={name: len(frame) for name, frame in shown.items()},
        sites_left_out=len(frames) - len(shown),
        columns=tuple(columns),
        columns_left_out=max(0, len(names) - MOST_COLUMNS),
    )


def _column(
    name: str, frames: Frames, shown: Frames, smallest: int, *, outcome: bool, labels: Sequence[str]
) -> PatientColumn:
    values = {site: frame[name] for site, frame in frames.items()}
    kinds = {kind_of(series) for series in values.values()} - {"empty"}
    if kinds == {"number"} and not (outcome and labels) and not is_code(values.values()):
        return _number_column(name, values, shown, smallest, outcome=outcome)
    return _text_column(name, values, shown, smallest, outcome=outcome, labels=labels if outcome else ())


def is_code(columns: Iterable["pd.Series[Any]"]) -> bool:
    """Whether a few whole numbers are all there is, of which a median would say nothing."""
    values = np.unique(np.concatenate([pd.unique(as_numbers(series)) for series in columns]))
    known = values[np.isfinite(values)]
    return len(known) <= MOST_CODES and bool((known == np.floor(known)).all())


def _number_column(
    name: str, values: Mapping[str, "pd.Series[Any]"], shown: Frames, smallest: int, *, outcome: bool
) -> PatientColumn:
    numbers = {site: as_numbers(series) for site, series in values.items()}
    known = {site: one[np.isfinite(one)] for site, one in numbers.items()}
    missing = np.array([[len(numbers[site]) - len(known[site]) for site in shown]], np.int64).reshape(1, -1)
    visible = ~hidden_cells(missing, smallest) if missing.size else missing
    gone = sum(len(one) for one in numbers.values()) - sum(len(one) for one in known.values())

    def cell(of: Numbers, count: int | None) -> PatientCell:
        if len(of) < max(1, smallest):
            return PatientCell(missing=count)
        low, median, high = (float(one) for one in np.percentile(of, (25, 50, 75)))
        return PatientCell(missing=count, median=median, low=low, high=high)

    return PatientColumn(
        name=name,
        kind="number",
        outcome=outcome,
        all=cell(np.concatenate(list(known.values())), public(gone, smallest)),
        sites={
            site: cell(known[site], int(missing[0, at]) if visible[0, at] else None) for at, site in enumerate(shown)
        },
    )


def in_order(counts: "pd.Series[Any]") -> list[str]:
    """Numbers rising, else the most frequent first, and by name where they are equally frequent."""
    names = [str(name) for name in counts.index]
    if all(name.lstrip("-").isdigit() for name in names):
        return sorted(names, key=int)
    return sorted(names, key=lambda name: (-int(counts[name]), name))


def public(count: int, smallest: int) -> int | None:
    return count if count == 0 or count >= smallest else None


def _text_column(
    name: str,
    values: Mapping[str, "pd.Series[Any]"],
    shown: Frames,
    smallest: int,
    *,
    outcome: bool,
    labels: Sequence[str],
) -> PatientColumn:
    counted = {site: pd.Series(as_text(series), dtype=object).value_counts() for site, series in values.items()}
    together = pd.concat(list(counted.values())).groupby(level=0, sort=True).sum()
    levels = [str(level) for level in labels or in_order(together)]
    kept = levels if len(levels) <= MOST_LEVELS else levels[: MOST_LEVELS - 1]
    further = len(levels) - len(kept)

    def counts_of(count: "pd.Series[Any]", rows: int) -> list[int]:
        own = [int(count.get(level, 0)) for level in kept]
        known = int(count.sum())
        return [*own, *([known - sum(own)] if further else []), rows - known]

    whole = counts_of(together, sum(len(series) for series in values.values()))
    by_site = np.array([counts_of(counted[site], len(values[site])) for site in shown], np.int64)
    table = by_site.reshape(len(shown), len(whole))
    total_gone = hidden_cells(np.array([whole]), smallest)[0]
    gone = hidden_cells(table, smallest, total_gone) if table.size else table

    def cell(counts: Sequence[int], hidden: Numbers) -> PatientCell:
        told = [None if away else int(count) for count, away in zip(counts, hidden, strict=True)]
        return PatientCell(missing=told[-1], counts=tuple(told[:-1]))

    return PatientColumn(
        name=name,
        kind="text",
        outcome=outcome,
        levels=(*kept, *([OTHER] if further else [])),
        **({"further_levels": further} if further else {}),
        all=cell(whole, total_gone),
        sites={site: cell(table[at].tolist(), gone[at]) for at, site in enumerate(shown)},
    )
