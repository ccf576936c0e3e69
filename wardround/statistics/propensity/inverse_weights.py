"""The average effect of a treatment by inverse probability weights, with an honest standard error.

Means are weighted by 1 / e for the treated and 1 / (1 - e) for the others, over the sum of weights (Hajek).
The standard error is the sandwich of all equations together, those of the propensity model included (Lunceford and
Davidian 2004; Stefanski and Boos 2002): psi = [x (t - e), t (y - mu1) / e, (1 - t) (y - mu0) / (1 - e)].
"""

from typing import Any, NamedTuple

import numpy as np

Matrix = np.ndarray[Any, Any]


class SandwichSums(NamedTuple):
    """Sums over patients: of the derivative of psi (bread), and of psi psi' (meat)."""

    bread: Matrix
    meat: Matrix


def weighted_means(t: Matrix, e: Matrix, y: Matrix) -> Matrix:
    """[sum w y, sum w, sum w^2] of the treated and of the others, for two means and two effective numbers."""
    parts = []
    for w in (t / e, (1 - t) / (1 - e)):
        parts.append([(w * y).sum(), w.sum(), (w**2).sum()])
    return np.array(parts)


def sandwich_sums(x: Matrix, t: Matrix, e: Matrix, y: Matrix, means: Matrix) -> SandwichSums:
    treated, other = y - means[0], y - means[1]
    psi = np.column_stack([x * (t - e)[:, None], t * treated / e, (1 - t) * other / (1 - e)])
    size = x.shape[1]
    bread = np.zeros((size + 2, size + 2))
    bread[:size, :size] = (x * (e * (1 - e))[:, None]).T @ x
    # de / db = e (1 - e) x, so d(1 / e) / db = -(1 - e) / e x, and d(1 / (1 - e)) / db = e / (1 - e) x.
    bread[size, :size] = (t * treated * (1 - e) / e) @ x
    bread[size + 1, :size] = -((1 - t) * other * e / (1 - e)) @ x
    bread[size, size] = (t / e).sum()
    bread[size + 1, size + 1] = ((1 - t) / (1 - e)).sum()
    return SandwichSums(bread, psi.T @ psi)


def effect_error(sums: SandwichSums) -> tuple[float, Matrix]:
    """The standard error of mu1 - mu0, and the covariance of all that was estimated."""
    turned = np.linalg.inv(sums.bread)
    covariance = turned @ sums.meat @ turned.T
    contrast = np.zeros(len(covariance))
    contrast[-2:] = 1, -1
    return float(np.sqrt(contrast @ covariance @ contrast)), covariance


def balance_sums(z: Matrix, t: Matrix, e: Matrix) -> Matrix:
    """(2 weightings, 2 groups, 3, columns): sums of w, w z and w z^2 of the treated and the others."""
    told = []
    for treated, other in ((t, 1 - t), (t / e, (1 - t) / (1 - e))):
        told.append([[np.full(z.shape[1], w.sum()), w @ z, w @ z**2] for w in (treated, other)])
    return np.array(told)


def standardized_differences(sums: Matrix) -> Matrix:
    """(2 weightings, columns): the difference of means in standard deviations of the unweighted groups."""
    mean = sums[:, :, 1] / sums[:, :, 0]
    variance = sums[0, :, 2] / sums[0, :, 0] - mean[0] ** 2
    scale = np.sqrt(np.maximum(variance.mean(axis=0), 1e-300))
    return (mean[:, 0] - mean[:, 1]) / scale
