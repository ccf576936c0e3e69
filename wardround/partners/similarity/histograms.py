"""How alike the patients of two sites are, column by column, told by private histograms and never by rows.

Every site counts its training rows over common cells: numbers between edges agreed from all sites' counts, categories
by name, and the missing ones. Adding or removing one patient changes ONE cell of each column by 1, so two-sided
geometric noise of parameter epsilon / columns in every cell makes all of it epsilon-differentially private (Ghosh,
Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", 2009); a quarter of a column's share
pays for finding its edges or names. Names need delta too: one is told only when its noisy count is above
1 + ln(1 / 2 delta) / epsilon (Korolova et al. 2009). The noise is exact (Canonne, Kamath and Steinke 2020) and comes
from the operating system. Cells below `smallest_cell` are told as 0; what they held is told as one sum, or where that
would give it away is added to the column's largest cell. Costs up to seven questions; each answer a few numbers a
column. With a hundred patients and a score of columns, an epsilon below about 20 drowns the differences in noise; what
noise leaves of a difference is understated, never made up.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from wardround.core.codes.json_arrays import pack
from wardround.core.components.recipes import Recipe
from wardround.core.contracts import Engine, Message, Report
from wardround.partners.similarity.multiple_tests import holm
from wardround.privacy.discrete_laplace import noise_variance
from wardround.queries.cells_of import ColumnCells, cells_of
from wardround.queries.kinds_of import kinds_of
from wardround.queries.names_of import names_of

Numbers = np.ndarray[Any, Any]

CELLS = 8
"""Cells of a number's histogram, about equally full over all sites together."""
ZOOM = 16
ZOOMS = 3
MISSING, OTHER = "missing", "other"
POWERS = np.exp2(np.arange(-12.0, 41.0, 4))
WIDE = np.concatenate([-POWERS[::-1], [0.0], POWERS])
"""Where the search for a column's range begins, whatever its unit: known before anybody looks at a patient."""


class Histograms(NamedTuple):
    """What the sites told: `counts[c]` has the shape (sites, cells of column c), NaN for sites without answer."""

    sites: tuple[str, ...]
    columns: tuple[ColumnCells, ...]
    counts: tuple[Numbers, ...]
    noise: float = 0.0
    """The variance of the noise in every cell."""
    smallest: int = 1
    """Cells below this may have been told as 0: what stands there is an estimate."""

    def rows(self, column: int) -> Numbers:
        """How many patients each site told about."""
        return np.asarray(self.counts[column].sum(axis=1))

    def shares(self, column: int) -> Numbers:
        rows = self.rows(column)[:, None]
        return np.divide(self.counts[column], rows, out=np.full_like(self.counts[column], np.nan), where=rows > 0)


class Differences(NamedTuple):
    """Every pair of sites in every column, arrays of shape (columns, sites, sites); NaN where one has no answer."""

    distance: Numbers
    """Beyond chance, from 0 (alike) to 1 (nothing in common); an estimate without bias, so it can fall below 0."""
    error: Numbers
    chance: Numbers
    """What two samples of these sizes differ by when their patients are alike; already taken off."""
    variation: Numbers
    """The share of patients who would have to be different ones, chance included (total variation)."""
    p: Numbers
    """How often chance alone makes as large a difference (chi-square)."""

    @property
    def overall(self) -> tuple[Numbers, Numbers, Numbers]:
        """Mean over the columns of the distance, its standard error (columns taken as independent), and of chance."""
        columns = max(1, len(self.distance))
        error = np.sqrt((self.error**2).sum(axis=0)) / columns
        return self.distance.sum(axis=0) / columns, error, self.chance.sum(axis=0) / columns


def count_queries(epsilon: float, smallest_cell: int) -> tuple[Recipe, ...]:
    """The questions by which `histograms` learns all it does, as a choice of partners announces them."""
    settings = (("epsilon", epsilon), ("seed", None), ("smallest_cell", smallest_cell))
    return (Recipe("query", "kinds_of"), Recipe("query", "names_of", settings), Recipe("query", "cells_of", settings))


def ask_histograms(
    engine: Engine, *, epsilon: float = 0.0, smallest_cell: int = 5, seed: int | None = None
) -> Histograms:
    """Agree on cells with all sites, then ask each for its counts; `seed` fixes the noise and is for tests only."""
    kinds = engine.ask(kinds_of(), Message({}))["kinds"]
    share = epsilon / max(1, len(kinds))
    search, final = share / 4, share * 3 / 4
    words = [name for name, kind in kinds.items() if kind == "text"]
    columns: dict[str, ColumnCells] = {}
    if words:
        told = engine.ask(
            names_of(epsilon=search, smallest_cell=smallest_cell, seed=seed), Message({"columns": pack(words)})
        )
        columns |= {name: ColumnCells(name, names=tuple(told["names"][name])) for name in words}
    numbers = [name for name, kind in kinds.items() if kind != "text"]
    steps, rows = ZOOMS + 1, dict[str, float]()

    def ask(some: Sequence[ColumnCells], spent: float, turn: int) -> Report:
        query = cells_of(epsilon=spent, smallest_cell=smallest_cell, seed=None if seed is None else seed + turn)
        return engine.ask(query, Message({"columns": pack([column._asdict() for column in some])}))

    found = {name: ColumnCells(name, tuple(WIDE), low=WIDE[0], high=WIDE[-1], number=True) for name in numbers}
    for turn in range(steps if found else 0):
        report = ask(list(found.values()), search / steps, turn + 1)
        agreed = zoom_edges if turn < steps - 1 else merge_cells
        counts = {name: pool_counts(report, name, search / steps) for name in found}
        if turn == 0:
            rows = {name: count.sum() for name, count in counts.items()}
        # Where noise leaves less than half of the rows standing out, there is nothing more to be learned.
        counts = {name: count * (count.sum() >= rows[name] / 2) for name, count in counts.items()}
        found = {name: agreed(column, counts[name]) for name, column in found.items()}
    columns |= found
    ordered = [columns[name] for name in kinds]
    report = ask(ordered, final, 0) if ordered else {"sites": {}}
    return arrange_answers(report, tuple(engine.sites), tuple(ordered), smallest_cell, noise_variance(final))


def pool_counts(report: Report, name: str, epsilon: float) -> Numbers:
    """The counts of all sites together in the cells that hold values; what may be nothing but noise is taken as 0."""
    counts = np.sum([np.array(told[name]["cells"][:-1], float) for told in report["sites"].values()], axis=0)
    return np.where(counts > 3 * math.sqrt(len(report["sites"]) * noise_variance(epsilon)), counts, 0.0)


def zoom_edges(column: ColumnCells, counts: Numbers) -> ColumnCells:
    """Finer edges over the range that holds all but a hundredth at either end."""
    if not counts.sum() > 0:
        return column
    low, high = occupied_range(column, counts)
    edges = tuple(np.linspace(low, high, ZOOM + 1).tolist())
    return column._replace(edges=edges, low=low, high=high)


def occupied_range(column: ColumnCells, counts: Numbers) -> tuple[float, float]:
    if not counts.sum() > 0:
        return column.low, column.high
    bounds = np.array([column.low, *column.edges, column.high])
    share = np.cumsum(counts) / counts.sum()
    first, last = int(np.argmax(share > 0.01)), int(np.argmax(share >= 0.99))
    low, high = float(bounds[first]), float(bounds[last + 1])
    return (low, high) if high > low else (column.low, column.high)


def merge_cells(column: ColumnCells, counts: Numbers) -> ColumnCells:
    """Neighbouring cells put together until each holds its part of all sites' rows."""
    low, high = occupied_range(column, counts)
    total, full = counts.sum(), 0.0
    edges = list[float](column.edges[:: ZOOM // 4]) if not total > 0 else []
    for index, edge in enumerate(column.edges if total > 0 else ()):
        full += counts[index]
        if full >= total / CELLS and counts[index + 1 :].sum() >= total / CELLS / 2:
            edges.append(edge)
            full = 0.0
    return column._replace(edges=tuple(edges), low=low, high=high)


def arrange_answers(
    report: Report, sites: tuple[str, ...], columns: tuple[ColumnCells, ...], smallest: int, noise: float
) -> Histograms:
    """Answers in the order of the engine's sites, the cells told as 0 filled in as far as what was withheld goes."""
    counts = []
    for column in columns:
        told = [report["sites"].get(site, {}).get(column.name) for site in sites]
        cells = np.array([[np.nan] * column.cells if one is None else one["cells"] for one in told], np.float64)
        rest = np.array([0 if one is None else one["rest"] for one in told], np.float64)
        cells = cells.reshape(len(sites), column.cells)
        # Noise already allows for what a cell told as 0 may have held.
        counts.append(cells if noise else complete_counts(cells, rest, smallest))
    return Histograms(sites, columns, tuple(counts), noise, smallest + math.ceil(3 * math.sqrt(noise)))


def complete_counts(cells: Numbers, rest: Numbers, smallest: int) -> Numbers:
    """Cells told as 0 get what all sites together lead to expect, at most what was withheld from them.

    Else two like sites would seem to differ where the one had 4 patients, told as 0, and the other 6. Where no sum of
    withheld cells was told, fewer than `smallest` patients lie in the largest cell that are of another one.
    """
    pooled_shares = np.nansum(cells, axis=0) / max(1.0, float(np.nansum(cells) + rest.sum()))
    rows = cells.sum(axis=1) + rest
    filled = np.where(cells == 0, np.minimum(rows[:, None] * pooled_shares, smallest - 1), 0.0)
    wanted = filled.sum(axis=1)
    most = np.where(rest > 0, rest, np.minimum(wanted, smallest - 1))
    empty = (cells == 0) / np.maximum(1, (cells == 0).sum(axis=1))[:, None]
    safe = np.where(wanted > 0, wanted, 1.0)[:, None]
    filled = np.where((wanted > 0)[:, None], filled / safe, empty) * most[:, None]
    result = np.where(np.isnan(cells), np.nan, cells + filled)
    largest = np.argmax(np.nan_to_num(cells), axis=1)
    result[np.arange(len(cells)), largest] -= np.where(rest > 0, 0.0, most)
    return np.asarray(result)


def differences(told: Histograms) -> Differences:
    """All pairs in all columns: 1/2 sum (p - q)² / (p + q), less what chance and noise add to it on average."""
    each = [column_pairs(told, index) for index in range(len(told.columns))]
    sites = len(told.sites)
    empty = np.zeros((0, sites, sites))
    return Differences(
        *(np.stack(parts) if each else empty for parts in (zip(*each, strict=True) if each else [()] * 5))
    )


def column_differences(told: Histograms, found: Differences, here: int, there: int) -> dict[str, dict[str, float]]:
    """What differs between two sites, column by column, as plain values; p is corrected for the number of columns."""
    corrected = holm(np.nan_to_num(found.p[:, here, there], nan=1.0))
    return {
        column.name: {
            "distance": float(found.distance[at, here, there]),
            "error": float(found.error[at, here, there]),
            "variation": float(found.variation[at, here, there]),
            "p": float(corrected[at]),
        }
        for at, column in enumerate(told.columns)
        if np.isfinite(found.distance[at, here, there])
    }


def column_pairs(told: Histograms, index: int) -> tuple[Numbers, ...]:
    p, rows = told.shares(index), told.rows(index)
    gap = p[:, None] - p[None]
    inverse = 1 / np.where(rows > 0, rows, np.nan)
    pair = inverse[:, None] + inverse[None]
    # Under equality both samples estimate one distribution; weighting by size makes the sum Pearson's chi-square.
    mean = (p[:, None] * inverse[None, :, None] + p[None] * inverse[:, None, None]) / pair[..., None]
    # Noise is as large in cells that are all but empty: without a floor, dividing by them would magnify it.
    floor = np.sqrt(told.noise) * pair[..., None] / 2
    held = mean > 0
    safe = np.where(held, mean + floor, 1.0)
    statistic = np.where(held, gap**2 / safe, 0.0).sum(axis=-1) / pair
    noise = told.noise * inverse[:, None] ** 2 * (p > 0)  # a cell told as 0 holds none
    each = np.where(held, (mean + (noise[:, None] + noise[None]) / pair[..., None]) / safe, 0.0)
    fixed = np.where(held, mean**2 / safe, 0.0).sum(axis=-1)  # 1 without noise: the shares add up to 1
    expected = np.maximum(each.sum(axis=-1) - fixed, 0.0)
    spread = 2 * np.maximum((each**2).sum(axis=-1) - fixed, 0.0)
    total = p[:, None] + p[None] + 2 * floor
    apart = np.where(held, gap**2 / np.where(held, total, 1.0), 0.0).sum(axis=-1) / 2 + 0 * pair
    chance = expected * pair / 4
    # A chi-square with surplus has the variance 2 f + 4 surplus; pair / 4 turns it into a distance.
    surplus = np.maximum(statistic - expected, 0.0)
    error = pair / 4 * np.sqrt(spread + 4 * surplus)
    some = expected > 1e-9
    scale = np.where(some, spread / np.where(some, 2 * expected, 1.0), 1.0)
    rare = np.where(some, chi2.sf(statistic / scale, np.where(some, expected / scale, 1.0)), 1.0) + 0 * pair
    return apart - chance, error, chance, np.abs(gap).sum(axis=-1) / 2, rare
