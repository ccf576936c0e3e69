"""A map of the sites: near each other where they are alike, so that a person sees the groups.

Classical multidimensional scaling (Torgerson, "Multidimensional scaling: I. Theory and method", 1952): the positions in
the plane whose distances come nearest to the given ones. Needs the matrix of distances only; costs one
eigendecomposition, about a second for a thousand sites.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Report

Numbers = np.ndarray[Any, Any]


class Places(NamedTuple):
    """Positions (sites, 2), NaN for sites without answer; the mean of those placed is at (0, 0)."""

    positions: Numbers
    shown: float
    """The share of the differences between sites that the plane shows; 1 where there are none."""


def place_sites(distances: Numbers) -> Places:
    """Two-dimensional positions from a symmetric (sites, sites) matrix of distances.

    A site is left out when it has no distance to most of the others; a single distance that is still missing (or, being
    an estimate, below 0) is taken as the mean of the rest (or as 0).
    """
    whole = np.asarray(distances, np.float64)
    known = connected_sites(whole)
    positions = np.full((len(whole), 2), np.nan)
    matrix = np.maximum(whole[np.ix_(known, known)], 0.0)
    matrix = np.where(np.isfinite(matrix), matrix, matrix.T)
    off = ~np.eye(len(matrix), dtype=bool)
    given = off & np.isfinite(matrix)
    matrix = np.where(np.isfinite(matrix), matrix, matrix[given].mean() if given.any() else 0.0)
    matrix = np.where(off, (matrix + matrix.T) / 2, 0.0)
    if not len(matrix):
        return Places(positions, 1.0)
    squared = matrix**2
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean())
    values, vectors = np.linalg.eigh(centred)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    # Rounding alone leaves tiny values, which would be drawn as differences where there are none.
    values = np.where(values > 1e-12 * max(1.0, float(squared.max())), values, 0.0)
    plane = np.zeros((len(matrix), 2))
    wide = min(2, len(matrix))
    plane[:, :wide] = vectors[:, :wide] * np.sqrt(values[:wide])
    positions[known] = plane * fix_signs(plane)
    total = float(values.sum())
    return Places(positions, float(values[:2].sum()) / total if total > 0 else 1.0)


def connected_sites(distances: Numbers) -> Numbers:
    """Indices of the sites that have a distance to at least half of the others that have any."""
    finite = np.isfinite(distances) | np.isfinite(distances.T)
    np.fill_diagonal(finite, False)
    some = finite.any(axis=1)
    if len(distances) == 1:
        return np.arange(1)
    enough = finite.sum(axis=1) * 2 >= some.sum() - 1
    return np.flatnonzero(some & enough)


def fix_signs(plane: Numbers) -> Numbers:
    """An eigenvector may point either way: the entry farthest from 0 (the first of equals) is made positive."""
    rounded = np.round(np.abs(plane) / max(float(np.abs(plane).max(initial=0.0)), 1e-300), 9)
    extreme = plane[np.argmax(rounded, axis=0), np.arange(2)]
    return np.where(extreme < 0, -1.0, 1.0)


def map_of(names: Sequence[str], distances: Numbers, shown: Sequence[int]) -> Report:
    """The positions of the sites with these indices as plain values, by name."""
    wanted = np.isin(np.arange(len(names)), shown)
    places = place_sites(np.where(wanted[:, None] & wanted[None], distances, np.nan))
    at = {name: [float(x), float(y)] for name, (x, y) in zip(names, places.positions, strict=True) if np.isfinite(x)}
    return {"positions": at, "shown": places.shown}
