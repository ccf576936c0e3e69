"""Principal components from a covariance, and the covariance corrected for covariates."""

from typing import Any, NamedTuple

import numpy as np

Matrix = np.ndarray[Any, Any]


class Components(NamedTuple):
    """`loadings` has one row a component, longest variance first; `shares` are of the whole variance."""

    loadings: Matrix
    variances: Matrix
    shares: Matrix


def principal(covariance: Matrix, amount: int) -> Components:
    """The largest loading of every component is positive, as in scikit-learn."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    order = np.argsort(values)[::-1][:amount]
    loadings = vectors[:, order].T
    largest = np.abs(loadings).argmax(axis=1)
    loadings = loadings * np.sign(loadings[np.arange(len(loadings)), largest])[:, None]
    variances = np.maximum(values[order], 0.0)
    return Components(loadings, variances, variances / max(np.trace(covariance), 1e-300))


def corrected(products: Matrix, outcomes: int) -> tuple[Matrix, Matrix]:
    """From products around the means of outcomes and covariates: W by least squares, and the products of what is left.

    What is left of the outcomes y after the covariates z is y - z W with W = (z'z)^-1 z'y.
    """
    yy, zy = products[:outcomes, :outcomes], products[outcomes:, :outcomes]
    zz = products[outcomes:, outcomes:]
    coefficients = np.linalg.solve(zz, zy) if len(zz) else zy
    return coefficients, yy - zy.T @ coefficients


def truncated(products: Matrix, amount: int) -> Matrix:
    """The nearest matrix of so low a rank: the approximation of a site's covariance by its first components."""
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    kept = np.argsort(values)[::-1][:amount]
    return (vectors[:, kept] * values[kept]) @ vectors[:, kept].T


def scores(loadings: Matrix, mean: Matrix, scale: Matrix, x: Matrix, effects: Matrix | None = None) -> Matrix:
    """Where patients lie along the components, computed where their rows are; `effects` of covariates are taken off."""
    standard = (x - mean) / scale
    return (standard if effects is None else standard - effects) @ loadings.T
