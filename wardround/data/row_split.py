"""Train, validation and test rows of one site: a function of the seed, the site's name and its own rows only.

So a site's split stays what it is when other sites come or go, and a real site makes the same split for itself. A split
is one fold of a cross-validation: fold 0 is the split of a single run, and over all folds every patient is tested once.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.federation import PARTS

Rows = np.ndarray[Any, Any]


def generator(seed: int, *words: str) -> np.random.Generator:
    """A random generator of its own for every seed and name."""
    digest = hashlib.sha256(json.dumps([seed, *words]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def check_shares(shares: Sequence[float], *, trains: bool = True) -> None:
    """Refuse what are no shares, and nothing for training unless other rows are trained on."""
    good = len(shares) == len(PARTS) and all(0 <= s <= 1 for s in shares) and abs(sum(shares) - 1) < 1e-9
    if not good or (trains and shares[0] == 0):
        raise Refusal(
            f"{list(shares)} cannot be the shares of train, validation and test rows",
            remedy="give three numbers that add up to 1, the first above 0, such as [0.6, 0.2, 0.2]",
        )


def sizes(rows: int, shares: Sequence[float]) -> Rows:
    """Whole numbers nearest to the shares that add up to `rows`; train never goes without while there is a row.

    >>> sizes(10, (0.6, 0.2, 0.2)).tolist(), sizes(1, (0.2, 0.4, 0.4)).tolist()
    ([6, 2, 2], [1, 0, 0])
    """
    exact = np.asarray(shares, np.float64) * rows
    # Ten times 0.6 must be 6 although binary fractions may make it a hair less.
    whole = np.floor(exact + 1e-9).astype(np.int64)
    # Among equal remainders train goes first, then test: a site without test rows cannot be scored.
    preference = np.array([0, 2, 1])
    order = np.lexsort((preference, -np.round(exact - whole, 9)))
    whole[order[: rows - int(whole.sum())]] += 1
    if rows and shares[0] > 0 and whole[0] == 0:
        whole[np.argmax(whole)] -= 1
        whole[0] = 1
    return whole


def folds(shares: Sequence[float]) -> int:
    """Into how many folds the patients fall so that none is larger than the share of the test rows.

    >>> folds((0.6, 0.2, 0.2)), folds((0.5, 0.0, 0.5)), folds((0.7, 0.0, 0.3)), folds((0.8, 0.2, 0.0))
    (5, 2, 4, 1)
    """
    return ceil(1 / shares[2] - 1e-9) if shares[2] > 0 else 1


class Window(NamedTuple):
    """A fold of rows that lie in a line: those from `first` to before `end` are tested.

    The others, counted on from `end` and round to the beginning, train; the last `validation` of them validate.
    """

    first: int
    end: int
    validation: int


def window(rows: int, shares: Sequence[float], fold: int) -> Window:
    """Where a fold's test rows lie, from the end of the line (fold 0) to its beginning (the last).

    >>> [window(10, (0.6, 0.2, 0.2), fold)[:2] for fold in range(5)]
    [(8, 10), (6, 8), (4, 6), (2, 4), (0, 2)]
    """
    return _window(rows, tuple(shares), fold)


@lru_cache(maxsize=4096)
def _window(rows: int, shares: tuple[float, ...], fold: int) -> Window:
    train, validation, test = (int(size) for size in sizes(rows, shares))
    if not fold:
        return Window(train + validation, rows, validation)
    others = folds(shares) - 1
    end, first = ((rows - test) * (others - number) // others for number in (fold - 1, fold))
    rest = [share / (shares[0] + shares[1]) for share in shares[:2]]
    return Window(first, end, int(sizes(rows - (end - first), (*rest, 0.0))[1]))


def split(
    rows: int,
    *,
    seed: int,
    site: str,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    fold: int = 0,
    strata: Rows | None = None,
    by: Rows | None = None,
    trains: bool = True,
) -> tuple[Rows, Rows, Rows]:
    """Positions of the site's train, validation and test rows, each in ascending order.

    Folds of the same seed test other patients, all folds together every patient once (but a site's only one).
    `strata` (a label a row) keeps the classes' shares equal in all parts, as nearly as whole rows allow. `by` (a
    patient a row) keeps all rows of a patient in one part; sizes are then met as nearly as whole patients allow.
    `trains` says that one of these rows must be for training, whatever the shares.
    """
    check_shares(shares, trains=trains)
    random = generator(seed, "split", site)
    unit = np.arange(rows) if by is None else pd.factorize(by)[0]
    units = int(unit.max()) + 1 if rows else 0
    weight = np.bincount(unit, minlength=units)
    label = np.zeros(units, np.int64)
    if strata is not None:
        # A patient with several outcomes counts as the last of them in sorted order, so that rare events are spread.
        np.maximum.at(label, unit, np.unique(strata, return_inverse=True)[1])
    # Each class is spread evenly over the line from 0 to 1 in random order, so any cut meets its share of every class.
    shuffled = random.permutation(units)
    order = shuffled[np.argsort(label[shuffled], kind="stable")]
    counts = np.bincount(label, minlength=1)
    rank = np.arange(units) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = random.random(len(counts))
    place = (rank + np.repeat(offset, counts)) / np.repeat(np.maximum(counts, 1), counts)
    order = order[np.argsort(place, kind="stable")]
    # A patient belongs to the part in which the middle of its rows falls; with one row each this is an exact cut.
    middle = np.cumsum(weight[order]) - weight[order] / 2
    first, end, validation = window(rows, shares, fold % folds(shares))
    tested = (middle >= first) & (middle < end)
    validates = (middle - end) % max(rows, 1) >= rows - (end - first) - validation
    part = np.empty(units, np.int64)
    part[order] = np.where(tested, 2, validates)
    chosen = part[unit]
    if rows and trains and not (chosen == 0).any():
        chosen[:] = np.where(unit == order[0], 0, chosen)
    return np.flatnonzero(chosen == 0), np.flatnonzero(chosen == 1), np.flatnonzero(chosen == 2)
