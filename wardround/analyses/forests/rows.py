"""A site's table as trees see it: numbers, places of levels, the label, and which rows learn, watch and test."""

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np

from wardround.analyses.forests.plan import WHERE, TreeOutcome, TreePlan
from wardround.analyses.survival.rows import FollowUpOutcome, events_of, times_of
from wardround.core.analysis import Agreed
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.queries.columns import as_codes, as_numbers, kind_of, suggest_name
from wardround.statistics.trees.bins import MOST_BINS, Feature, Numbers, bin_numbers
from wardround.statistics.trees.course import BinnedRows
from wardround.statistics.trees.hazards import interval_labels, signed_times


class LearningRows(NamedTuple):
    """Rows whose target is known: those that learn, then those that tell when to stop, then those for the test."""

    values: tuple[Numbers, ...]
    """A column each: numbers with NaN, or places of levels with -1."""
    y: Numbers
    """Labels or numbers; of a hazard the times, below 0 where they are censored."""
    learn: int
    test: int
    """Where the test rows begin."""
    places: Numbers
    """Where each row stands among those that were dealt out: all under noise, else those of a known target."""
    dealt: int
    """How many these are."""


def draw(seed: int, *words: str) -> np.random.Generator:
    """Random numbers of their own for every seed and name."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(json.dumps([seed, *words]).encode()).digest(), "big"))


def read_rows(plan: TreePlan, agreed: Agreed, outcome: TreeOutcome, site: Site) -> LearningRows:
    """From the site's own table; refused where it has no such column, or words where numbers were agreed."""
    for name in plan.read:
        if name not in site.table.columns:
            raise Refusal(
                f"column {name!r} is missing",
                where=f"site {site.name}",
                remedy=suggest_name(name, map(str, site.table.columns)),
            )
    y = labels_of(plan, agreed, outcome, site)
    # Under noise nobody's missing target may move others from part to part: all rows are dealt out, then some left out.
    known = ~np.isnan(y)
    dealt = np.arange(len(y)) if plan.private else np.flatnonzero(known)
    order = dealt[draw(plan.seed, site.name, "rows").permutation(len(dealt))]
    test = len(order) - round(plan.test * len(order))
    learn = test - (round(plan.validation * len(order)) if plan.watched else 0)
    places = np.flatnonzero(known[order])
    learn, test = (int(np.searchsorted(places, end)) for end in (learn, test))
    values = tuple(column_values(agreed, name, site)[order[places]] for name in plan.columns)
    return LearningRows(values, y[order[places]], learn, test, places, len(order))


def column_values(agreed: Agreed, name: str, site: Site) -> Numbers:
    series, column = site.table[name], agreed.columns[name]
    if column.kind == "number":
        if kind_of(series) not in ("number", "flag", "empty"):
            raise Refusal(
                f"column {name!r} holds {kind_of(series)}, and numbers were agreed on",
                where=f"site {site.name}",
                remedy="clean the column; a word for missing can be named in missing_words",
            )
        return as_numbers(series).astype(np.float32)
    return level_places(series, column.levels)


def level_places(series: Any, levels: tuple[str, ...]) -> Numbers:
    """-1 where nothing is known, or no agreed level."""
    codes, texts = as_codes(series)
    places = {level: place for place, level in enumerate(levels)}
    own = np.array([places.get(text, -1) for text in texts] + [-1])
    return np.asarray(own[codes])


def labels_of(plan: TreePlan, agreed: Agreed, outcome: TreeOutcome, site: Site) -> Numbers:
    """Places of classes, for two of them 1 for the positive one; NaN where the target is unknown."""
    if outcome.is_hazard:
        event = events_of(site, FollowUpOutcome(plan.time, plan.target, plan.positive, setting="positive"))
        return signed_times(times_of(site, plan.time), event)
    column = agreed.columns[plan.target]
    if not outcome.classes or column.kind == "number":
        y = column_values(agreed, plan.target, site).astype(np.float64)
        if plan.private:  # a refusal would tell of a patient
            y = np.where(np.isin(y, (0, 1)), y, np.nan)
        if outcome.classes and not np.isin(y[~np.isnan(y)], (0, 1)).all():
            raise Refusal(
                f"the target {plan.target!r} holds numbers other than 0 and 1",
                where=f"site {site.name}, {WHERE}",
                remedy="leave the objective out to fit the number itself, or declare the column a category",
            )
        return y if outcome.positive or not outcome.classes else 1 - y
    places = level_places(site.table[plan.target], column.levels)
    if outcome.objective.groups == 1:
        return np.where(places < 0, np.nan, places == outcome.positive)
    return np.where(places < 0, np.nan, places)


def binned(rows: LearningRows, features: tuple[Feature, ...], width: int, time: Feature | None = None) -> BinnedRows:
    """In the agreed bins, and where there are intervals of time, labelled by them."""
    codes = np.empty((len(features), len(rows.y)), np.uint8)
    for place, (feature, values) in enumerate(zip(features, rows.values, strict=True)):
        if feature.is_category:
            codes[place] = np.where(values < 0, width - 1, values)
        else:
            codes[place] = bin_numbers(values, feature, width - 1)
    y = rows.y if time is None else interval_labels(rows.y, bin_numbers(np.abs(rows.y), time, MOST_BINS))
    return BinnedRows(codes, y.astype(np.float32))
