"""The loss that early stopping watches: log loss for classes, squared error for values, all sites in one sweep."""

from typing import NamedTuple

import numpy as np

from wardround.core.contracts import Scores, Task
from wardround.core.quality import row_losses
from wardround.evaluate.rows import Numbers, rows_of


class Losses(NamedTuple):
    """The mean over all rows, and the mean of each site (not a number where a site has no rows)."""

    weighted: float
    sites: Numbers
    rows: Numbers


def loss_of(scores: Scores, task: Task) -> Losses:
    """Mean loss over all patients, and site by site; infinite when training has diverged."""
    rows = rows_of(scores, task)
    totals = rows.sums(None, row_losses(rows.predicted, rows.actual)[:, None])[0, :, 0]
    with np.errstate(invalid="ignore"):
        sites = np.where(rows.counts > 0, totals / rows.counts, np.nan)
    weighted = float(totals.sum() / len(rows.actual)) if len(rows.actual) else float("nan")
    return Losses(weighted, sites, rows.counts)
