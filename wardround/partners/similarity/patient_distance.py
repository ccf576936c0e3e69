"""How far the sites' patients are apart, beyond chance: from their histograms, the outcome's included.

Says nothing about what findings mean. But where sites with unlike patients also have unlike coefficients, it tells who
belongs together before the coefficients do (see `wardround.partners.similarity.site_groups`).
"""

from typing import Any

import numpy as np

from wardround.partners.similarity.histograms import Histograms

Numbers = np.ndarray[Any, Any]


def patients_apart(told: Histograms, sites: Numbers) -> Numbers:
    """(sites, sites): squared distances of the sites' patients, 2 in the mean; all 0 where none are known to differ."""
    count, parts, freedom = len(sites), [np.zeros((len(sites), 0))], 0
    chance = np.zeros(count)
    for index in range(len(told.columns)):
        rows, shares = told.rows(index)[sites], told.shares(index)[sites]
        answered = np.isfinite(rows) & (rows > 0)
        if answered.sum() < 2:
            continue
        mean = told.counts[index][sites][answered].sum(axis=0) / rows[answered].sum()
        held = mean > 0
        apart = (shares - mean)[:, held] / np.sqrt(mean[held])
        parts.append(np.where(answered[:, None], apart, 0.0))
        safe = np.where(answered, rows, np.inf)
        chance += (int(held.sum()) - 1) / safe + told.noise * float((1 / mean[held]).sum()) / safe**2
        freedom += int(held.sum()) - 1
    if not freedom:
        return np.zeros((count, count))
    embedded, centre = np.concatenate(parts, axis=1), np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(centre @ (embedded @ embedded.T - np.diag(chance)) @ centre)
    # Chance spreads its eigenvalues around their mean, up to this edge (Marchenko and Pastur 1967).
    edge = float(chance.mean()) * (2 * np.sqrt(count / freedom) + count / freedom)
    values = np.where(values > edge, values, 0.0)
    if not values.any():
        return np.zeros((count, count))
    kernel = (vectors * values) @ vectors.T * (count - 1) / values.sum()
    return np.asarray(np.diag(kernel)[:, None] + np.diag(kernel)[None] - 2 * kernel)
