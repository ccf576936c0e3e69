"""How a site's raw columns become the numbers a model sees: fill, one-hot, scale. Fitted once, applied at every site.

A `Preparation` is frozen and plain: its JSON holds fills, centers, scales and names of categories, so that a real site
applies exactly what was fitted. It is fitted in `wardround.data.preparation_fit`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.federation import mapped_zeros
from wardround.queries.columns import Picture, as_codes, as_numbers, kind_of, picture_shape, suggest_name

FORMAT = "wardround preparation 1"
ENDS = ("low", "high")
OPTIONAL = (*ENDS, "seen")


@dataclass(frozen=True)
class NumberColumn:
    """Missing becomes `fill`, then (value - center) / scale; a scale of 0 means always 0 (nothing was ever known).

    Where `low` and `high` are given, values are clamped to them, and one that is not finite counts as missing. `seen`
    is the range of the training rows, for whoever uses the model: it changes no value.
    """

    name: str
    fill: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    indicator: bool = False
    low: float | None = None
    high: float | None = None
    seen: tuple[float, float] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, *([f"{self.name} missing"] if self.indicator else []))


@dataclass(frozen=True)
class TextColumn:
    """One column a category, 1 where it is the row's; missing counts as `fill`, an unknown category is all zeros."""

    name: str
    categories: tuple[str, ...]
    fill: str | None = None
    indicator: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        names = [f"{self.name}={category}" for category in self.categories]
        return (*names, *([f"{self.name} missing"] if self.indicator else []))


@dataclass(frozen=True)
class ImageColumn:
    """Images go to the model as they are: bytes of this shape (height, width, channels). An unknown one is black."""

    name: str
    shape: tuple[int, int, int]

    def apply(self, frame: pd.DataFrame, where: str) -> np.ndarray[Any, Any]:
        out = mapped_zeros((len(frame), *self.shape), np.uint8)
        there = self.name in frame.columns and kind_of(frame[self.name]) in ("image", "empty")
        if not there or any(isinstance(one, Picture) and one.pixels.shape != self.shape for one in frame[self.name]):
            raise Refusal(
                f"the model sees images of {' x '.join(map(str, self.shape))}, and column {self.name!r} holds none",
                where=where,
                remedy="give it images, read with the source images and the study's size, channels and equalize",
            )
        for place, one in enumerate(frame[self.name]):
            if isinstance(one, Picture):
                out[place] = one.pixels
        return out


@dataclass(frozen=True)
class Preparation:
    """What is done to each raw column, in order; or the one column of images, which then is all there is."""

    columns: tuple[NumberColumn | TextColumn, ...]
    image: ImageColumn | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of the matrix that `apply` gives."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def names(self) -> tuple[str, ...]:
        """The raw columns that are read."""
        return (*(column.name for column in self.columns), *([self.image.name] if self.image else []))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row as the model sees it."""
        return self.image.shape if self.image else (len(self.features),)

    def apply(self, frame: pd.DataFrame, *, where: str = "") -> np.ndarray[Any, Any]:
        """A float32 matrix (rows, features); columns of the frame that the preparation does not know are ignored.

        Of images it is their bytes, (rows, height, width, channels).
        """
        if self.image is not None:
            return self.image.apply(frame, where)
        out = np.zeros((len(frame), len(self.features)), np.float32)
        at = 0
        for column in self.columns:
            width = len(column.features)
            block = out[:, at : at + width]
            at += width
            if column.name not in frame.columns:
                raise Refusal(
                    f"column {column.name!r} is missing; {suggest_name(column.name, map(str, frame.columns))}",
                    where=where,
                    remedy="rename the column, or add it with empty values, which are then filled",
                )
            series = frame[column.name]
            if column.indicator:
                block[:, -1] = series.isna()
            if isinstance(column, NumberColumn):
                block[:, 0] = scale_column(column, series, where)
            else:
                one_hot(column, series, block)
        return out

    def to_json(self) -> str:
        columns = [
            {
                "kind": "number" if isinstance(column, NumberColumn) else "text",
                **{key: value for key, value in asdict(column).items() if key not in OPTIONAL or value is not None},
            }
            for column in self.columns
        ]
        image = {"image": asdict(self.image)} if self.image else {}
        return json.dumps({"format": FORMAT, "columns": columns, **image}, ensure_ascii=False, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "Preparation":
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(f"its format is {document['format']!r}")
            columns = tuple(parse_column(column) for column in document["columns"])
            return Preparation(columns, parse_image(document.get("image")))
        except (ValueError, KeyError, TypeError) as error:
            raise Refusal(
                f"this is not a preparation that can be read ({error})",
                remedy=f"use the file as the study wrote it; its format must be {FORMAT!r}",
            ) from error


def scale_column(column: NumberColumn, series: "pd.Series[Any]", where: str) -> np.ndarray[Any, Any]:
    kind = kind_of(series)
    if kind not in ("number", "flag", "empty"):
        raise Refusal(
            f"column {column.name!r} holds {kind} but numbers were expected",
            where=where,
            remedy="clean the column; a word for missing can be named in missing_words",
        )
    values = as_numbers(series)
    if column.low is not None and column.high is not None:
        values = np.clip(np.where(np.isfinite(values), values, np.nan), column.low, column.high)
    if np.isinf(values).any():
        raise Refusal(
            f"column {column.name!r} holds infinite values", where=where, remedy="leave them empty if they are unknown"
        )
    if column.scale == 0:
        return np.zeros(len(values))
    return (np.where(np.isnan(values), column.fill, values) - column.center) / column.scale


def one_hot(column: TextColumn, series: "pd.Series[Any]", block: np.ndarray[Any, Any]) -> None:
    codes, texts = as_codes(series)
    known = pd.Index(column.categories, dtype=object)
    place = np.append(known.get_indexer(pd.Index(texts, dtype=object)), -1)
    if column.fill in column.categories:
        place[-1] = column.categories.index(column.fill)
    rows = place[codes]  # -1, of what is missing, is the last place
    there = np.flatnonzero(rows >= 0)
    block[there, rows[there]] = 1.0


def parse_range(ends: Any, name: str) -> tuple[float, float] | None:
    if ends is None:
        return None
    low, high = (float(end) for end in ends)
    if not -np.inf < low <= high < np.inf:
        raise ValueError(f"the range seen of column {name!r} must be two finite numbers in order")
    return low, high


def parse_image(said: Mapping[str, Any] | None) -> ImageColumn | None:
    if said is None:
        return None
    name, shape = said["name"], picture_shape(f"image {'x'.join(str(int(side)) for side in said['shape'])}")
    if not isinstance(name, str) or shape is None:
        raise ValueError("its images have no shape")
    return ImageColumn(name, shape)


def parse_column(column: Mapping[str, Any]) -> NumberColumn | TextColumn:
    """One column from JSON, each value checked, since the file may come from elsewhere."""
    name, indicator = column["name"], column["indicator"]
    if not isinstance(name, str) or not isinstance(indicator, bool):
        raise TypeError("a column's name must be text and its indicator true or false")
    if column["kind"] == "number":
        fill, center, scale = (float(column[key]) for key in ("fill", "center", "scale"))
        if not np.isfinite([fill, center, scale]).all() or scale < 0:
            raise ValueError(f"the numbers of column {name!r} must be finite and its scale not negative")
        low, high = (None if column.get(key) is None else float(column[key]) for key in ENDS)
        if (low is None) != (high is None) or (
            low is not None and high is not None and not -np.inf < low <= high < np.inf
        ):
            raise ValueError(f"the range of column {name!r} must be two finite numbers in order")
        return NumberColumn(name, fill, center, scale, indicator, low, high, parse_range(column.get("seen"), name))
    if column["kind"] != "text":
        raise ValueError(f"column {name!r} is of the unknown kind {column['kind']!r}")
    categories, stand_in = column["categories"], column["fill"]
    if (
        not isinstance(categories, list)
        or not all(isinstance(category, str) for category in categories)
        or not isinstance(stand_in, str | None)
    ):
        raise TypeError(f"the categories of column {name!r} must be text")
    return TextColumn(name, tuple(categories), stand_in, indicator)
