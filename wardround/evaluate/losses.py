"""The loss that early stopping watches: log loss for classes, squared error for values, all sites in one sweep."""

from typing import NamedTuple

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.evaluate.rows import Numbers, Rows, rows_of

SMALLEST = 1e-7
"""Probabilities are raised to this before the logarithm: about what single precision can tell from 0."""


class Losses(NamedTuple):
    """The mean over all rows, and the mean of each site (not a number where a site has no rows)."""

    weighted: float
    sites: Numbers
    rows: Numbers


def row_losses(rows: Rows) -> Numbers:
    """The loss of every row; infinite where the prediction is not a number, so that it never looks good."""
    if rows.task.regression:
        loss = np.square(rows.predicted - rows.actual)
    else:
        given = rows.predicted[np.arange(len(rows.actual)), rows.actual]
        loss = -np.log(np.clip(given, SMALLEST, 1.0))
    return np.where(np.isfinite(loss), loss, np.inf)


def loss_of(scores: Scores, task: Task) -> Losses:
    """Mean loss over all patients, and site by site; infinite when training has diverged."""
    rows = rows_of(scores, task)
    totals = rows.sums(None, row_losses(rows)[:, None])[0, :, 0]
    with np.errstate(invalid="ignore"):
        sites = np.where(rows.counts > 0, totals / rows.counts, np.nan)
    weighted = float(totals.sum() / len(rows.actual)) if len(rows.actual) else float("nan")
    return Losses(weighted, sites, rows.counts)
