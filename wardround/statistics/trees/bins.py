"""Bins that all sites share: where a column of numbers is cut follows from counts of all sites, never from a row.

Counts between powers of two come first; cells that hold many patients are then halved again and again, so that edges
are round numbers of the binary system and tell of nobody. Cells are joined to at most so many bins of like counts. A
category's levels are its bins. What is missing, or no agreed level, has a bin of its own: the last.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]
LOWEST, HIGHEST = -16, 40
"""Powers of two between which numbers are told apart at first."""
PASSES = 3
"""Exchanges of counts, each finer than the one before."""
FINEST = 512
"""Cells of one column that are counted at most."""
MOST_PARTS = 64
"""Into which one pass cuts a cell."""
MOST_BINS = 254


class Feature(NamedTuple):
    """One column: the edges of its bins (a value at an edge is above it), or the levels of a category."""

    name: str
    edges: Numbers
    levels: tuple[str, ...] = ()
    is_category: bool = False

    @property
    def size(self) -> int:
        """Bins of known values."""
        return len(self.levels) if self.is_category else len(self.edges) + 1


class Layout(NamedTuple):
    """How bins lie side by side: features have `width` places each, of which the last holds missing values."""

    width: int
    used: Numbers
    """(features, width): whether there is such a bin. Only these travel."""

    @property
    def total(self) -> int:
        return int(self.used.sum())


def layout_of(features: Sequence[Feature]) -> Layout:
    width = max((feature.size for feature in features), default=0) + 1
    used = np.arange(width) < np.array([feature.size for feature in features])[:, None]
    used[:, -1] = True
    return Layout(width, used)


def bin_numbers(values: Numbers, feature: Feature, missing: int) -> Numbers:
    """The bin of every value; compared in single precision, as a prediction will be."""
    single = np.asarray(values, np.float32)
    codes = np.searchsorted(feature.edges.astype(np.float32), single, side="right")
    return np.where(np.isfinite(single), codes, missing).astype(np.uint8)


def first_edges() -> Numbers:
    """Powers of two of either sign; values nearer to 0 than the smallest share a cell with 0."""
    powers = 2.0 ** np.arange(LOWEST, HIGHEST + 1)
    return np.concatenate([-powers[::-1], powers])


def count_cells(values: Numbers, edges: Numbers) -> Numbers:
    """How many finite values lie below the first edge, between each two, and above the last."""
    single = np.asarray(values, np.float32)
    known = single[np.isfinite(single)]
    return np.bincount(np.searchsorted(edges.astype(np.float32), known, side="right"), minlength=len(edges) + 1)


def finer_edges(edges: Numbers, counts: Numbers, bins: int) -> Numbers:
    """The same edges and more: cells are cut into equal parts, by powers of two, where they hold much.

    A cell that holds more than a bin should may be a single value, such as 0, that many patients share: it is looked
    into, but how fine the others are cut follows from what they hold themselves.
    """
    counts = np.maximum(counts, 0.0)
    # Beyond the outermost edges nothing can be halved.
    inner, total = counts[1:-1], counts.sum()
    if not total:
        return edges
    light = inner[inner <= total / bins].sum()
    aim = max(light, total / 64) / (4 * bins)
    while True:
        parts = np.minimum(2.0 ** np.ceil(np.log2(np.maximum(inner / aim, 1.0))), MOST_PARTS)
        if parts.sum() + 1 <= FINEST:
            break
        aim *= 1.5
    pieces = [
        np.linspace(low, high, int(many), endpoint=False)
        for low, high, many in zip(edges[:-1], edges[1:], parts, strict=True)
    ]
    # Cells that hold nothing are joined again, so that a finer pass has room.
    return without_empty(np.append(np.concatenate(pieces), edges[-1]), np.repeat(inner > 0, parts.astype(int)))


def without_empty(edges: Numbers, filled: Numbers) -> Numbers:
    """Edges between which there is something, on either side of each run of empty cells."""
    beside = np.concatenate([[False], filled]) | np.concatenate([filled, [False]])
    return edges[beside] if beside.any() else edges


def join_cells(edges: Numbers, counts: Numbers, bins: int, least: float) -> Numbers:
    """The edges of at most so many bins of like counts, none of which holds fewer than `least` patients."""
    filled = np.flatnonzero(counts > 0)
    cuts: list[float] = []
    held, left, room = 0.0, float(counts[filled].sum()), bins
    for before, after in itertools.pairwise(filled):
        held += float(counts[before])
        # Half of the next cell would lie beyond: cut here rather than there. Few cells are a bin each.
        full = len(filled) <= bins or held + counts[after] / 2 >= left / room
        if full and room > 1 and held >= least and left - held >= least:
            cuts.append(float(edges[after - 1]))
            left, held, room = left - held, 0.0, room - 1
    return np.array(cuts)
