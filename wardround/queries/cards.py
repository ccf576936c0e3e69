"""What each site's table holds, on a card: names and kinds of columns, counts, labels of the outcome, no row."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count
from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site, TaskKind
from wardround.queries.cells import in_cells
from wardround.queries.columns import as_codes, as_numbers, kind_of, picture_kind

MOST_TOLD = 20
"""Different whole numbers up to which a target is taken for classes without being told so."""
MOST_CLASSES = 100
TERMS = Terms(
    "names and kinds of the columns, the number of rows, the labels of the outcome",
    lambda of: 2 * of.columns + MOST_CLASSES + 4,
    rows="table",
)


@dataclass(frozen=True)
class Card:
    """What a site tells about its table. `labels` are empty where the target is a quantity or has too many values."""

    site: str
    rows: int
    kinds: dict[str, str]
    infinite: dict[str, int]
    missing_target: int
    distinct: int
    whole: bool
    labels: tuple[str, ...]


def describe(
    name: str,
    frame: pd.DataFrame,
    target: str,
    task: TaskKind | None = None,
    smallest_cell: int = 1,
    private: bool = False,
    patients: Any = None,
) -> Card:
    """A site's card; labels are listed only as far as they are needed to tell the classes.

    Counts are told in whole cells. A column known for fewer patients than a cell counts as empty, a rarer label is not
    named, and that a column holds infinite values, a mistake to be mended, is told without their number. A `private`
    study is not told even that, nor for how many patients the outcome is missing: it counts these as blank rows.
    `patients` says whose each row is, where some have several: a label must be that of enough patients, not rows.
    """
    kinds = {str(column): released_kind(frame[column], smallest_cell) for column in frame.columns}
    measured = [column for column, kind in kinds.items() if kind == "number"]
    infinite = {column: int(np.isinf(as_numbers(frame[column])).sum()) for column in measured if not private}
    labels: list[str] = []
    distinct, whole, missing = 0, False, 0
    if target in kinds and kinds[target].startswith("image"):  # masks, of which nothing but their shape is told
        missing = 0 if private else int(frame[target].isna().sum())
    elif target in kinds:
        outcome = frame[target]
        missing = 0 if private else int(outcome.isna().sum())
        broken = np.count_nonzero(as_numbers(outcome.dropna()) % 1) if kinds[target] == "number" else 0
        whole = kinds[target] == "number" and int(broken) < smallest_cell
        distinct = int(outcome.nunique())
        most = MOST_TOLD if task is None and kinds[target] == "number" else MOST_CLASSES
        if task == "survival":
            distinct = 0  # the study says which labels there are
        elif task != "regression" and distinct <= most and (whole or kinds[target] != "number" or task is not None):
            labels = frequent_labels(outcome, smallest_cell, patients)
            distinct = len(labels)
    return Card(
        name,
        in_cells(len(frame), smallest_cell),
        kinds,
        {column: number if smallest_cell == 1 else 1 for column, number in infinite.items() if number},
        in_cells(missing, smallest_cell),
        min(distinct, MOST_CLASSES + 1) if smallest_cell == 1 or distinct == len(labels) else MOST_CLASSES + 1,
        whole,
        tuple(labels),
    )


def released_kind(column: "pd.Series[Any]", smallest_cell: int) -> str:
    known = int(column.notna().sum())
    kind = "empty" if 0 < known < smallest_cell else str(kind_of(column))
    return picture_kind(column) if kind == "image" else kind


def kinds_told(frame: pd.DataFrame) -> dict[str, str]:
    """The kind of every column, of images with their shape."""
    return {str(column): released_kind(frame[column], 1) for column in frame.columns}


def frequent_labels(outcome: "pd.Series[Any]", smallest_cell: int, patients: Any = None) -> list[str]:
    """The labels that enough patients have, in order; a patient with many rows (`patients`: whose) counts once."""
    codes, labels = as_codes(outcome)
    if patients is not None:
        whose = pd.factorize(np.asarray(patients).astype(str))[0]
        codes = np.unique(np.stack([codes, whose]), axis=1)[0]
    times = np.bincount(codes[codes >= 0], minlength=len(labels))
    return sorted(str(label) for label, number in zip(labels, times, strict=True) if number >= smallest_cell)


@recorded("query", TERMS)
def cards(*, target: str, task: TaskKind | None = None, smallest_cell: Count = 1, private: bool = False) -> Query:
    """Asks every site for its card."""

    def ask(_: Message, site: Site) -> Message:
        made = describe(site.name, site.table, target, task, smallest_cell, private, site.patients)
        return Message({"card": pack(asdict(made))})

    def combine(answers: Sequence[Message]) -> Report:
        return {"cards": [unpack(answer.arrays["card"]) for answer in answers]}

    return Query(ask, combine)


def cards_of(report: Report) -> list[Card]:
    """The cards in the report of `cards`."""
    fields: list[dict[str, Any]] = report["cards"]
    return [Card(**{**card, "labels": tuple(card["labels"])}) for card in fields]
