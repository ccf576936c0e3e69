"""A site's half of preparing its rows: what it does with its own table, alone, once the sites have agreed on a schema.

The simulation does it for every site in turn, a real site for itself; both give the same rows in the same parts, since
the split depends on the seed, the site's name and its own rows only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.contracts import Site
from wardround.data.preparation import ImageColumn, Preparation
from wardround.data.row_split import split
from wardround.data.schema import Schema, against_the_rest
from wardround.data.survival.intervals import interval_names
from wardround.data.table import Table
from wardround.queries.columns import as_codes, as_numbers, as_text, kind_of

Rows = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SiteRows:
    """One site's rows with the agreed columns, and which of them are for training, validation and test."""

    name: str
    frame: pd.DataFrame
    parts: tuple[Rows, Rows, Rows]
    schema: Schema
    target: str
    time: str = ""
    """The column that tells how long a patient was followed up, where the task is survival."""

    def times(self, rows: Rows) -> Rows | None:
        """Of these rows of the frame."""
        return as_numbers(self.frame[self.time])[rows] if self.time else None

    @property
    def training(self) -> Site:
        """What questions may look at before anything is trained: the features of the training rows."""
        return Site(self.name, self.frame[list(self.schema.kinds)].iloc[self.parts[0]])

    @property
    def order(self) -> Rows:
        """Row numbers of the frame: training, validation, test."""
        return np.concatenate(self.parts)

    def prepare(self, preparation: Preparation, where: str) -> list[tuple[Rows, Rows]]:
        """(x, y) of the three parts."""
        outcome = self.frame[self.target]
        if preparation.image is not None:  # part by part: all of them at once might not fit into the memory
            images = [preparation.apply(self.frame.iloc[part], where=where) for part in self.parts]
            if self.schema.task == "segmentation":
                masks = [stacked_masks(outcome.iloc[part], preparation.image, where) for part in self.parts]
                return list(zip(images, masks, strict=True))
            y = encode_labels(outcome, self.schema.labels) if self.schema.classes else as_numbers(outcome)
            return [(x, y[part]) for x, part in zip(images, self.parts, strict=True)]
        x = preparation.apply(self.frame, where=where)
        y = encode_labels(outcome, self.schema.labels) if self.schema.classes else as_numbers(outcome)
        return [(x[part], y[part]) for part in self.parts]


def stacked_masks(outcome: "pd.Series[Any]", image: ImageColumn, where: str) -> Rows:
    """The masks of some rows, (rows, height, width): 1 where there is anything, 0 elsewhere."""
    drawn = ImageColumn(str(outcome.name), (*image.shape[:2], 1)).apply(outcome.to_frame(), where)
    return np.asarray(drawn[..., 0] > 0).astype(np.uint8)


def split_site_rows(
    name: str,
    frame: pd.DataFrame,
    table: Table,
    schema: Schema,
    *,
    seed: int,
    shares: Any,
    by: str,
    stratify: bool = True,
    fold: int = 0,
    strata: Rows | None = None,
) -> SiteRows:
    """Split a settled frame (see `frame_for_schema`) into parts; `strata` are its outcomes, where they are known.

    With `stratify` each part has its share of every class; without, no patient's outcome decides where another is,
    which a private study needs: the promise is one for each part. Rows without a label, where labeling functions vote,
    are for training; of a patient who is held out, they are left out.
    """
    known = np.flatnonzero(frame[table.target].notna()) if table.is_unlabelled else np.arange(len(frame))
    patients = as_text(frame[by]).astype(str) if by else None
    if strata is None and schema.classes and stratify:
        strata = strata_of(frame[table.target], schema.horizons)
    parts = split(
        len(known),
        seed=seed,
        site=name,
        shares=shares,
        fold=fold,
        strata=strata[known] if strata is not None and stratify else None,
        by=None if patients is None else patients[known],
        trains=len(known) == len(frame),
    )
    if len(known) < len(frame):
        train, validation, test = (known[part] for part in parts)
        rest = np.setdiff1d(np.arange(len(frame)), known)
        if patients is not None:
            rest = rest[~np.isin(patients[rest], patients[np.concatenate([validation, test])])]
        parts = (np.sort(np.concatenate([train, rest])), validation, test)
    return SiteRows(name, frame, parts, schema, table.target, table.time)


def strata_of(outcome: "pd.Series[Any]", horizons: tuple[float, ...] = ()) -> Rows:
    """By what rows are split alike: the class, or of survival whether the event came by the last horizon."""
    labels = as_text(outcome).astype(str)
    return np.isin(labels, interval_names(horizons)[:-1]) if horizons else labels


def frame_for_schema(
    frame: pd.DataFrame, table: Table, schema: Schema, *, private: bool = False, blank: float = 0.0
) -> pd.DataFrame:
    """The rows whose target is known and a label of the schema, with the columns that all sites agreed on.

    Where the question is one label against the rest, every known outcome is one of the two.

    Of a `private` study the number of rows is told exactly, so none is dropped for its target: one whose target is
    unknown counts as a blank row, of which nothing is known but the first class (or `blank`, for a quantity), and a
    label that is not among the classes counts as the first class. No refusal may depend on a patient either: an
    infinite number counts as missing, and so does a whole column of something else where numbers were agreed on.
    """
    columns = list(dict.fromkeys((*schema.kinds, *table.groups, *table.aside, table.target)))
    if table.is_unlabelled:
        rows = with_known_labels(frame, table.target, schema)
    elif private:
        rows = blank_rows(frame, table.target, schema, blank)
    else:
        rows = known_rows(frame, table.target)
    settled = table.is_unlabelled
    if not settled and table.positive is not None and schema.classes == against_the_rest(table.positive):
        rows = rows.assign(**{table.target: one_against_the_rest(rows[table.target], table.positive)})
    elif not settled and schema.classes:
        # A label too rare to be told at any site is none of the classes.
        codes, labels = as_codes(rows[table.target])
        agreed = np.isin(labels.astype(str), schema.labels)[codes]
        if private and not agreed.all():
            rows = rows.copy(deep=False)
            rows[table.target] = np.where(agreed, labels[codes], schema.unknown).astype(object)
        elif not agreed.all():
            rows = rows[agreed].reset_index(drop=True)
    rows = rows.reindex(columns=columns)
    for name in (name for name, kind in schema.kinds.items() if private and kind in ("number", "empty")):
        rows[name] = finite_or_missing(rows[name])
    return rows


def with_known_labels(frame: pd.DataFrame, target: str, schema: Schema) -> pd.DataFrame:
    """All rows; a label that is none of the classes is unknown."""
    texts = as_text(frame[target])
    known = np.isin(np.where(pd.isna(texts), "", texts).astype(str), schema.classes)
    rows = frame.copy(deep=False)
    texts[~known] = None
    rows[target] = texts
    return rows


def one_against_the_rest(outcome: "pd.Series[Any]", positive: str) -> Rows:
    """The labels of the question whether the outcome is this one; an unknown outcome stays unknown."""
    rest, label = against_the_rest(positive)
    values = as_text(outcome)
    asked = np.where(values == label, label, rest).astype(object)
    asked[pd.isna(values)] = None
    return asked


def finite_or_missing(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if kind_of(column) not in ("number", "flag", "empty"):
        return pd.Series(np.nan, column.index)
    infinite = np.isinf(as_numbers(column))
    return column.mask(infinite) if infinite.any() else column


def blank_rows(frame: pd.DataFrame, target: str, schema: Schema, blank: float) -> pd.DataFrame:
    """The same rows; of those whose target is unknown all features are unknown too, and the target is made up."""
    known = frame[target].notna()
    if known.all():
        return frame
    rows = frame.copy(deep=False)
    for name in schema.kinds:
        if name in rows:
            rows[name] = rows[name].astype(object).where(known) if rows[name].dtype == bool else rows[name].where(known)
    outcome = rows[target]
    if schema.task == "segmentation":  # an unknown mask is an empty one, of an image that is black
        return rows
    if schema.classes:
        rows[target] = np.where(known, as_text(outcome), schema.unknown).astype(object)
    else:
        rows[target] = np.where(known, as_numbers(outcome), blank)
    return rows


def known_rows(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Without the rows whose target is unknown."""
    known = frame[target].notna()
    return frame if known.all() else frame[known].reset_index(drop=True)


def encode_labels(outcome: "pd.Series[Any]", classes: tuple[str, ...]) -> Rows:
    """Labels as the numbers of their classes."""
    codes, labels = as_codes(outcome)
    places = pd.Index(classes, dtype=object).get_indexer(pd.Index([*labels, None], dtype=object))
    return places[codes].astype(np.int32)
