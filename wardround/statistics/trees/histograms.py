"""Sums of slopes over the rows of a node, for every bin of every column: the one expensive step of a tree.

scikit-learn's compiled builder does it where it is to be had as this version knows it; else NumPy, about three times
slower. A test compares both.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
Builder = Callable[[Numbers], Numbers]
"""From the numbers of rows to sums of the shape (2, columns, width): gradients and hessians; and (3) counts of rows."""


def histogram_builder(
    codes: Numbers, width: int, gradients: Numbers, hessians: Numbers, *, constant: bool, counted: bool = False
) -> Builder:
    """For one group's slopes; `codes` of the shape (columns, rows), `constant`: every hessian is 1."""
    gradients, hessians = (np.ascontiguousarray(part, np.float32) for part in (gradients, hessians))
    try:
        from sklearn.ensemble._hist_gradient_boosting.histogram import HistogramBuilder

        made = HistogramBuilder(codes.T, width, gradients, hessians, constant, 1)
    except (ImportError, TypeError, ValueError):
        return numpy_builder(codes, width, gradients, hessians, counted=counted)
    curvature = "count" if constant else "sum_hessians"

    def build(rows: Numbers) -> Numbers:
        # The array behind the view; to go by the view itself would cost more than the sums.
        found = made.compute_histograms_brute(rows).base
        sums = np.empty((3 if counted else 2, len(codes), width))
        sums[0], sums[1] = found["sum_gradients"], found[curvature]
        if counted:
            sums[2] = found["count"]
        return sums

    return build


def numpy_builder(
    codes: Numbers, width: int, gradients: Numbers, hessians: Numbers, *, counted: bool = False
) -> Builder:
    columns = len(codes)
    parts = (gradients, hessians, np.ones_like(gradients)) if counted else (gradients, hessians)
    place = codes.astype(np.int64) + width * np.arange(columns)[:, None]

    def build(rows: Numbers) -> Numbers:
        at = place[:, rows].ravel()
        weights = (np.tile(part[rows].astype(np.float64), columns) for part in parts)
        return np.stack([np.bincount(at, weight, columns * width).reshape(columns, width) for weight in weights])

    return build
