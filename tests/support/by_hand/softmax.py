"""Softmax regression with two classes: its parameters as one matrix, a site's rows, and the gradient by its formula."""

from typing import Any

import numpy as np

from wardround.core.contracts import Params
from wardround.core.federation import Federation

Numbers = np.ndarray[Any, Any]
START = np.random.default_rng(0).normal(0, 0.5, (4, 2))
"""A model to begin with: three features, two classes."""


def params_of(w: Numbers) -> Params:
    """The model's parameters from one matrix: a row a feature, and the intercepts as the last row."""
    return {"dense_0/kernel": w[:-1].astype(np.float32), "dense_0/bias": w[-1].astype(np.float32)}


def matrix_of(params: Params) -> Numbers:
    """The matrix again; of stacked models, a stack of matrices."""
    return np.concatenate([params["dense_0/kernel"], np.asarray(params["dense_0/bias"])[..., None, :]], axis=-2)


def rows_at(federation: Federation, site: int, part: str = "train") -> tuple[Numbers, Numbers]:
    """A site's rows with a column of ones for the intercept, and its labels."""
    first, count = (column[site] for column in federation.part(part))
    x = federation.x[first : first + count].astype(np.float64)
    return np.hstack([x, np.ones((count, 1))]), federation.y[first : first + count]


def chances(w: Numbers, x: Numbers) -> Numbers:
    odds = np.exp(x @ w)
    return odds / odds.sum(axis=1, keepdims=True)


def slope(w: Numbers, x: Numbers, y: Numbers) -> Numbers:
    """The mean gradient of softmax regression: x^T (p - onehot(y)) / n."""
    return x.T @ (chances(w, x) - np.eye(2)[y]) / len(y)
