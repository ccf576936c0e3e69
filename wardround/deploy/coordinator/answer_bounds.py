"""What an answer may say in this study: no more rows than were agreed on, losses that so many rows can have, a query's
own columns. Whatever goes beyond is no answer, and its site is named.

A site is taken at its word about how many rows it has once, when the sites agree, and the number stands in the result.
Afterwards it counts no more than that: not in a round, where it weighs its rows (or 1, where all sites weigh so), not
in the validation loss. A site counts in cells (`prepare` tells how large one is), so up to a cell less one
patient more than it told are its own.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from wardround.core.codes.json_arrays import unpack
from wardround.core.components.recipes import Recipe, recipe_of
from wardround.core.contracts import Algorithm, Message, Query, Report, RoundRecord, Site
from wardround.core.errors import Refusal
from wardround.core.federation import PARTS
from wardround.core.files import write_whole
from wardround.core.quality import SMALLEST, Quality
from wardround.core.text import plain_line
from wardround.deploy.coordinator.monitor.answer import windows_problem
from wardround.deploy.protocol.replies import HUGE, Reply
from wardround.deploy.protocol.reply_form import MOST_ROWS
from wardround.queries.cards import MOST_CLASSES, Card
from wardround.queries.columns import picture_shape

Rows = tuple[int, int, int]
"""For training, validation and test."""
LARGEST_LOSS = -math.log(SMALLEST)
"""Of one patient whose class was thought impossible."""
ROUNDING = 1e-5
"""Sums and weights travel in single precision."""
APART = 10.0
"""Times by which a site's mean loss may differ from the middle of the others' before it is worth a look."""
KINDS = ("number", "flag", "text", "date", "mixed", "empty")
LONGEST_NAME = 500
CARD = TypeAdapter(Card)
LABELS = TypeAdapter(dict[str, dict[str, int]])
NAMES = TypeAdapter(dict[str, list[str]])
WORDS = TypeAdapter(dict[str, str])


@dataclass
class RowLimits:
    """The rows that each site told when the sites agreed, and the cell in which it counts; kept in a file, if any."""

    path: Path | None = None
    rows: dict[str, Rows] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            told = json.loads(self.path.read_bytes())
            self.rows = {site: (int(a), int(b), int(c)) for site, (a, b, c) in told["rows"].items()}
            self.cells = {site: int(cell) for site, cell in told["cells"].items()}

    def learn(self, reply: Reply) -> Rows:
        """From a reply to `prepare`, which has its form; on the disk when this returns."""
        site = str(reply.header["site"])
        train, validation, test = (int(rows) for rows in np.asarray(reply.message.arrays["rows"]))
        self.rows[site], self.cells[site] = (train, validation, test), int(reply.header.get("cell", 1))
        if self.path is not None:
            write_whole(self.path, json.dumps({"rows": self.rows, "cells": self.cells}).encode())
        return self.rows[site]

    def most(self, site: str, part: str) -> int:
        """The most rows of this part that the site may speak of; one that told nothing is not held to anything."""
        if site not in self.rows:
            return MOST_ROWS
        return self.rows[site][PARTS.index(part)] + self.cells.get(site, 1) - 1

    def training_rows(self, record: RoundRecord) -> int:
        """Those of the sites of a round, as they told them."""
        return sum(self.rows[site][0] for site in record.sites if site in self.rows)

    def figures_problem(self, reply: Reply) -> str | None:
        """Why figures, which have their form, are of more test patients than the site has."""
        site, block = str(reply.header.get("site")), reply.header.get("figures")
        told, most = (block["rows"][site] if block else 0), self.most(site, "test")
        return f"it tells figures of {told} test rows, and it has at most {most}" if told > most else None


def row_notes(limits: RowLimits, members: Collection[str]) -> list[str]:
    """How the numbers of patients are to be read: rounded by the sites, and 0 where too few to be told of."""
    cells = {site: limits.cells.get(site, 1) for site in members}
    rounded = sorted({cell for cell in cells.values() if cell > 1})
    few = [site for site, cell in sorted(cells.items()) if cell > 1 and not limits.rows.get(site, (1, 0, 0))[0]]
    said = " and ".join(str(cell) for cell in rounded)
    notes = [f"Sites tell their numbers of patients rounded down to multiples of {said}."] if rounded else []
    return notes + [
        f"Fewer than {cells[site]} training patients at {site}: nothing is told of so few, so it added nothing to the"
        " model, which it was given."
        for site in few
    ]


def is_uniform(recipe: Recipe) -> bool:
    """Whether sites weigh the same in this algorithm, however many rows they have."""
    if recipe.kind == "private" and recipe.name == "site":
        return True
    inner = recipe.parts[0] if recipe.kind == "private" and recipe.parts else recipe
    return dict(inner.settings).get("weights") == "uniform"


def weight_problem(reply: Reply, algorithm: Algorithm, limits: RowLimits) -> str | None:
    """Why an answer counts for more, or otherwise, than its site's rows; an answer that is hidden tells no weight."""
    arrays = reply.message.arrays
    if "weight" not in arrays:
        return None
    weight = float(np.asarray(arrays["weight"]))
    problem = told_weight_problem(str(reply.header.get("site")), weight, algorithm, limits)
    if problem is not None:
        return problem
    rest = [one for name, part in arrays.items() if name != "weight" for one in jax.tree.leaves(part)]
    if weight == 0 and any(np.any(one) for one in rest):
        return "its answer has no weight, and yet numbers that would count"
    return None


def told_weight_problem(site: str, weight: float, algorithm: Algorithm, limits: RowLimits) -> str | None:
    """Why a site may not count for so much."""
    most = limits.most(site, algorithm.part)
    if is_uniform(recipe_of(algorithm)):
        return None if weight in (0.0, 1.0) else f"its answer has the weight {weight:g}, but every site weighs 1"
    if not 0 <= weight <= most * (1 + ROUNDING):
        return f"its answer has the weight {weight:g}, and it has at most {most} rows for this"
    return None


def loss_problem(reply: Reply, limits: RowLimits, part: str, *, regression: bool, noised: bool) -> str | None:
    """Why a told loss cannot be one of the site's rows; one that is not finite is looked at among the others."""
    loss, rows, right = (float(reply.message.arrays[name]) for name in ("loss", "rows", "right"))
    most = limits.most(str(reply.header.get("site")), part)
    if rows > most:
        return f"it tells of {rows:.0f} {part} rows, and it has at most {most}"
    if noised or not math.isfinite(loss):
        return f"it tells a loss as large as {loss:.0e}" if abs(loss) > HUGE and math.isfinite(loss) else None
    largest = (HUGE if regression else LARGEST_LOSS) * rows * (1 + ROUNDING)
    if not 0 <= loss <= largest or not 0 <= right <= rows:
        return f"it tells a loss of {loss:g} and {right:g} right answers for {rows:.0f} rows"
    return None


def implausible_losses(quality: Quality) -> dict[str, str]:
    """Sites whose mean loss under the common model is far from what the others measure, by name, with both numbers.

    Below a tenth, or above ten times, of the middle of at least two others. Nobody else has these patients, so such a
    loss is no lie for sure: it counts, and is named.
    """
    losses = quality.mean_losses()
    found = {}
    for site, own in losses.items():
        others = [loss for name, loss in losses.items() if name != site]
        middle = float(np.median(others)) if len(others) > 1 else 0.0
        if middle > 0 and not middle / APART <= own <= middle * APART:
            found[site] = f"it tells a mean loss of {own:.3g}, and the others' middle is {middle:.3g}"
    return found


def validation_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whose validation losses were left out, or are worth a look, with the first round and its reason."""
    notes = []
    for key, what in (
        ("validation_left_out", "was left out of the validation loss"),
        ("validation_implausible", "tells a validation loss that is worth a look"),
    ):
        found: dict[str, list[tuple[int, str]]] = {}
        for record in records:
            for site, why in record.get("measures", {}).get(key, {}).items():
                found.setdefault(site, []).append((record["round"], why))
        for site, told in sorted(found.items()):
            often = f"in round {told[0][0]}" if len(told) == 1 else f"in {len(told)} rounds from round {told[0][0]} on"
            notes.append(f"{site} {what} {often}: {told[0][1]}.")
    return notes


# ---- queries ----


def query_check(query: Query, message: Message, *, noised: bool) -> Callable[[Reply], str | None]:
    """Tells why an answer to a query cannot be combined with the others'; counts with noise may be below 0."""
    recipe = recipe_of(query)
    pattern = pattern_of(query, recipe, message)
    least = -MOST_ROWS if noised else 0

    def problem(reply: Reply) -> str | None:
        answer, site = reply.message, str(reply.header.get("site"))
        wrong = counts_problem(answer, least) or likeness_problem(answer, pattern)
        if wrong is None and recipe.name in TOLD:
            wrong = TOLD[recipe.name](answer, recipe, site, least)
        if wrong is None:
            query.combine([answer])  # what this raises is the answer's fault
        return wrong

    return problem


def pattern_of(query: Query, recipe: Recipe, message: Message) -> Message | None:
    """The same query's answer for a table without patients: its arrays have the names, types and shapes of any other.

    None where such a table cannot be asked.
    """
    columns = dict(recipe.settings).get("columns", ())
    try:
        return query.ask(message, Site("", pd.DataFrame({str(column): np.empty(0) for column in columns})))
    except Exception:
        return None


def counts_problem(given: Message, least: int) -> str | None:
    """Whole numbers are counts of patients; bytes are words."""
    for name, one in given.arrays.items():
        array = np.asarray(one)
        if array.dtype.kind not in "iu" or array.dtype == np.uint8 or not array.size:
            continue
        if np.min(array) < least or np.max(array) > MOST_ROWS:
            return f"'{plain_line(name, 40)}' holds counts that no site has"
    return None


def likeness_problem(given: Message, pattern: Message | None) -> str | None:
    if pattern is None:
        return None
    if set(given.arrays) != set(pattern.arrays):
        return "its answer does not have the arrays of the query"
    for name, want in pattern.arrays.items():
        got, expected = np.asarray(given.arrays[name]), np.asarray(want)
        words = expected.dtype == np.uint8 and expected.ndim == 1  # as long as they are
        if got.dtype != expected.dtype or (got.ndim != 1 if words else got.shape != expected.shape):
            return f"'{name}' has the shape {got.shape} where {expected.shape} was expected"
    return None


def card_problem(answer: Message, recipe: Recipe, site: str, least: int) -> str | None:
    told = unpack(answer.arrays["card"])
    card = CARD.validate_json(answer.arrays["card"].tobytes(), strict=True)
    counts = [card.rows, card.missing_target, card.distinct, *card.infinite.values()]
    if set(told) != set(Card.__dataclass_fields__) or card.site != site:
        return "its card is not a card of this site"
    if any(not 0 <= count <= MOST_ROWS for count in counts) or card.missing_target > card.rows:
        return "its card tells numbers of rows that no site has"
    if unknown_kinds(card.kinds) or set(card.infinite) - set(card.kinds):
        return "its card tells columns of unknown kinds"
    if len(card.labels) > MOST_CLASSES or any(len(name) > LONGEST_NAME for name in (*card.kinds, *card.labels)):
        return "its card tells more labels, or longer names, than a table has"
    return None


def categories_problem(answer: Message, recipe: Recipe, site: str, least: int) -> str | None:
    counts, settings = LABELS.validate_json(answer.arrays["counts"].tobytes(), strict=True), dict(recipe.settings)
    if set(counts) != set(settings["columns"]) or any(len(labels) > settings["most"] for labels in counts.values()):
        return "it counts other columns, or more categories, than were asked for"
    if any(not least <= number <= MOST_ROWS for labels in counts.values() for number in labels.values()):
        return "its counts are no numbers of patients"
    return None


def ends_problem(answer: Message, recipe: Recipe, site: str, least: int) -> str | None:
    low, high = (np.asarray(answer.arrays[name], np.float64) for name in ("low", "high"))
    unknown = (low == np.inf) & (high == -np.inf)
    sound = (low <= high) & (np.abs(low) <= HUGE) & (np.abs(high) <= HUGE)
    return None if np.all(unknown | sound) else "the ends of its values are not finite, or in the wrong order"


def moments_problem(answer: Message, recipe: Recipe, site: str, least: int) -> str | None:
    sums, deviations = (np.asarray(answer.arrays[name], np.float64) for name in ("sum", "deviations"))
    # Squares of float64 values may be very large and still be right.
    sound = np.isfinite(sums) & np.isfinite(deviations) & ((deviations >= 0) | (least < 0))
    return None if np.all(sound) else "its sums are not finite, or its spreads are below 0"


def labels_problem(answer: Message, recipe: Recipe, site: str, least: int) -> str | None:
    NAMES.validate_json(answer.arrays["names"].tobytes(), strict=True)
    return None


def unknown_kinds(kinds: Mapping[str, str]) -> set[str]:
    """Kinds of columns that no card tells; images come with their shape."""
    images = {kind for kind in kinds.values() if kind == "image mixed" or picture_shape(kind) is not None}
    return set(kinds.values()) - set(KINDS) - images


def kinds_problem(answer: Message, recipe: Recipe, site: str, least: int) -> str | None:
    kinds = WORDS.validate_json(answer.arrays["kinds"].tobytes(), strict=True)
    return "it tells columns of unknown kinds" if set(kinds.values()) - set(KINDS) else None


TOLD: Mapping[str, Callable[[Message, Recipe, str, int], str | None]] = {
    "cards": card_problem,
    "category_counts": categories_problem,
    "extremes": ends_problem,
    "kinds_of": kinds_problem,
    "moments": moments_problem,
    "names_of": labels_problem,
    "outcomes_by_window": windows_problem,
}
"""What only the query itself knows of its words and numbers."""


def combine_answers_of(query: Query, answers: Mapping[str, Message], sites: Sequence[str]) -> Report:
    """The query's report; answers that do not go together are refused with the name of the site that is unlike."""
    given = [site for site in sites if site in answers]
    try:
        return query.combine([answers[site] for site in given])
    except Refusal:
        raise
    except Exception:
        unlike = [one for one in given if _goes(query, [answers[site] for site in given if site != one])]
        raise Refusal(
            "its answer does not go together with those of the other sites",
            where=f"site {', '.join(unlike or given)}",
            remedy="check the version of wardround there, or leave the site out with [deploy] sites",
        ) from None


def _goes(query: Query, answers: Sequence[Message]) -> bool:
    try:
        query.combine(answers)
    except Exception:
        return False
    return bool(answers)


def bounded(check: Callable[[Reply], str | None], *more: Callable[[Reply], str | None]) -> Callable[[Reply], Any]:
    """One check after the other, up to the first that finds something."""
    return lambda reply: next((wrong for one in (check, *more) if (wrong := one(reply))), None)
