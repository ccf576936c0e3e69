"""Where the values of every column lie, under noise: numbers counted between powers of two, words by their names.

The cells of numbers are the same everywhere and known beforehand, so a patient is in one cell of every column and moves
the table of d columns by sqrt(d) at most; each count gets Gaussian noise of `noise` times that. A word is named only
where its noised count passes a threshold that a word of a single patient passes with a probability of `delta` at most,
for all columns together (Korolova et al. 2009; with Gaussian noise, Wilkins et al. 2024). Infinite values and values
that are no numbers count as missing.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, NotNegative, Share
from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.privacy.noised_sums import noise_key, with_gaussian_noise
from wardround.queries.columns import as_numbers, as_text, kind_of
from wardround.queries.values import sum_over_sites

LOWEST, HIGHEST = -20, 40
"""Powers of two between which numbers are told apart; nearer to 0 they count as 0, farther out as the last cell."""
CELLS = 2 * (HIGHEST - LOWEST) + 1
Numbers = np.ndarray[Any, Any]
TERMS = Terms(
    "noised counts of numbers between powers of two, and the names of categories that enough patients have, with noised"
    " counts",
    lambda of: of.columns * (CELLS + of.settings.get("most", 200)),
)


def cell_edges() -> Numbers:
    """Lower and upper end of every cell, from the most negative on; the middle one is 0 and what is near it."""
    powers = 2.0 ** np.arange(LOWEST, HIGHEST + 1)
    edges = np.concatenate([-powers[::-1], powers])
    return np.stack([edges[:-1], edges[1:]], axis=1)


def cell_counts(values: Numbers) -> Numbers:
    """How many of the finite values are in each cell."""
    known = values[np.isfinite(values)]
    edges = cell_edges()
    inner = edges[1:, 0]
    return np.bincount(np.searchsorted(inner, known, side="right"), minlength=CELLS)[:CELLS]


def finite_values(column: "pd.Series[Any]") -> Numbers:
    """The column as numbers, NaN where it holds none."""
    if kind_of(column) in ("number", "flag"):
        values = as_numbers(column)
        return np.where(np.isfinite(values), values, np.nan)
    return np.full(len(column), np.nan)


def name_threshold(deviation: float, delta: float, words: int) -> float:
    """A noised count of 1 passes it, in any of so many columns, with a probability of delta at most."""
    if not deviation > 0:
        return 0.5
    return 1 + deviation * NormalDist().inv_cdf(1 - min(0.5, delta / max(1, words)))


@recorded("query", TERMS)
def noised_counts(
    *,
    columns: tuple[str, ...],
    words: tuple[str, ...] = (),
    noise: NotNegative,
    delta: Share,
    most: Count = 200,
    seed: int | None = None,
) -> Query:
    """Noised counts of the columns' values: of those that are `words` by name, of the others between powers of two."""
    deviation = noise * math.sqrt(max(1, len(columns)))
    numbers = [name for name in columns if name not in words]
    named = [name for name in columns if name in words]
    least = name_threshold(deviation, delta, len(named))

    def ask(_: Message, site: Site) -> Message:
        counts = np.array([cell_counts(finite_values(site.table[name])) for name in numbers], np.float64)
        cells = counts.reshape(len(numbers), CELLS)
        told: dict[str, dict[str, float]] = {}
        for name in named:
            labels, times = np.unique([one for one in as_text(site.table[name]) if one is not None], return_counts=True)
            noisy = with_gaussian_noise(times, deviation, noise_key(seed, "names", site.name, name))
            passing = sorted(np.flatnonzero(noisy > least), key=lambda at: -noisy[at])[:most]
            told[name] = {str(labels[at]): float(noisy[at]) for at in sorted(passing)}
        noised = with_gaussian_noise(cells, deviation, noise_key(seed, "cells", site.name))
        return Message({"cells": noised, "names": pack(told)})

    def combine(answers: Sequence[Message]) -> Report:
        names: dict[str, dict[str, float]] = {name: {} for name in named}
        for answer in answers:
            for name, labels in unpack(answer.arrays["names"]).items():
                for label, count in labels.items():
                    names[name][label] = names[name].get(label, 0.0) + count
        cells = sum_over_sites(answers, "cells").tolist()
        return {"cells": dict(zip(numbers, cells, strict=True)), "names": names, "sites": len(answers)}

    return Query(ask, combine)
