"""Templates that several sites have, by k-means over sites: each tells sums of its own templates, never one of them.

A site clusters its own series (z-normalised); the centroid of a cluster of enough series is a template of its own, the
distance of the farthest member its radius. The coordinator's centroids start at the mean of all and are split until
there are enough (Linde, Buzo and Gray 1980); in every exchange a site adds its templates up by the nearest centroid. A
shape that fewer than `fewest_sites` sites have is dropped. The largest radius of a shape is read from counts on a grid.
"""

from typing import Any

import numpy as np

from wardround.weak_supervision.series import squared_distances, z_normalised

Values = np.ndarray[Any, Any]
MOST_OWN = 40
PASSES = 8
GRID = 32
"""Steps of the radius, up to twice the root of the number of samples: the largest distance of two series."""


def own_templates(series: Values, least: int, seed: int) -> tuple[Values, Values]:
    """(templates, radii) of this site, each the mean of `least` series or more."""
    whole = series[np.isfinite(series).all(axis=1)].astype(np.float64)
    rows = z_normalised(whole) if len(whole) else whole
    many = min(MOST_OWN, 3 if len(rows) < 20 else len(rows) // 5)
    if len(rows) < max(least, many, 1):
        return np.zeros((0, series.shape[1])), np.zeros(0)
    generator = np.random.default_rng(seed)
    centers = rows[generator.choice(len(rows), many, replace=False)]
    for _ in range(PASSES):
        nearest = squared_distances(rows, centers).argmin(axis=1)
        counts = np.bincount(nearest, minlength=many)
        sums = np.zeros_like(centers)
        np.add.at(sums, nearest, rows)
        centers = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)
    nearest = squared_distances(rows, centers).argmin(axis=1)
    groups = [rows[nearest == place] for place in range(many) if (nearest == place).sum() >= max(1, least)]
    # The means of just these groups: those of the last pass may be of fewer series, even of one.
    templates = np.array([group.mean(axis=0) for group in groups]).reshape(-1, series.shape[1])
    radii = [
        float(np.sqrt(squared_distances(group, one[None])).max()) for group, one in zip(groups, templates, strict=True)
    ]
    return templates, np.array(radii)


def step_of(length: int) -> float:
    return 2 * float(np.sqrt(length)) / GRID


def sums_by_shape(templates: Values, radii: Values, centers: Values) -> dict[str, Values]:
    """What a site tells: sums of its templates by the nearest center, how many, that it has one, radii on the grid."""
    many, length = centers.shape
    found = {
        "sums": np.zeros((many, length)),
        "templates": np.zeros(many),
        "sites": np.zeros(many),
        "radii": np.zeros((many, GRID)),
    }
    if not len(templates):
        return found
    nearest = squared_distances(templates, centers).argmin(axis=1)
    np.add.at(found["sums"], nearest, templates)
    np.add.at(found["templates"], nearest, 1.0)
    found["sites"][np.unique(nearest)] = 1.0
    places = np.clip(np.ceil(radii / step_of(length)).astype(int) - 1, 0, GRID - 1)
    found["radii"][nearest, places] = 1.0
    return found


def moved(centers: Values, sums: Values, templates: Values) -> Values:
    """Centers at the mean of what lies nearest; one that nothing is near stays."""
    return np.asarray(np.where(templates[:, None] > 0.5, sums / np.maximum(templates, 1.0)[:, None], centers))


def split(centers: Values, seed: int) -> Values:
    """Twice as many, a little to either side of each."""
    push = 0.05 * np.random.default_rng((seed, len(centers))).normal(size=centers.shape)
    return np.concatenate([centers + push, centers - push])


def largest_radii(radii: Values, length: int) -> Values:
    """The upper end of the last step that some template's radius lies in."""
    last = GRID - 1 - (np.asarray(radii) > 0.5)[:, ::-1].argmax(axis=1)
    return np.asarray((last + 1) * step_of(length))
