"""Logistic regression by Newton's method from sums: score, information and log-likelihood at given coefficients."""

from typing import Any, NamedTuple

import numpy as np

Matrix = np.ndarray[Any, Any]
FARTHEST = 10.0
"""Log-odds beyond which a site does not answer where small groups are protected: so steep a curve could single out one
patient, and the difference of two answers would be that patient's row."""


class NewtonSums(NamedTuple):
    """Sums over patients; `information` is the negative second derivative."""

    score: Matrix
    information: Matrix
    likelihood: Matrix


def chances(x: Matrix, coefficients: Matrix) -> Matrix:
    return 1 / (1 + np.exp(-np.clip(x @ coefficients, -700, 700)))


def newton_sums(x: Matrix, y: Matrix, coefficients: Matrix) -> NewtonSums:
    eta = x @ coefficients
    e = chances(x, coefficients)
    return NewtonSums(
        x.T @ (y - e), (x * (e * (1 - e))[:, None]).T @ x, np.asarray((y * eta - np.logaddexp(0, eta)).sum())
    )


def is_steep(x: Matrix, coefficients: Matrix) -> bool:
    """Whether these coefficients put a patient beyond what a site answers to."""
    return bool(len(x) and np.abs(x @ coefficients).max() > FARTHEST)


def fit_logistic(x: Matrix, y: Matrix) -> tuple[Matrix, Matrix] | None:
    """Coefficients and their covariance, from rows in one place; none where there is no finite answer."""
    beta = np.zeros(x.shape[1])
    for _ in range(30):
        told = newton_sums(x, y, beta)
        if np.linalg.matrix_rank(told.information) < len(beta):
            return None
        step = np.linalg.solve(told.information, told.score)
        beta = beta + step
        if np.abs(x @ beta).max() > 30:
            return None
        if np.abs(step).max() < 1e-10:
            return beta, np.linalg.inv(newton_sums(x, y, beta).information)
    return None
