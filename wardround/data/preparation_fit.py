"""Fits a preparation without pooling rows: sites answer with statistics, the server combines them.

With `smallest_cell` = 1 the result is what scikit-learn's imputer, one-hot encoder and scaler would fit on the pooled
training rows; the median is found by histograms that narrow around it, exactly for whole numbers (ranges up to 1e9),
else to 1e-9 of the column's range. Above, sites answer coarsely (see `cells`), and the fit is as near as that allows:
one histogram gives the median to about a 64th of the range, and `minmax` maps all but the outermost patients to 0...1.
Costs one question for numbers and one for text; the median and `minmax` one more, the median up to five on top.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Message, Report
from wardround.core.errors import Refusal
from wardround.data.noised_preparation import Categories, Ranges, StatisticsNoise, declared_column, fit_privately
from wardround.data.preparation import ImageColumn, NumberColumn, Preparation, TextColumn
from wardround.data.query import Ask
from wardround.queries.category_counts import category_counts
from wardround.queries.cells import BINS
from wardround.queries.columns import list_some, picture_shape, suggest_name
from wardround.queries.extremes import extremes
from wardround.queries.histogram import histogram
from wardround.queries.moments import moments

Impute = Literal["mean", "median", "most_frequent"]
Scale = Literal["standard", "minmax", "none"]

PASSES = 5
"""Each pass narrows the search for the median 64-fold: 64**5 is about 1e9."""

Values = np.ndarray[Any, Any]


def fit_preparation(
    ask: Ask,
    kinds: Mapping[str, str],
    *,
    impute: Impute = "median",
    scale: Scale = "standard",
    indicators: bool = False,
    most_categories: int = 200,
    smallest_cell: int = 1,
    ranges: Ranges = MappingProxyType({}),
    categories: Categories = MappingProxyType({}),
    private: StatisticsNoise | None = None,
) -> tuple[Preparation, tuple[str, ...]]:
    """The preparation of these columns ("number", "text" or "empty", by name), and remarks in plain words.

    Nothing is asked about columns that are declared in `ranges` or `categories`; `private` says with how much noise the
    others are asked for.
    """
    check_choice("impute", impute, ("mean", "median", "most_frequent"))
    check_choice("scale", scale, ("standard", "minmax", "none"))
    refuse_unknown(kinds, ranges, categories)
    if (image := image_column(kinds)) is not None:
        return Preparation((), image), ()  # pixels are bytes everywhere: there is nothing to ask the sites
    if private is not None:
        return fit_privately(ask, kinds, ranges, categories, noise=private, scale=scale)
    declared = {name: declared_column(name, kind, ranges, categories, scale=scale) for name, kind in kinds.items()}
    fitted = {name: column for name, column in declared.items() if column is not None}
    numbers = [name for name, kind in kinds.items() if kind != "text" and name not in fitted]
    words = [name for name, kind in kinds.items() if kind == "text" and name not in fitted]
    if numbers:
        fitted |= fit_numbers(
            ask,
            numbers,
            impute=impute,
            scale=scale,
            indicators=indicators,
            most_categories=most_categories,
            smallest_cell=smallest_cell,
        )
    if words:
        fitted |= fit_words(ask, words, indicators, most_categories, smallest_cell)
    preparation = Preparation(tuple(fitted[name] for name in kinds))
    if not preparation.features:
        raise Refusal("there is no column left to learn from", remedy="drop fewer columns")
    return preparation, remarks(preparation)


def image_column(kinds: Mapping[str, str]) -> ImageColumn | None:
    """The column of images, where the model sees nothing else (see `schema.refuse_images`)."""
    shapes = {name: picture_shape(kind) for name, kind in kinds.items()}
    return next((ImageColumn(name, shape) for name, shape in shapes.items() if shape is not None), None)


def refuse_unknown(kinds: Mapping[str, str], *declared: Mapping[str, Any]) -> None:
    for name in (name for one in declared for name in one if name not in kinds):
        raise Refusal(
            f"column {name!r} is declared and not among those that are learned from; {suggest_name(name, kinds)}",
            where="[data.preparation]",
            remedy="correct the name, or remove it",
        )


def statistics_asked(
    *, impute: str, scale: str, smallest_cell: int, private: bool = False, declared: bool = False
) -> tuple[Recipe, ...]:
    """The queries by which sites agree on a schema and a preparation, as whoever approves a study is told of them.

    A private study asks under noise, or where its columns are declared not at all.
    """
    cell = ("smallest_cell", smallest_cell)
    if private:
        noised = () if declared else (Recipe("query", "noised_counts"), Recipe("query", "noised_moments"))
        return (Recipe("query", "cards", (cell,)), *noised)
    names = ["cards", "moments", "category_counts"]
    if impute == "median" or scale == "minmax":
        names.append("extremes")
    if impute == "median":
        names.append("histogram")
    return tuple(Recipe("query", name, (cell,)) for name in names)


def check_choice(key: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise Refusal(f"the choice {key} = {value!r} is not known", remedy=f"choose one of {', '.join(known)}")


def fit_numbers(
    ask: Ask,
    names: list[str],
    *,
    impute: Impute,
    scale: Scale,
    indicators: bool,
    most_categories: int,
    smallest_cell: int,
) -> dict[str, NumberColumn | TextColumn]:
    report = ask(moments(columns=tuple(names), smallest_cell=smallest_cell), Message({}))
    count, mean, deviations, missing = (
        np.array(report[key], np.float64) for key in ("count", "mean", "deviations", "missing")
    )
    spread: Report = {}
    if scale == "minmax" or impute == "median":
        spread = ask(extremes(columns=tuple(names), smallest_cell=smallest_cell), Message({}))
    known = count > 0
    if impute == "mean":
        fill = mean
    elif impute == "median":
        fill = np.where(np.isfinite(spread["low"]), median(ask, names, spread, smallest_cell), mean)
    else:
        query = category_counts(columns=tuple(names), most=most_categories, numbers=True, smallest_cell=smallest_cell)
        counts = ask(query, Message({}))["counts"]
        fill = np.array([float(most_frequent(counts[name], float) or 0.0) for name in names])

    if scale == "standard":
        # The filled-in rows are one more group with its own mean and no spread of its own.
        rows = np.maximum(count + missing, 1)
        center = mean + (fill - mean) * missing / rows
        squares = deviations + count * (mean - center) ** 2 + missing * (fill - center) ** 2
        width = np.sqrt(squares / rows)
        # Rounding alone can leave a constant column with a width of about eps times its value.
        width = np.where(width <= 10 * np.finfo(np.float64).eps * np.abs(center), 0.0, width)
    elif scale == "minmax":
        placed = np.isfinite(spread["low"])
        center = np.where(placed, spread["low"], mean)
        width = np.where(placed, spread["high"], mean) - center
    else:
        center, width = np.zeros(len(names)), np.ones(len(names))
    width = np.where(width > 0, width, 1.0)
    seen = [seen_range(spread, i) for i in range(len(names))]
    return {
        name: NumberColumn(
            name,
            float(fill[i]),
            float(center[i]),
            float(width[i]),
            indicators and bool(missing[i] > 0),
            seen=seen[i],
        )
        if known[i]
        else NumberColumn(name, scale=0.0)
        for i, name in enumerate(names)
    }


def seen_range(spread: Report, place: int) -> tuple[float, float] | None:
    """The range of a column in training, where it was asked for and some value is known."""
    if not spread or not np.isfinite([spread["low"][place], spread["high"][place]]).all():
        return None
    return float(spread["low"][place]), float(spread["high"][place])


def fit_words(
    ask: Ask, names: list[str], indicators: bool, most_categories: int, smallest_cell: int
) -> dict[str, NumberColumn | TextColumn]:
    report = ask(category_counts(columns=tuple(names), most=most_categories, smallest_cell=smallest_cell), Message({}))
    return {
        name: TextColumn(
            name,
            tuple(sorted(report["counts"][name])),
            most_frequent(report["counts"][name], str),
            indicators and report["missing"][i] > 0,
        )
        for i, name in enumerate(names)
    }


def most_frequent(counts: Mapping[str, int], order: Callable[[str], Any]) -> str | None:
    """The label with the highest count, the first in `order` among equals."""
    return min(counts, key=lambda label: (-counts[label], order(label)), default=None)


def median(ask: Ask, names: list[str], spread: Report, smallest_cell: int) -> Values:
    """Both middle values of every column, searched between edges that close in on them, and their mean."""
    low_end, high_end = np.array(spread["low"], np.float64), np.array(spread["high"], np.float64)
    whole, known = np.array(spread["whole"], bool), np.isfinite(low_end)
    low = np.where(known, low_end, 0.0)[:, None].repeat(2, axis=1)
    # Intervals are closed below and open above, so the upper end lies just past the largest value; coarse answers are
    # about edges nearby, so there it lies past them, too, and closing in further would find nothing more.
    beyond = np.nextafter(high_end, np.inf) if smallest_cell == 1 else high_end + room_above(low_end, high_end)
    high = np.where(known, beyond, 0.0)[:, None].repeat(2, axis=1)
    for _ in range(PASSES if smallest_cell == 1 else 1):
        open_ = np.flatnonzero(known & ((high - low).max(axis=1) > np.where(whole, 1.0, 0.0)))
        if not len(open_):
            break
        edges = np.linspace(low[open_], high[open_], BINS + 1, axis=-1)
        query = histogram(columns=tuple(names[i] for i in open_), smallest_cell=smallest_cell)
        report = ask(query, Message({"edges": edges}))
        count = np.array(report["known"])
        rank = np.stack([(count - 1) // 2, count // 2], axis=1)
        up_to = np.array(report["below"])[..., None] + np.cumsum(report["counts"], axis=-1)
        reached = up_to > rank[..., None]
        reached[..., -1] = True  # where coarse counts leave the middle beyond the last edge
        found = np.argmax(reached, axis=-1)[..., None]
        low[open_] = np.take_along_axis(edges, found, axis=-1)[..., 0]
        high[open_] = np.take_along_axis(edges, found + 1, axis=-1)[..., 0]
    # An interval of at most 1, open above, holds one whole number only.
    certain = whole[:, None] & (high - low <= 1) & (smallest_cell == 1)
    middle = np.where(certain, np.ceil(low), low + (high - low) / 2)
    if smallest_cell > 1:
        middle = np.where(whole[:, None], np.round(middle), middle)
    return np.asarray(middle.mean(axis=1))


def room_above(low: Values, high: Values) -> Values:
    """Two bins more, or one whole number where a column has a single value."""
    with np.errstate(invalid="ignore"):
        gap = high - low
    return np.where(np.isfinite(gap) & (gap > 0), gap * 2 / (BINS - 2), 1.0)


def remarks(preparation: Preparation) -> tuple[str, ...]:
    empty = [c.name for c in preparation.columns if isinstance(c, NumberColumn) and c.scale == 0]
    empty += [c.name for c in preparation.columns if isinstance(c, TextColumn) and not c.categories]
    if not empty:
        return ()
    return (f"No site knows a training value of {list_some(empty)}: the model sees 0 there.",)
