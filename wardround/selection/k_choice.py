"""The number of neighbours k: where competence stops changing from one half of the validation patients to the other.

Caldas 2022, appendix B.1: patients for whom the other classifier has the smaller loss, and those for whom it has not,
are two groups; for each the Renyi divergence (Poczos and Schneider, "On the estimation of alpha-divergences", AISTATS
2011) between the competence in two halves of the validation set is a curve over k; the larger k of the two knees is
taken. Or by cross-validation, each patient left out of its own neighbours: the k by which the most loss is saved.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from wardround.selection.competence import competence, loss_nearby
from wardround.selection.neighbours import nearest

Values = np.ndarray[Any, Any]
GRID = (2, 7, 15, 50, 100, 150, 500, 1000)
ALPHA = 0.9
NEIGHBOUR = 5


class KChoice(NamedTuple):
    """The chosen k and the curves it was read from, by group; empty where k was given."""

    k: int
    grid: tuple[int, ...] = ()
    curves: tuple[tuple[float, ...], ...] = ()
    how: str = "given"


def renyi_divergence(one: Values, other: Values, alpha: float = ALPHA, neighbour: int = NEIGHBOUR) -> float:
    """Between the distributions of two samples of numbers, from the distances to the k-th neighbours (k `neighbour`).

    Never below 0, since the true one is not; 0 as well where a sample is too small to tell.
    """
    if min(len(one) - 1, len(other)) < neighbour:
        return 0.0
    within = _distance(np.sort(one), one, neighbour + 1)  # the nearest is the value itself
    across = _distance(np.sort(other), one, neighbour)
    known = (within > 0) & (across > 0)
    if not known.any():
        return 0.0
    ratio = np.log((len(one) - 1) * within[known]) - np.log(len(other) * across[known])
    bias = 2 * gammaln(neighbour) - gammaln(neighbour - alpha + 1) - gammaln(neighbour + alpha - 1)
    integral = np.exp((1 - alpha) * ratio).mean() * np.exp(bias)
    return max(0.0, float(np.log(integral) / (alpha - 1)))


def _distance(ordered: Values, at: Values, neighbour: int) -> Values:
    """From each value to its neighbour of this rank among the ordered ones."""
    place = np.searchsorted(ordered, at)
    around = place[:, None] + np.arange(-neighbour, neighbour)
    gaps = np.abs(ordered[np.clip(around, 0, len(ordered) - 1)] - at[:, None])
    gaps[(around < 0) | (around >= len(ordered))] = np.inf
    return np.partition(gaps, neighbour - 1, axis=1)[:, neighbour - 1]


def knee(curve: Sequence[float]) -> int:
    """The place where a falling curve bends: farthest below the line from its first to its last point.

    >>> knee([10, 4, 1.5, 1, 0.8]), knee([4, 3, 2, 1, 0]), knee([1, 1, 1])
    (2, 0, 0)
    """
    values = np.asarray(curve, float)
    if len(values) < 3 or values[0] <= values[-1]:
        return int(np.argmin(values)) if len(values) and values.max() > values.min() else 0
    line = np.linspace(values[0], values[-1], len(values))
    below = line - values
    return int(np.argmax(below)) if below.max() > 1e-12 * abs(values[0]) else 0


def halves(patients: Values, rng: np.random.Generator) -> tuple[Values, Values]:
    """Rows of two halves of the patients."""
    codes = np.unique(patients, return_inverse=True)[1]
    chosen = rng.permutation(int(codes.max()) + 1) < (int(codes.max()) + 1) // 2
    return np.flatnonzero(chosen[codes]), np.flatnonzero(~chosen[codes])


def choose_k(
    x: Values,
    losses: Values,
    patients: Values,
    rng: np.random.Generator,
    *,
    grid: Sequence[int] = GRID,
    where: str = "",
) -> KChoice:
    """By the heuristic of B.1; `losses` is (own and others, rows), and the first other is the one compared."""
    parts = halves(patients, rng)
    usable = _usable(grid, min(len(part) for part in parts), patients)
    better = losses[1:].min(axis=0) < losses[0]
    ratios = [_ratios(x[part], losses[:, part], patients[part], usable, where) for part in parts]
    curves = []
    for group in (True, False):
        of = [better[part] == group for part in parts]
        curves.append(tuple(renyi_divergence(ratios[0][at][of[0]], ratios[1][at][of[1]]) for at in range(len(usable))))
    chosen = max(usable[knee(curve)] for curve in curves)
    return KChoice(chosen, tuple(usable), tuple(curves), "divergence")


def choose_k_by_folds(
    x: Values, losses: Values, patients: Values, *, grid: Sequence[int] = GRID, where: str = ""
) -> KChoice:
    """The k that saves the most loss where the more competent classifier decides; no patient is its own neighbour."""
    usable = _usable(grid, len(x), patients)
    near = nearest(x, x, max(usable), patients=(patients, patients), where=where)
    rows = np.arange(len(x))
    saved = []
    for k in usable:
        found = competence(loss_nearby(losses, near[:, :k]))
        best = found.argmax(axis=0)
        taken = found[best, rows] > 0
        saved.append(float(np.where(taken, losses[0] - losses[1 + best, rows], 0.0).mean()))
    return KChoice(usable[int(np.argmax(saved))], tuple(usable), (tuple(saved),), "folds")


def _usable(grid: Sequence[int], rows: int, patients: Values) -> list[int]:
    most = rows - int(np.unique(patients, return_counts=True)[1].max())
    return [k for k in grid if k <= most] or [max(1, min(grid[0], most))]


def _ratios(x: Values, losses: Values, patients: Values, grid: Sequence[int], where: str) -> list[Values]:
    near = nearest(x, x, max(grid), patients=(patients, patients), where=where)
    return [competence(loss_nearby(losses, near[:, :k])).max(axis=0) for k in grid]
